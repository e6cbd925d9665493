"""Checks of the webhook for deletions: its configuration, its certificate, whether the API server reaches it, and
whether it may list the protected groups."""

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from cryptography import x509

from service.admission.ca_bundle import read_bundles
from service.admission.certificates import KeyedCertificate, called_name, find_defect, read_certificate
from service.admission.dry_run import DryRunAnswer, dry_run_delete
from service.admission.installed_objects import InstalledObject, first_difference
from service.admission.names import CONFIGURATION, NAMESPACES_WEBHOOK
from service.admission.protected_discovery import discover_protected
from service.admission.protected_resources import ProtectedResources, is_ack
from service.contract.checks import CheckResult, CheckState
from service.kubernetes import NAMESPACES, SECRETS, ClusterError, Forbidden, KubeObject, KubernetesClient, NotServed
from service.kubernetes.access_reviews import is_allowed
from service.policy.selectors import parse_selector
from service.settings import Settings

_SOON: Final = timedelta(days=7)
_PERMANENT: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""The API server itself denies the deletion of most of these, before it asks a webhook."""
_MOST_CANDIDATES: Final = 5000
_MAX_NAMED: Final = 8


async def check_webhook(
    cluster: KubernetesClient,
    settings: Settings,
    wanted: dict[str, Any] | None,
    found: InstalledObject | None,
    protected_namespaces: Iterable[str] | None = None,
) -> list[CheckResult]:
    """`wanted` is the configuration that the settings make, None if the webhook is not enabled."""
    return await _WebhookCheck(cluster, settings).results(wanted, found, protected_namespaces)


class _WebhookCheck:
    def __init__(self, cluster: KubernetesClient, settings: Settings) -> None:
        self._cluster, self._settings = cluster, settings
        self._webhook = settings.protection.webhook
        self._apply = f"knell protection manifests --cluster {cluster.name} | kubectl apply -f -"
        self._now = datetime.now(UTC)

    async def results(
        self, wanted: dict[str, Any] | None, found: InstalledObject | None, protected_namespaces: Iterable[str] | None
    ) -> list[CheckResult]:
        if wanted is None:
            return [] if found is None else [self._left_behind()]
        if found is None:
            what = "it is enabled, but its configuration is not applied: deletions of Namespaces and CRDs are admitted"
            return [self._result("protection webhook", "warning", what, f"start Knell, then {self._apply}")]
        difference = first_difference(
            wanted["webhooks"], found.document.get("webhooks") or [], "webhooks", frozenset({"caBundle"})
        )
        made = [self._configured(found, difference), await self._authorities(), await self._certificate()]
        made.append(await self._reachable(protected_namespaces, as_wanted=not difference))
        return [*made, *await self._lists()]

    def _configured(self, found: InstalledObject, difference: str) -> CheckResult:
        if difference:
            what = f"{found} is not as the settings make it: {difference}"
            return self._result("protection webhook", "warning", what, self._apply)
        what = f"it is configured, with failure policy {self._webhook.failure_policy}"
        return self._result("protection webhook", "fine", what)

    def _left_behind(self) -> CheckResult:
        what = (
            "its configuration is applied, but protection.webhook.enabled is false: while no replica answers, "
            "Namespaces and CRDs that it covers can't be deleted"
        )
        mend = f"kubectl delete validatingwebhookconfiguration {CONFIGURATION}, or enable the webhook"
        return self._result("protection webhook", "warning", what, mend)

    # ---- certificates

    async def _authorities(self) -> CheckResult:
        """The CAs by which the API server verifies the webhook; each of its webhooks has a bundle of its own."""
        registered = await read_bundles(self._cluster)
        bundles = list(registered.bundles.values()) if registered is not None else []
        mend = "start Knell, which fills it in"
        if self._webhook.certificate == "cert-manager":
            mend = "see whether cert-manager runs, which fills it in"
        try:
            ends = [_latest_end(bundle) for bundle in bundles]
        except ValueError:
            return self._result("protection CA", "wrong", "a caBundle of the configuration is no PEM certificate", mend)
        if not all(bundles) or not ends:
            what = "the configuration has no caBundle, so the API server does not trust the webhook"
            return self._result("protection CA", "wrong", what, mend)
        return self._expiry("protection CA", "the caBundle", min(ends), mend)

    async def _certificate(self) -> CheckResult:
        """From the Secret, for those who may read it."""
        namespace, name = self._settings.watch.namespace, self._webhook.secret
        what = f"the certificate in Secret {namespace}/{name}"
        mend = {
            "self-made": "start Knell, which makes and renews it",
            "cert-manager": f"see what cert-manager says of its Certificate {namespace}/{self._webhook.service}",
            "secret": f"put another one into Secret {namespace}/{name}",
        }[self._webhook.certificate]
        check = "protection certificate"
        try:
            found = await self._cluster.get(SECRETS, namespace, name)
        except ClusterError as error:
            said = f"{what} can't be read: {error}"
            return self._result(check, "unknown", said, "run this with credentials that may read it")
        if found is None:
            return self._result(check, "wrong", f"there is no Secret {namespace}/{name}", mend)
        served = _keyed(found)
        if fault := find_defect(served, called_name(self._webhook, namespace), self._now):
            return self._result(check, "wrong", f"{what} {fault}", mend)
        return self._expiry(check, what, read_certificate(served.certificate).expires, mend)

    def _expiry(self, check: str, what: str, end: datetime, mend: str) -> CheckResult:
        until = end.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        if end <= self._now:
            return self._result(check, "wrong", f"{what} has expired on {until}", mend)
        soon = end - self._now < _SOON
        return self._result(
            check, "warning" if soon else "fine", f"{what} is valid until {until}", mend if soon else ""
        )

    # ---- reachability

    async def _reachable(self, protected: Iterable[str] | None, *, as_wanted: bool) -> CheckResult:
        """By a server dry run of the deletion of a Namespace that it covers."""
        check = "protection webhook reachable"
        try:
            candidate = await self._candidate(frozenset(protected or ()))
            if candidate is None:
                return self._result(check, "unknown", "there is no Namespace that it covers, to try it with")
            answer = await dry_run_delete(self._cluster, NAMESPACES, candidate)
        except ClusterError as error:
            return self._result(check, "unknown", f"it could not be tried: {error}")
        return self._result(check, *self._judged(answer, candidate, candidate.name in (protected or ()), as_wanted))

    async def _candidate(self, protected: frozenset[str]) -> KubeObject | None:
        """A covered Namespace, if possible one with protected objects: its deletion must be denied."""
        excluded = {*_PERMANENT, self._settings.watch.namespace}
        selector, first, seen = parse_selector(self._webhook.namespaces), None, 0
        async for page in self._cluster.pages(NAMESPACES, None, metadata_only=True):
            for one in page.items:
                # A deletion of one that is being deleted is not reviewed again.
                if one.name in excluded or one.going or not selector.matches(one.labels):
                    continue
                if one.name in protected:
                    return one
                first = first or one
            seen += len(page.items)
            if seen >= _MOST_CANDIDATES or (first is not None and not protected):
                break
        return first

    def _judged(
        self, answer: DryRunAnswer, candidate: KubeObject, protected: bool, as_wanted: bool
    ) -> tuple[CheckState, str, str]:
        tried = f"a dry run of the deletion of Namespace {candidate.name}"
        restart = "see whether Knell runs, and its log; docs/protection.md has the way out"
        match answer.outcome:
            case "unreachable":
                return "wrong", f"the API server does not reach it: {answer.message}", restart
            case "denied" if answer.by == NAMESPACES_WEBHOOK:
                return "fine", f"it denied {tried}", ""
            case "denied":
                return "unknown", f"{tried} was denied, but not by it: {answer.message}", ""
            case "forbidden":
                return (
                    "unknown",
                    f"these credentials may not delete Namespace {candidate.name}, not even in a dry run",
                    "",
                )
        if protected:
            return "wrong", f"it let {tried} pass, which has protected objects", restart
        if self._webhook.failure_policy == "Ignore" or not as_wanted:
            return "unknown", f"{tried} passed, as it also does while the webhook is not reached", ""
        return "fine", f"the API server reached it with {tried}", ""

    # ---- permissions

    async def _lists(self) -> list[CheckResult]:
        """Where it may not list, it denies the deletion of Namespaces, because it can't know."""
        check = "protection lists"
        try:
            found = await discover_protected(
                self._cluster,
                ProtectedResources(self._settings, self._cluster.name),
                lambda group: is_ack(f"any.{group}"),
            )
            groups = sorted({one.served.group for one in found.resources})
            missing = [group for group in groups if not await self._may_list(group, found.resources)]
        except (NotServed, Forbidden):
            return [self._result(check, "unknown", "the server does not tell what these credentials may list")]
        except ClusterError as error:
            return [self._result(check, "unknown", f"which groups of ACK are installed can't be read: {error}")]
        if not missing:
            return [self._result(check, "fine", f"{len(groups)} groups of ACK are installed, all may be listed")]
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        what = (
            f"these credentials may not list {', '.join(missing[:_MAX_NAMED])}{more}; if the webhook may not either, "
            f"it denies the deletion of every Namespace"
        )
        mend = f"add them to protection.groups, then knell role --cluster {self._cluster.name} | kubectl apply -f -"
        return [self._result(check, "warning", what, mend)]

    async def _may_list(self, group: str, resources: Iterable[Any]) -> bool:
        if await is_allowed(self._cluster, {"verb": "list", "group": group, "resource": "*"}):
            return True
        plurals = [one.served.plural for one in resources if one.served.group == group]
        for plural in plurals:
            if not await is_allowed(self._cluster, {"verb": "list", "group": group, "resource": plural}):
                return False
        return True

    def _result(self, check: str, state: CheckState, what: str, mend: str = "") -> CheckResult:
        return CheckResult(check=check, state=state, what=what, mend=mend, node=f"cluster {self._cluster.name}")


def _latest_end(bundle: bytes) -> datetime:
    """Raises ValueError if there is no certificate in it."""
    return max(one.not_valid_after_utc for one in x509.load_pem_x509_certificates(bundle))


class _SecretData(msgspec.Struct):
    data: dict[str, str] | None = None


def _keyed(secret: KubeObject) -> KeyedCertificate:
    try:
        data = msgspec.json.decode(secret.raw, type=_SecretData).data or {}
        values = [base64.b64decode(data.get(name, "")) for name in ("ca.crt", "tls.crt", "tls.key")]
    except (msgspec.DecodeError, ValueError):
        values = [b"", b"", b""]
    return KeyedCertificate(*values)
