"""RBAC manifests for one cluster, made from the settings: roles with exactly the permissions that the service needs
there. Every rule names its resources, and its objects where their names are known. The only wildcard is that of the
webhook, which lists whole groups; see protection_rbac.py."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from service.cli.protection_rbac import has_webhook, removal_rules, webhook_cluster_rules, webhook_home_rules
from service.contract.names import sweep_lease
from service.settings import Settings, SourceSettings
from service.sources.declaration import AccessRules, Rule
from service.sources.registry import known_sources, source_named
from service.watching.cluster_identity import cluster_of
from service.watching.enabling_configmap import CONFIGMAP
from service.watching.shares import shares_of

RBAC: Final = "rbac.authorization.k8s.io"
CRDS: Final = "apiextensions.k8s.io"
UNINSTALL_SUFFIX: Final = "-uninstall"
"""Suffix of the name of the role that only `knell uninstall` needs."""
_UNINSTALL_DESCRIPTION: Final = (
    "Only `knell uninstall` needs this, beside the other roles; leave it out where that runs with other credentials."
)

RoleRule = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The account that gets the roles, which are named after it. Its namespace may be another one than that of the
    Leases."""

    namespace: str
    name: str = "knell"


def namespace_manifests(settings: Settings, holder: ServiceAccount) -> list[dict[str, Any]]:
    """Namespaces of the account and the Leases. Without labels, because they may exist already; Namespaces of others
    are never among them, because `kubectl delete -f` would delete everything in them."""
    names = dict.fromkeys((holder.namespace, settings.watch.namespace))
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def role_manifests(settings: Settings, cluster: str, holder: ServiceAccount | None = None) -> list[dict[str, Any]]:
    """For `kubectl apply`: account, roles and bindings. Those in Namespaces of others come last."""
    namespace = settings.watch.namespace
    who = holder or ServiceAccount(namespace)
    sources = {name: one for name, one in settings.sources.items() if cluster_of(settings, name) == cluster}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(who.name, who.namespace)},
        *_role_and_binding(who.name, "", _cluster_rules(settings, cluster, sources.values()), who),
        *_role_and_binding(who.name, namespace, _home_rules(sources) + webhook_home_rules(settings, cluster), who),
        *_role_and_binding(
            f"{who.name}{UNINSTALL_SUFFIX}", namespace, _uninstall_rules(sources), who, _UNINSTALL_DESCRIPTION
        ),
        *_role_and_binding(
            f"{who.name}{UNINSTALL_SUFFIX}", "", removal_rules(settings, cluster), who, _UNINSTALL_DESCRIPTION
        ),
    ]
    by_namespace: dict[str, list[SourceSettings]] = {}
    for source in sources.values():
        for one in source.namespaces:
            by_namespace.setdefault(one, []).append(source)
    for one, confined in sorted(by_namespace.items()):
        made += _role_and_binding(f"{who.name}-sources", one, _object_rules(settings, confined), who)
    for fixed in (fixed for declared in _access_rules(sources.values()) for fixed in declared.namespaces):
        rules = [_declared_rule(rule) for rule in fixed.rules]
        made += _role_and_binding(f"{who.name}-{fixed.suffix}", fixed.namespace(settings), rules, who)
    for one, names in sorted(_kubeconfig_secrets(settings, cluster).items()):
        made += _role_and_binding(f"{who.name}-clusters", one, [_rule("", ["secrets"], ["get"], names)], who)
    return made


def _cluster_rules(settings: Settings, cluster: str, sources: Iterable[SourceSettings]) -> list[RoleRule]:
    known = list(sources)
    watched = bool(known) or has_webhook(settings, cluster)
    rules = [
        # The uid of kube-system is the identity of the cluster; annotations of the others are policy, and a watch shows
        # their changes at once.
        _rule("", ["namespaces"], ["get", "list", "watch"] if watched else ["get"]),
    ]
    declared = _access_rules(known)
    definitions = sorted(
        {one.resource for one in known if "." in one.resource}.union(*(rules.definitions for rules in declared))
    )
    if definitions:
        rules.append(_rule(CRDS, ["customresourcedefinitions"], ["get"], definitions))
        # Whether a group is served by an aggregated API server; the names contain versions, which are not known here.
        rules.append(_rule("apiregistration.k8s.io", ["apiservices"], ["get"]))
    if settings.feedback.events:
        rules.append(_rule("events.k8s.io", ["events"], ["create"]))
    rules += [_declared_rule(rule) for one in declared for rule in one.cluster]
    rules += webhook_cluster_rules(settings, cluster)
    rules += _list_rules(known)
    return rules + _object_rules(settings, [one for one in known if not one.namespaces])


def _list_rules(sources: Iterable[SourceSettings]) -> list[RoleRule]:
    """Lists of objects that a collector compares with those in all other namespaces."""
    found: dict[str, set[str]] = {}
    for source in sources:
        if source.namespaces and source_named(source.collector).rules.lists_everywhere:
            plural, _, group = source.resource.partition(".")
            found.setdefault(group, set()).add(plural)
    return [_rule(group, sorted(plurals), ["list"]) for group, plurals in sorted(found.items())]


def _object_rules(settings: Settings, sources: Iterable[SourceSettings]) -> list[RoleRule]:
    """Reads for all sources, patches only for those in finalizer mode."""
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
    return rules + [_declared_rule(rule) for one in _access_rules(sources) for rule in one.objects]


def _access_rules(sources: Iterable[SourceSettings]) -> list[AccessRules]:
    """What the collectors of these sources need beside the objects of the sources."""
    used = {source.collector for source in sources}
    return [declared.rules for declared in known_sources() if declared.name in used]


def _lease_names(sources: dict[str, SourceSettings]) -> list[str]:
    leases = [share.lease for name, source in sources.items() for share in shares_of(name, source)]
    leases += [sweep_lease(name) for name, source in sources.items() if source_named(source.collector).swept]
    return sorted(leases)


def _home_rules(sources: dict[str, SourceSettings]) -> list[RoleRule]:
    """In the namespace of the Leases and the ConfigMap. A create can't be restricted to a name."""
    leases = _lease_names(sources)
    rules = [_rule("", ["configmaps"], ["create"]), _rule("", ["configmaps"], ["get", "patch"], [CONFIGMAP])]
    if leases:
        rules.append(_rule("coordination.k8s.io", ["leases"], ["create"]))
        rules.append(_rule("coordination.k8s.io", ["leases"], ["get", "patch"], leases))
    return rules


def _uninstall_rules(sources: dict[str, SourceSettings]) -> list[RoleRule]:
    """Leases of shares and sources that the settings no longer have are found by a list, which can't be restricted to
    names."""
    leases = _lease_names(sources)
    rules = [_rule("", ["configmaps"], ["delete"], [CONFIGMAP]), _rule("coordination.k8s.io", ["leases"], ["list"])]
    if leases:
        rules.append(_rule("coordination.k8s.io", ["leases"], ["delete"], leases))
    return rules


def _kubeconfig_secrets(settings: Settings, cluster: str) -> dict[str, list[str]]:
    """Secrets of this cluster with kubeconfigs of other clusters, by namespace."""
    found: dict[str, list[str]] = {}
    for other in settings.clusters.values():
        if other.via == cluster and other.secret is not None:
            namespace, name, _ = other.secret.split("/")
            found.setdefault(namespace, []).append(name)
    return found


def _role_and_binding(
    name: str, namespace: str, rules: list[RoleRule], who: ServiceAccount, why: str = ""
) -> Iterator[dict[str, Any]]:
    """A ClusterRole if there is no namespace."""
    if not rules:
        return
    prefix = "" if namespace else "Cluster"
    meta = _metadata(name, namespace) | ({"annotations": {"kubernetes.io/description": why}} if why else {})
    yield {"apiVersion": f"{RBAC}/v1", "kind": f"{prefix}Role", "metadata": meta, "rules": rules}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{prefix}RoleBinding",
        "metadata": _metadata(name, namespace),
        "roleRef": {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": who.name, "namespace": who.namespace}],
    }


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> RoleRule:
    rule = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule if names is None else {**rule, "resourceNames": names}


def _declared_rule(rule: Rule) -> RoleRule:
    return _rule(rule.group, list(rule.resources), list(rule.verbs), list(rule.names) or None)


def _metadata(name: str, namespace: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "knell", "app.kubernetes.io/part-of": "knell"}
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}
