"""What the service needs to be allowed in one cluster, and not a verb more: made from the settings, never by hand.
Every rule names its resources, and its objects where they are known beforehand; there is no wildcard."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from service.contract.azure import KARPENTER_AZURE, NODES
from service.contract.names import sweep_lease
from service.contract.traits import traits_of
from service.settings import Settings, SourceSettings
from service.watching import capi_role
from service.watching.clusters import cluster_of
from service.watching.enabling import NAME
from service.watching.shares import shares_of

RBAC: Final = "rbac.authorization.k8s.io"
CRDS: Final = "apiextensions.k8s.io"
TO_UNINSTALL: Final = "-uninstall"
"""How the name of the one role ends that only `knell uninstall` needs."""
_WHY_TO_UNINSTALL: Final = (
    "Only `knell uninstall` needs this, beside the other roles; leave it out where that runs with other credentials."
)

Rule = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Holder:
    """The service account that gets the roles, which are named after it. It may live elsewhere than the Leases."""

    namespace: str
    name: str = "knell"


def own_namespaces(settings: Settings, holder: Holder) -> list[dict[str, Any]]:
    """Where the account and the Leases are. Without labels, for a Namespace may have been there before; those of others
    are never among them, because `kubectl delete -f` takes along everything that is in them."""
    names = dict.fromkeys((holder.namespace, settings.watch.namespace))
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def manifests(settings: Settings, cluster: str, holder: Holder | None = None) -> list[dict[str, Any]]:
    """What `kubectl apply` makes of it: account, roles, and what binds them. What is in Namespaces of others stands
    last."""
    namespace = settings.watch.namespace
    who = holder or Holder(namespace)
    sources = {name: one for name, one in settings.sources.items() if cluster_of(settings, name) == cluster}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(who.name, who.namespace)},
        *_granted(who.name, "", _everywhere(settings, sources.values()), who),
        *_granted(who.name, namespace, _at_home(sources), who),
        *_granted(f"{who.name}{TO_UNINSTALL}", namespace, _to_uninstall(sources), who, _WHY_TO_UNINSTALL),
    ]
    by_namespace: dict[str, list[SourceSettings]] = {}
    for source in sources.values():
        for one in source.namespaces:
            by_namespace.setdefault(one, []).append(source)
    for one, confined in sorted(by_namespace.items()):
        made += _granted(f"{who.name}-sources", one, _objects(settings, confined), who)
    if capi_role.capi_sources(sources.values()):
        made += _granted(f"{who.name}-aws", settings.aws.identity_namespace, capi_role.in_capa_namespace(), who)
    for one, names in sorted(_secrets(settings, cluster).items()):
        made += _granted(f"{who.name}-clusters", one, [_rule("", ["secrets"], ["get"], names)], who)
    return made


def _everywhere(settings: Settings, sources: Iterable[SourceSettings]) -> list[Rule]:
    known = list(sources)
    rules = [
        # Its uid tells kube-system of one cluster from that of another; annotations carry the policy of all others, and
        # who watches them notices a changed one at once.
        _rule("", ["namespaces"], ["get", "list", "watch"] if known else ["get"]),
    ]
    definitions = sorted({one.resource for one in known if "." in one.resource} | {*capi_role.definitions(known)})
    if definitions:
        rules.append(_rule(CRDS, ["customresourcedefinitions"], ["get"], definitions))
        # Whether another server stands behind a group; the names contain versions, which nobody knows beforehand.
        rules.append(_rule("apiregistration.k8s.io", ["apiservices"], ["get"]))
    if settings.feedback.events:
        rules.append(_rule("events.k8s.io", ["events"], ["create"]))
    if capi_role.capi_sources(known):
        rules += capi_role.everywhere()
    if any(one.collector == KARPENTER_AZURE for one in known):
        # A Node that is Ready protects its machine.
        rules.append(_rule("", [NODES], ["get", "list"]))
    return rules + _objects(settings, [one for one in known if not one.namespaces])


def _objects(settings: Settings, sources: Iterable[SourceSettings]) -> list[Rule]:
    """Reading for all; changing only where a finalizer is put on and taken off."""
    sources = list(sources)
    reads: dict[str, set[str]] = {}
    patches: dict[str, set[str]] = {}
    for source in sources:
        plural, _, group = source.resource.partition(".")
        reads.setdefault(group, set()).add(plural)
        if source.mode == "finalizer":
            patches.setdefault(group, set()).add(plural)
            if settings.feedback.conditions:
                patches[group].add(f"{plural}/status")
    rules = [_rule(group, sorted(plurals), ["get", "list", "watch"]) for group, plurals in sorted(reads.items())]
    rules += [_rule(group, sorted(plurals), ["patch"]) for group, plurals in sorted(patches.items())]
    return rules + (capi_role.owners() if capi_role.capi_sources(sources) else [])


def _leases(sources: dict[str, SourceSettings]) -> list[str]:
    leases = [share.lease for name, source in sources.items() for share in shares_of(name, source)]
    leases += [sweep_lease(name) for name, source in sources.items() if traits_of(source.collector).swept]
    return sorted(leases)


def _at_home(sources: dict[str, SourceSettings]) -> list[Rule]:
    """Where Leases and the moments of first enabling are. A create can't be bound to a name."""
    leases = _leases(sources)
    rules = [_rule("", ["configmaps"], ["create"]), _rule("", ["configmaps"], ["get", "patch"], [NAME])]
    if leases:
        rules.append(_rule("coordination.k8s.io", ["leases"], ["create"]))
        rules.append(_rule("coordination.k8s.io", ["leases"], ["get", "patch"], leases))
    return rules


def _to_uninstall(sources: dict[str, SourceSettings]) -> list[Rule]:
    """Leases of shares and sources that the settings no longer have are found by a list, which no name can bound."""
    leases = _leases(sources)
    rules = [_rule("", ["configmaps"], ["delete"], [NAME]), _rule("coordination.k8s.io", ["leases"], ["list"])]
    if leases:
        rules.append(_rule("coordination.k8s.io", ["leases"], ["delete"], leases))
    return rules


def _secrets(settings: Settings, cluster: str) -> dict[str, list[str]]:
    """Kubeconfigs of other clusters that are kept in this one."""
    found: dict[str, list[str]] = {}
    for other in settings.clusters.values():
        if other.via == cluster and other.secret is not None:
            namespace, name, _ = other.secret.split("/")
            found.setdefault(namespace, []).append(name)
    return found


def _granted(name: str, namespace: str, rules: list[Rule], who: Holder, why: str = "") -> Iterator[dict[str, Any]]:
    """A role and its binding, for the cluster where there is no namespace."""
    if not rules:
        return
    prefix = "" if namespace else "Cluster"
    meta = _meta(name, namespace) | ({"annotations": {"kubernetes.io/description": why}} if why else {})
    yield {"apiVersion": f"{RBAC}/v1", "kind": f"{prefix}Role", "metadata": meta, "rules": rules}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{prefix}RoleBinding",
        "metadata": _meta(name, namespace),
        "roleRef": {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": who.name, "namespace": who.namespace}],
    }


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> Rule:
    rule = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule if names is None else {**rule, "resourceNames": names}


def _meta(name: str, namespace: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "knell", "app.kubernetes.io/part-of": "knell"}
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}
