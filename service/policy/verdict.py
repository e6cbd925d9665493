"""The one question that planner, gate and watcher ask: what is to become of what this object owned?

Pauses come first, for they stop everything, and what moves elsewhere; then scope; then protection, which holds whatever
the deletion policy says; a dry run comes last, so that it can tell what would be done without it.
"""

from collections.abc import Mapping

import msgspec

from service.policy.decisions import Decision
from service.policy.deletion import decide
from service.policy.protection import protected
from service.policy.scope import dry_run, outside, still, stopped
from service.policy.services import service_of
from service.settings.aws import FeatureSettings
from service.settings.sources import PolicySettings, SourceSettings


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What policy goes by: the object as it was read just now, and the settings. `namespace` are the annotations
    of the object's Namespace, none for an object that has none."""

    source: SourceSettings
    policy: PolicySettings
    features: FeatureSettings = FeatureSettings()
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    namespace: Mapping[str, str]

    @property
    def service(self) -> str:
        return service_of(self.source.resource.partition(".")[2], self.source.service)


def verdict_of(facts: Facts) -> Decision:
    """Only `delete` allows a destructive call. `out-of-scope` says nothing about releasing: an object that is going
    and has our finalizer may have left the scope by a change of settings, which is never a reason to let it go."""
    service = facts.service
    for stop in (
        stopped(facts.policy, facts.source, facts.features),
        still(facts.annotations, facts.source),
        outside(facts.annotations, facts.labels, facts.source),
        _protection(facts, service),
    ):
        if stop is not None:
            return stop
    meant = decide(facts.annotations, facts.namespace, facts.policy, service, facts.source)
    dry = dry_run(facts.annotations, facts.namespace, facts.policy, facts.source)
    if meant.kind == "hold" or dry is None:
        return meant
    if dry.kind == "hold":
        return dry
    return Decision("dry-run", f"{dry.reason}; without it: {meant.kind}, for {meant.reason}", dry.mark)


def _protection(facts: Facts, service: str) -> Decision | None:
    found = protected(facts.annotations, facts.namespace, service)
    return None if found.kind == "free" else found
