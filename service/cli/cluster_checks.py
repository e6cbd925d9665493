"""What `knell doctor` asks of the clusters: do they answer, are they the right ones, is there what the sources need?
Only reads, and questions about permissions, which a server answers without doing anything."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from service.cli import output
from service.cli.capa_checks import examine_capa
from service.cli.checks import Finding, State
from service.cli.moments import moments
from service.engine.installation import Installation
from service.engine.moments import Moments
from service.engine.witnesses import Restored
from service.kubernetes import NAMESPACES, Cluster, ClusterError, Forbidden, NotServed, Unauthorized
from service.settings import Settings, SettingsError
from service.watching.clusters import Identities, OtherCluster, cluster_of, reached
from service.watching.proving import each
from service.watching.role import TO_UNINSTALL, manifests
from service.watching.watcher import check_sources

PATIENCE: Final = timedelta(seconds=10)
"""For everything that is asked of one cluster."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_NAMED: Final = 12
_FOR_SPEED: Final = (("list", "namespaces"), ("watch", "namespaces"))
"""Without these everything works, and marks that are changed on Namespaces are noticed within minutes."""


class Wanted(NamedTuple):
    """One thing that the service must be allowed. Without a namespace it is meant everywhere."""

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


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


async def examine_clusters(
    settings: Settings,
    identities: Identities,
    known: Mapping[str, str] | None,
    restored: Mapping[str, Restored] = {},
) -> AsyncIterator[Finding]:
    """`known` are the uids that Redis remembers; None where nobody could ask it. `restored` are those of clusters that
    seem to be restored from a backup."""
    for finding in _declarations(settings):
        yield finding
    for name in settings.clusters:
        found: list[Finding] = []
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()), reached(settings, name) as cluster:
                await _examine(found.append, settings, name, cluster, identities, known, restored)
        except (ClusterError, TimeoutError) as error:
            said = str(error) or f"it did not answer within {output.span(PATIENCE)}"
            check = "the rest" if found else "reachable"
            found.append(_finding(name, check, "wrong", said, _way_in(name, error)))
        for finding in found:
            yield finding


def _declarations(settings: Settings) -> Iterator[Finding]:
    try:
        check_sources(settings)
    except SettingsError as error:
        yield Finding(check="sources", state="wrong", what=str(error), mend="mend the settings")


async def _examine(
    tell: Callable[[Finding], None],
    settings: Settings,
    name: str,
    cluster: Cluster,
    identities: Identities,
    known: Mapping[str, str] | None,
    restored: Mapping[str, Restored],
) -> None:
    """Told one by one: what was found before trouble came is told all the same."""
    uid = await cluster.identity()
    tell(_finding(name, "reachable", "fine", "it answers"))
    identity = _identity(settings, name, uid, identities, known)
    tell(identity)
    sources = [source for source in settings.sources if cluster_of(settings, source) == name]
    if identity.state == "wrong" or not sources:
        # Whatever else is found there says nothing about the cluster that is meant.
        return
    if uid in restored:
        mend = f"see whether it is as it should be, then `knell clusters accept-restore {name}`"
        what = f"{restored[uid].why}: nothing that is missing there counts as deleted"
        tell(_finding(name, "restored", "wrong", what, mend))
    tell(await _namespace(cluster, name, settings.watch.namespace))
    for source in sources:
        tell(await _source(cluster, settings, name, source))
    for finding in await examine_capa(cluster, settings, name, sources):
        tell(finding)
    tell(await _access(cluster, settings, name))


def _identity(
    settings: Settings, name: str, uid: str, identities: Identities, known: Mapping[str, str] | None
) -> Finding:
    try:
        identities.check(name, uid, known or {})
    except OtherCluster as error:
        what, _, mend = str(error).partition("; ")
        return _finding(name, "identity", "wrong", what, mend)
    if settings.clusters[name].uid == uid:
        return _finding(name, "identity", "fine", f"uid {uid}, as clusters.{name}.uid says")
    if known is None:
        what = f"uid {uid}; whether it is the one it was is not known, for Redis can't be asked"
        return _finding(name, "identity", "unknown", what, "mend what stands above, then look again")
    words = "as it has always been" if name in known else "seen for the first time"
    return _finding(name, "identity", "fine", f"uid {uid}, {words}")


async def _namespace(cluster: Cluster, name: str, namespace: str) -> Finding:
    """Where Leases and moments of first enabling are kept."""
    try:
        found = await cluster.get(NAMESPACES, "", namespace)
    except Forbidden as error:
        return _finding(name, "namespace", "unknown", f"Namespace {namespace} can't be read: {error}", _role(name))
    if found is None:
        mend = f"knell role --cluster {name} | kubectl apply -f -, or set watch.namespace (KNELL_WATCH_NAMESPACE)"
        return _finding(name, "namespace", "wrong", f"there is no Namespace {namespace} for Leases", mend)
    if found.going:
        mend = "wait until it is gone and create it again, or set watch.namespace (KNELL_WATCH_NAMESPACE)"
        return _finding(name, "namespace", "wrong", f"Namespace {namespace} is being deleted", mend)
    return _finding(name, "namespace", "fine", f"{namespace}, for Leases")


async def _source(cluster: Cluster, settings: Settings, name: str, source: str) -> Finding:
    declared = settings.sources[source]
    check, resource = f"source {source}", declared.resource
    try:
        served = await cluster.discover(resource)
        state = await cluster.crd_state(resource)
    except NotServed:
        mend = f"install the CRD of {resource}, or mend sources.{source}.resource; it is looked for again and again"
        return _finding(name, check, "warning", f"{resource} is not served", mend)
    except Forbidden as error:
        return _finding(name, check, "wrong", str(error), _role(name))
    if state == "going":
        what = f"the CRD of {resource} is being deleted: everything of this source is held"
        return _finding(name, check, "warning", what, f"`knell sources release {source}`, if it is meant to go")
    if declared.namespaces and not served.namespaced:
        mend = f"take `namespaces` out of sources.{source}"
        return _finding(name, check, "wrong", f"{resource} have no namespaces", mend)
    return _finding(name, check, "fine", f"{resource} is served in version {served.version}")


async def examine_moments(installation: Installation) -> list[Finding]:
    """Whether the clusters and Redis agree on when sources were first enabled."""
    settings = installation.settings
    found = await moments(settings, await Moments(installation).every())
    return [
        _finding(cluster_of(settings, source), f"first enabling of {source}", "warning", one.fault, one.mend)
        for source, one in found.items()
        if one.fault
    ]


# ---- permissions


async def _access(cluster: Cluster, settings: Settings, name: str) -> Finding:
    wanted = list(needed(settings, name))
    allowed: set[Wanted] = set()

    async def ask(one: Wanted) -> None:
        if await _allowed(cluster, one):
            allowed.add(one)

    try:
        await each(wanted, ask)
    except (NotServed, Forbidden):
        what = "permissions are not checked: the server does not tell what these credentials may do"
        return _finding(name, "access", "unknown", what, "look whether sources are in trouble: `knell sources list`")
    missing = [one for one in wanted if one not in allowed]
    if not missing:
        return _finding(name, "access", "fine", f"all of {len(wanted)} permissions that are needed")
    lacking = [str(one) for one in missing]
    if all((one.verb, one.resource) in _FOR_SPEED for one in missing):
        what = f"these credentials may not {', '.join(lacking)}: what is changed there is noticed within minutes"
        return _finding(name, "access", "warning", what, _role(name))
    if all(one.to_uninstall for one in missing):
        what = f"these credentials may not {', '.join(lacking)}: only `knell uninstall` needs that"
        return _finding(name, "access", "fine", what)
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    what = f"these credentials may not {', '.join(lacking[:_NAMED])}{more}"
    return _finding(name, "access", "wrong", what, _role(name))


def needed(settings: Settings, cluster: str) -> Iterator[Wanted]:
    """Everything that the roles grant which `knell role` prints, one by one."""
    for made in manifests(settings, cluster):
        if made["kind"] not in ("Role", "ClusterRole"):
            continue
        namespace = made["metadata"].get("namespace", "")
        to_uninstall = made["metadata"]["name"].endswith(TO_UNINSTALL)
        for rule in made["rules"]:
            yield from (
                Wanted(verb, group, resource, namespace, object_name, to_uninstall)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for object_name in rule.get("resourceNames", [""])
            )


async def _allowed(cluster: Cluster, one: Wanted) -> bool:
    body: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": one.attributes},
    }
    answer = await cluster.request("POST", _REVIEWS, body=body)
    return msgspec.json.decode(answer, type=_Review).status.allowed


def _finding(cluster: str, check: str, state: State, what: str, mend: str = "") -> Finding:
    return Finding(check=check, state=state, what=what, mend=mend, node=f"cluster {cluster}")


def _role(cluster: str) -> str:
    return f"knell role --cluster {cluster} | kubectl apply -f -, and run as that service account"


def _way_in(name: str, error: Exception) -> str:
    match error:
        case Forbidden():
            return _role(name)
        case Unauthorized():
            return f"mend the token or certificate that clusters.{name} leads to"
        case _:
            return f"see whether the API server runs, and mend clusters.{name} (kubeconfig, context, secret)"
