"""Settings of the protection at the door: what is protected from deletion, and the webhook that denies it.

Without any of them the annotation `prevent-delete` still stops every destructive call of the workers."""

from collections.abc import Collection
from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from service.durations import Positive
from service.policy.selectors import InvalidSelector, parse_selector

_LONGEST_CALL = timedelta(seconds=30)
"""The API server waits no longer for a webhook."""


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The webhook denies deletions of Namespaces and CRDs with protected objects; policies can't, for they list
    nothing."""

    # While it is enabled and no replica answers, what it covers can't be deleted (failure_policy).
    enabled: bool = False
    # The API server connects from outside the pod.
    host: Annotated[str, msgspec.Meta(min_length=1)] = "0.0.0.0"  # noqa: S104
    # 0: any free port.
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9443
    # Also ask it about each protected object. What the admission policy denies does not reach it (protection.policy).
    objects: bool = False
    # Only Namespaces with these labels are covered. Empty: all but watch.namespace and kube-system.
    namespaces: str = ""
    # What the API server does while no replica answers: deny (Fail), or let everything pass (Ignore).
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    # How long the API server waits for an answer, in whole seconds.
    timeout: Positive = timedelta(seconds=10)
    # The Service in watch.namespace by which the API server reaches it.
    service: Annotated[str, msgspec.Meta(pattern=r"\A[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")] = "knell-webhook"
    # An address instead of the Service, such as https://knell.example.com:9443, for an API server outside the cluster.
    url: Annotated[str, msgspec.Meta(pattern=r"\A(https://[^/?#\s]+)?\Z", description="https://HOST[:PORT]")] = ""
    # Who makes its certificate: Knell itself, cert-manager, or a person who fills the Secret.
    certificate: Literal["self-made", "cert-manager", "secret"] = "self-made"
    # The Secret in watch.namespace with tls.crt and tls.key, and ca.crt.
    secret: Annotated[str, msgspec.Meta(min_length=1)] = "knell-webhook-tls"  # noqa: S105 - a name


class ProtectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # The cluster whose deletions are judged; optional where there is only one.
    cluster: str | None = None
    # API groups that are protected beside *.services.k8s.aws and the resources of the sources.
    groups: tuple[Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")], ...] = ()
    # An admission policy denies deletions of protected objects. It answers before the webhook is asked: with false the
    # webhook alone judges them, which posts an Event about each denial.
    policy: bool = True
    # Let only those who have the verb `unprotect` on a resource change its annotations of protection.
    restrict_marks: bool = False
    webhook: WebhookSettings = WebhookSettings()

    def contradictions(self, clusters: Collection[str]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if self.cluster is not None and self.cluster not in clusters:
            known = ", ".join(sorted(clusters)) or "none"
            found.append(("protection.cluster", f"{self.cluster!r} is not among clusters ({known})"))
        if self.webhook.enabled and self.cluster is None and len(clusters) != 1:
            found.append(("protection.cluster", "must be given, for there is not exactly one under clusters"))
        if not self.policy and not (self.webhook.enabled and self.webhook.objects):
            needed = "protection.webhook.enabled and protection.webhook.objects"
            found.append(
                ("protection.policy", f"false needs {needed}, or nothing denies deletions of protected objects")
            )
        if self.webhook.timeout > _LONGEST_CALL or self.webhook.timeout.total_seconds() % 1:
            found.append(("protection.webhook.timeout", "must be whole seconds, 1s to 30s"))
        if self.webhook.enabled and not self.webhook.port and not self.webhook.url:
            found.append(("protection.webhook.port", "must be given, for the Service leads to it; 0 only with a url"))
        try:
            parse_selector(self.webhook.namespaces, "namespaces")
        except InvalidSelector as error:
            found.append(("protection.webhook.namespaces", str(error).partition(": ")[2]))
        return found
