"""RBAC rules of the webhook for deletions, and of the removal of what protection at admission has in a cluster.
The webhook looks for protected objects in whole API groups: only here is a wildcard, and only for lists of metadata."""

from typing import Any, Final

from service.admission.installed_objects import ALL_INSTALLED, GROUP
from service.admission.names import CONFIGURATION, MARKS_POLICY, POLICY
from service.admission.protection_status import protected_clusters, uses_protection
from service.settings import Settings
from service.watching.cluster_identity import cluster_of

_POLICIES: Final = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]

AdmissionRule = dict[str, list[str]]


def has_webhook(settings: Settings, cluster: str) -> bool:
    """Whether the webhook is about this cluster."""
    return settings.protection.webhook.enabled and cluster in protected_clusters(settings)


def webhook_cluster_rules(settings: Settings, cluster: str) -> list[AdmissionRule]:
    """Beside those that every installation has: reads of Namespaces, and Events. Discovery is allowed to everyone."""
    if not has_webhook(settings, cluster):
        return []
    declared = [one.resource for name, one in settings.sources.items() if cluster_of(settings, name) == cluster]
    groups = {resource.partition(".")[2] for resource in declared} | set(settings.protection.groups)
    rules = [_rule(group, ["*"], ["list"]) for group in sorted(groups - {""})]
    # The core group has Secrets, which the webhook need not list.
    if core := sorted(resource for resource in declared if "." not in resource):
        rules.append(_rule("", core, ["list"]))
    verbs = ["get"] if settings.protection.webhook.certificate == "cert-manager" else ["get", "patch"]
    return [
        *rules,
        _rule(GROUP, ["validatingwebhookconfigurations"], verbs, [CONFIGURATION]),
        # For `knell doctor`.
        _rule(GROUP, _POLICIES, ["get"], [POLICY, MARKS_POLICY]),
    ]


def webhook_home_rules(settings: Settings, cluster: str) -> list[AdmissionRule]:
    """The Secret with the certificate. A create can't be restricted to a name."""
    if not has_webhook(settings, cluster):
        return []
    webhook = settings.protection.webhook
    if webhook.certificate != "self-made":
        return [_rule("", ["secrets"], ["get"], [webhook.secret])]
    return [
        _rule("", ["secrets"], ["create"]),
        _rule("", ["secrets"], ["get", "patch", "update"], [webhook.secret]),
    ]


def removal_rules(settings: Settings, cluster: str) -> list[AdmissionRule]:
    """For `knell uninstall`; the roles of an installation that does not use protection don't need them."""
    if not uses_protection(settings) or cluster not in protected_clusters(settings):
        return []
    names: dict[str, list[str]] = {}
    for served, name in ALL_INSTALLED:
        names.setdefault(served.plural, []).append(name)
    return [_rule(GROUP, [plural], ["delete", "get"], known) for plural, known in names.items()]


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict[str, Any]:
    rule = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule if names is None else {**rule, "resourceNames": names}
