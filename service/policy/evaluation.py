"""Evaluation of all policies to one decision on the external resources of an object.

Used by the planner, the consent check and the watcher. Order: pauses and moves, scope, protection (which has precedence
over the deletion policy), deletion policy, and the dry run last, so that it can name the decision without it.
"""

from collections.abc import Mapping

import msgspec

from service.policy.decisions import DefaultPolicy, PolicyDecision
from service.policy.deletion_policy import decide_deletion_policy
from service.policy.protection import decide_protection
from service.policy.scope import dry_run_decision, object_pause_decision, pause_decision, scope_decision
from service.policy.services import service_of
from service.settings.features import FeatureSettings
from service.settings.sources import PolicySettings, SourceSettings


class PolicyInput(msgspec.Struct, frozen=True, kw_only=True):
    """The object as it was just read, and the settings. `namespace` are the annotations of its Namespace, empty for a
    cluster-scoped object; `default` is what a source with a default of its own has read."""

    source: SourceSettings
    policy: PolicySettings
    features: FeatureSettings = FeatureSettings()
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    namespace: Mapping[str, str]
    default: DefaultPolicy | None = None

    @property
    def service(self) -> str:
        return service_of(self.source.resource.partition(".")[2], self.source.service)


def evaluate_policy(facts: PolicyInput) -> PolicyDecision:
    """Only `delete` allows a destructive call. `out-of-scope` does not mean that the finalizer may be removed: an
    object being deleted may have left the scope through changed settings."""
    service = facts.service
    for stop in (
        pause_decision(facts.policy, facts.source, facts.features),
        object_pause_decision(facts.annotations, facts.source),
        scope_decision(facts.annotations, facts.labels, facts.source),
        _protection(facts, service),
    ):
        if stop is not None:
            return stop
    meant = decide_deletion_policy(
        facts.annotations, facts.namespace, facts.policy, service, facts.source, default=facts.default
    )
    dry = dry_run_decision(facts.annotations, facts.namespace, facts.policy, facts.source)
    if meant.kind == "hold" or dry is None:
        return meant
    if dry.kind == "hold":
        return dry
    reason = f"{dry.reason}; without it: {meant.kind}, for {meant.reason}"
    return PolicyDecision("dry-run", reason, dry.mark, snapshot=meant.snapshot)


def _protection(facts: PolicyInput, service: str) -> PolicyDecision | None:
    found = decide_protection(facts.annotations, facts.namespace, service)
    return None if found.kind == "free" else found
