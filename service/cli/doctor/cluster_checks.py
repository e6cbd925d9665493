"""Checks of the clusters: reachability, identity, Namespace, the CRDs of the sources, and permissions.
Permissions are checked by SelfSubjectAccessReviews, which change nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from service.cli import output
from service.cli.enabled_time_comparison import compare_enabled_times
from service.cli.rbac import UNINSTALL_SUFFIX, role_manifests
from service.contract.checks import CheckResult, CheckState
from service.engine.enabled_times import EnabledTimes
from service.engine.installation import Installation
from service.engine.lease_counters import RestoreRecord
from service.kubernetes import NAMESPACES, ClusterError, Forbidden, KubernetesClient, NotServed, Unauthorized
from service.kubernetes.access_reviews import is_allowed
from service.settings import Settings, SettingsError
from service.watching.absence import run_concurrently
from service.watching.cluster_identity import ClusterIdentities, WrongCluster, cluster_of, connect_to
from service.watching.watcher import check_sources

TIMEOUT: Final = timedelta(seconds=10)
"""For all requests to one cluster."""
_MAX_NAMED: Final = 12
_OPTIONAL: Final = (("list", "namespaces"), ("watch", "namespaces"))
"""Without these, changed annotations of Namespaces are noticed only within minutes."""


class Permission(NamedTuple):
    """One permission that the service needs; without a namespace it is needed in all of them."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    to_uninstall: bool = False

    def __str__(self) -> str:
        plural, slash, below = self.resource.partition("/")
        whole = (f"{plural}.{self.group}" if self.group else plural) + slash + below
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {whole}{named}" + (f" in {self.namespace}" if self.namespace else "")

    @property
    def attributes(self) -> dict[str, str]:
        plural, _, below = self.resource.partition("/")
        found = {
            "verb": self.verb, "group": self.group, "resource": plural, "subresource": below,
            "namespace": self.namespace, "name": self.name,
        }  # fmt: skip
        return {key: value for key, value in found.items() if value}


async def check_clusters(
    settings: Settings,
    identities: ClusterIdentities,
    known: Mapping[str, str] | None,
    restored: Mapping[str, RestoreRecord] = {},
) -> AsyncIterator[CheckResult]:
    """`known` are the uids that Redis has, None if it can't be read. `restored` are those of clusters that seem to be
    restored from a backup."""
    for finding in _check_declarations(settings):
        yield finding
    for name in settings.clusters:
        found: list[CheckResult] = []
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()), connect_to(settings, name) as cluster:
                await _check_cluster(found.append, settings, name, cluster, identities, known, restored)
        except (ClusterError, TimeoutError) as error:
            said = str(error) or f"it did not answer within {output.span(TIMEOUT)}"
            check = "the rest" if found else "reachable"
            found.append(_result(name, check, "wrong", said, _mend_connection(name, error)))
        for finding in found:
            yield finding


def _check_declarations(settings: Settings) -> Iterator[CheckResult]:
    try:
        check_sources(settings)
    except SettingsError as error:
        yield CheckResult(check="sources", state="wrong", what=str(error), mend="mend the settings")


async def _check_cluster(
    tell: Callable[[CheckResult], None],
    settings: Settings,
    name: str,
    cluster: KubernetesClient,
    identities: ClusterIdentities,
    known: Mapping[str, str] | None,
    restored: Mapping[str, RestoreRecord],
) -> None:
    """Reports each result at once, so that those before a failure are kept."""
    uid = await cluster.identity()
    tell(_result(name, "reachable", "fine", "it answers"))
    identity = _check_identity(settings, name, uid, identities, known)
    tell(identity)
    sources = [source for source in settings.sources if cluster_of(settings, source) == name]
    if identity.state == "wrong" or not sources:
        # Further checks would say nothing about the cluster that the settings mean.
        return
    if uid in restored:
        mend = f"see whether it is as it should be, then `knell clusters accept-restore {name}`"
        what = f"{restored[uid].why}: nothing that is missing there counts as deleted"
        tell(_result(name, "restored", "wrong", what, mend))
    tell(await _check_namespace(cluster, name, settings.watch.namespace))
    for source in sources:
        tell(await _check_source(cluster, settings, name, source))
    tell(await _check_permissions(cluster, settings, name))


def _check_identity(
    settings: Settings, name: str, uid: str, identities: ClusterIdentities, known: Mapping[str, str] | None
) -> CheckResult:
    try:
        identities.check(name, uid, known or {})
    except WrongCluster as error:
        what, _, mend = str(error).partition("; ")
        return _result(name, "identity", "wrong", what, mend)
    if settings.clusters[name].uid == uid:
        return _result(name, "identity", "fine", f"uid {uid}, as clusters.{name}.uid says")
    if known is None:
        what = f"uid {uid}; whether it is the one it was is not known, for Redis can't be asked"
        return _result(name, "identity", "unknown", what, "mend what stands above, then look again")
    words = "as it has always been" if name in known else "seen for the first time"
    return _result(name, "identity", "fine", f"uid {uid}, {words}")


async def _check_namespace(cluster: KubernetesClient, name: str, namespace: str) -> CheckResult:
    """The Namespace of Leases and first-enabling times."""
    try:
        found = await cluster.get(NAMESPACES, "", namespace)
    except Forbidden as error:
        return _result(name, "namespace", "unknown", f"Namespace {namespace} can't be read: {error}", _apply_role(name))
    if found is None:
        mend = f"knell role --cluster {name} | kubectl apply -f -, or set watch.namespace (KNELL_WATCH_NAMESPACE)"
        return _result(name, "namespace", "wrong", f"there is no Namespace {namespace} for Leases", mend)
    if found.going:
        mend = "wait until it is gone and create it again, or set watch.namespace (KNELL_WATCH_NAMESPACE)"
        return _result(name, "namespace", "wrong", f"Namespace {namespace} is being deleted", mend)
    return _result(name, "namespace", "fine", f"{namespace}, for Leases")


async def _check_source(cluster: KubernetesClient, settings: Settings, name: str, source: str) -> CheckResult:
    declared = settings.sources[source]
    check, resource = f"source {source}", declared.resource
    try:
        served = await cluster.discover(resource)
        state = await cluster.crd_state(resource)
    except NotServed:
        mend = f"install the CRD of {resource}, or mend sources.{source}.resource; it is looked for again and again"
        return _result(name, check, "warning", f"{resource} is not served", mend)
    except Forbidden as error:
        return _result(name, check, "wrong", str(error), _apply_role(name))
    if state == "going":
        what = f"the CRD of {resource} is being deleted: everything of this source is held"
        return _result(name, check, "warning", what, f"`knell sources release {source}`, if it is meant to go")
    if declared.namespaces and not served.namespaced:
        mend = f"take `namespaces` out of sources.{source}"
        return _result(name, check, "wrong", f"{resource} have no namespaces", mend)
    return _result(name, check, "fine", f"{resource} is served in version {served.version}")


async def check_enabled_times(installation: Installation) -> list[CheckResult]:
    """Compares the first-enabling times of the clusters with those in Redis."""
    settings = installation.settings
    found = await compare_enabled_times(settings, await EnabledTimes(installation).all_times())
    return [
        _result(cluster_of(settings, source), f"first enabling of {source}", "warning", one.fault, one.mend)
        for source, one in found.items()
        if one.fault
    ]


# ---- permissions


async def _check_permissions(cluster: KubernetesClient, settings: Settings, name: str) -> CheckResult:
    wanted = list(needed_permissions(settings, name))
    allowed: set[Permission] = set()

    async def ask(one: Permission) -> None:
        if await is_allowed(cluster, one.attributes):
            allowed.add(one)

    try:
        await run_concurrently(wanted, ask)
    except (NotServed, Forbidden):
        what = "permissions are not checked: the server does not tell what these credentials may do"
        return _result(name, "access", "unknown", what, "look whether sources are in trouble: `knell sources list`")
    missing = [one for one in wanted if one not in allowed]
    if not missing:
        return _result(name, "access", "fine", f"all of {len(wanted)} permissions that are needed")
    lacking = [str(one) for one in missing]
    if all((one.verb, one.resource) in _OPTIONAL for one in missing):
        what = f"these credentials may not {', '.join(lacking)}: what is changed there is noticed within minutes"
        return _result(name, "access", "warning", what, _apply_role(name))
    if all(one.to_uninstall for one in missing):
        what = f"these credentials may not {', '.join(lacking)}: only `knell uninstall` needs that"
        return _result(name, "access", "fine", what)
    more = f" and {len(lacking) - _MAX_NAMED} more" if len(lacking) > _MAX_NAMED else ""
    what = f"these credentials may not {', '.join(lacking[:_MAX_NAMED])}{more}"
    return _result(name, "access", "wrong", what, _apply_role(name))


def needed_permissions(settings: Settings, cluster: str) -> Iterator[Permission]:
    """Every permission of the roles that `knell role` prints."""
    for made in role_manifests(settings, cluster):
        if made["kind"] not in ("Role", "ClusterRole"):
            continue
        namespace = made["metadata"].get("namespace", "")
        to_uninstall = made["metadata"]["name"].endswith(UNINSTALL_SUFFIX)
        for rule in made["rules"]:
            yield from (
                Permission(verb, group, resource, namespace, object_name, to_uninstall)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for object_name in rule.get("resourceNames", [""])
            )


def _result(cluster: str, check: str, state: CheckState, what: str, mend: str = "") -> CheckResult:
    return CheckResult(check=check, state=state, what=what, mend=mend, node=f"cluster {cluster}")


def _apply_role(cluster: str) -> str:
    return f"knell role --cluster {cluster} | kubectl apply -f -, and run as that service account"


def _mend_connection(name: str, error: Exception) -> str:
    match error:
        case Forbidden():
            return _apply_role(name)
        case Unauthorized():
            return f"mend the token or certificate that clusters.{name} leads to"
        case _:
            return f"see whether the API server runs, and mend clusters.{name} (kubeconfig, context, secret)"
