"""State of the protection at admission in one cluster, as results of checks: whether the policy is bound and as the
settings make it, and whether the webhook can be called. They only read, and ask for server dry runs of deletions."""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from service.admission.ca_bundle import CONFIGURATIONS
from service.admission.installed_objects import (
    BINDINGS,
    POLICIES,
    InstalledObject,
    decoded_spec,
    first_difference,
    read_installed,
)
from service.admission.manifests import protection_manifests
from service.admission.names import CONFIGURATION, MARKS_POLICY, POLICY
from service.admission.webhook_checks import check_webhook
from service.contract.checks import CheckResult, CheckState
from service.kubernetes import ClusterError, KubernetesClient
from service.settings import Settings

Door = Literal["closed", "not as the settings say", "open", "not known"]
_CHECKS: Final = {POLICY: "protection policy", MARKS_POLICY: "protection policy of annotations"}


class ProtectionStatus(NamedTuple):
    """`door` is about deletions of the protected resources themselves, which the policy denies, or the webhook."""

    door: Door
    results: list[CheckResult]


class _TypeChecking(msgspec.Struct):
    warnings: list[dict[str, Any]] | None = msgspec.field(default=None, name="expressionWarnings")


class _PolicyStatus(msgspec.Struct):
    observed: int = msgspec.field(default=0, name="observedGeneration")
    checked: _TypeChecking | None = msgspec.field(default=None, name="typeChecking")


class _PolicyMetadata(msgspec.Struct):
    generation: int = 0


class _CheckedPolicy(msgspec.Struct):
    metadata: _PolicyMetadata
    status: _PolicyStatus | None = None


class _BindingSpec(msgspec.Struct):
    actions: list[str] = msgspec.field(default_factory=list, name="validationActions")


class _BoundPolicy(msgspec.Struct):
    spec: _BindingSpec


def uses_protection(settings: Settings) -> bool:
    """Whether the settings say anything about protection at admission. Policies may be applied without that."""
    known = settings.protection
    return known.webhook.enabled or known.restrict_marks or bool(known.groups) or known.cluster is not None


def protected_clusters(settings: Settings) -> list[str]:
    """The cluster of the settings, or all if they name none."""
    return [settings.protection.cluster] if settings.protection.cluster is not None else list(settings.clusters)


async def protection_status(
    cluster: KubernetesClient, settings: Settings, *, protected_namespaces: Iterable[str] | None = None
) -> ProtectionStatus:
    """`protected_namespaces` are Namespaces with protected objects, None if they are not known."""
    manifests = {(one["kind"], one["metadata"]["name"]): one for one in protection_manifests(settings, cluster.name)}
    policies = _PolicyCheck(cluster, settings, manifests)
    results = [await policies.result(POLICY)]
    if (POLICIES.kind, MARKS_POLICY) in manifests:
        results.append(await policies.result(MARKS_POLICY))
    try:
        configuration = await read_installed(cluster, CONFIGURATIONS, CONFIGURATION)
    except ClusterError as error:
        if settings.protection.webhook.enabled:
            what = f"the webhook configuration can't be read: {error}"
            results.append(_result(cluster, "protection webhook", "unknown", what, _by_admin()))
        return ProtectionStatus(policies.door, results)
    wanted = manifests.get((CONFIGURATIONS.kind, CONFIGURATION))
    checked = await check_webhook(cluster, settings, wanted, configuration, protected_namespaces)
    door = policies.door
    if door == "open" and settings.protection.webhook.enabled and settings.protection.webhook.objects:
        door = _door_of_webhook(settings, checked)
    return ProtectionStatus(door, [*results, *checked])


def _door_of_webhook(settings: Settings, checked: Iterable[CheckResult]) -> Door:
    """Where the webhook is asked about objects, and the policy denies nothing."""
    states = {one.check: one.state for one in checked}
    reached = states.get("protection webhook reachable")
    if reached is None or (reached == "wrong" and settings.protection.webhook.failure_policy == "Ignore"):
        return "open"
    if reached != "fine":
        return "not known"
    as_wanted = not settings.protection.policy and states["protection webhook"] == "fine"
    return "closed" if as_wanted else "not as the settings say"


class _PolicyCheck:
    def __init__(
        self, cluster: KubernetesClient, settings: Settings, manifests: dict[tuple[str, str], dict[str, Any]]
    ) -> None:
        self._cluster, self._settings, self._manifests = cluster, settings, manifests
        self._apply = f"knell protection manifests --cluster {cluster.name} | kubectl apply -f -"
        self.door: Door = "not known"
        """As the policy of deletions leaves it."""

    async def result(self, name: str) -> CheckResult:
        door, state, what, mend = await self._state(name)
        if name == POLICY:
            self.door = door
        return _result(self._cluster, _CHECKS[name], state, what, mend)

    async def _state(self, name: str) -> tuple[Door, CheckState, str, str]:
        used = uses_protection(self._settings)
        try:
            policy = await read_installed(self._cluster, POLICIES, name)
            binding = await read_installed(self._cluster, BINDINGS, name)
            if (POLICIES.kind, name) not in self._manifests:
                return self._unwanted(name, applied=policy is not None and binding is not None)
            if policy is None:
                if used:
                    return "open", "warning", f"the admission policy {name} is not applied", self._apply
                return "open", "fine", "not applied; workers heed the annotation, the API server does not", ""
            return self._applied(name, policy, binding)
        except ClusterError as error:
            if used:
                return "not known", "unknown", f"the admission policy {name} can't be read: {error}", _by_admin()
            return "not known", "fine", "the settings use none, and whether one is applied can't be read", ""

    def _unwanted(self, name: str, *, applied: bool) -> tuple[Door, CheckState, str, str]:
        if not applied:
            return "open", "fine", "the settings use none: the webhook judges objects", ""
        what = f"the admission policy {name} is applied, so that denials do not reach the webhook"
        mend = f"kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy {name}"
        return "not as the settings say", "warning", what, mend

    def _applied(
        self, name: str, policy: InstalledObject, binding: InstalledObject | None
    ) -> tuple[Door, CheckState, str, str]:
        if binding is None:
            return "open", "wrong", f"the admission policy {name} has no binding, so it denies nothing", self._apply
        if "Deny" not in decoded_spec(binding, _BoundPolicy).spec.actions:
            what = f"the binding of the admission policy {name} does not say Deny, so it denies nothing"
            return "open", "wrong", what, self._apply
        for live in (policy, binding):
            wanted = self._manifests[live.served.kind, name]
            if found := first_difference(wanted["spec"], live.document["spec"]):
                what = f"{live} is not as the settings make it: {found}"
                return "not as the settings say", "warning", what, self._apply
        checked = decoded_spec(policy, _CheckedPolicy)
        generation, status = checked.metadata.generation, checked.status or _PolicyStatus()
        if warnings := (status.checked.warnings if status.checked is not None else None):
            what = f"the API server warns of its expressions: {warnings[0].get('warning', warnings[0])}"
            return "not as the settings say", "warning", f"{policy}: {what}", "report this as a bug of Knell"
        if status.observed and status.observed != generation:
            what = f"{policy} was changed, and the API server has not checked it since"
            return "closed", "unknown", what, "look again in a moment"
        return "closed", "fine", f"the admission policy {name} is bound and denies", ""


def _result(cluster: KubernetesClient, check: str, state: CheckState, what: str, mend: str = "") -> CheckResult:
    return CheckResult(check=check, state=state, what=what, mend=mend, node=f"cluster {cluster.name}")


def _by_admin() -> str:
    return "run this with credentials that may read resources of admissionregistration.k8s.io"
