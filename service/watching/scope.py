"""Scope of a source: which objects it includes, and whether a live one gets or loses our finalizer. It does no I/O.
Several sources may share a resource and a finalizer, so an object out of one scope may be in another."""

import hashlib
from typing import Literal

import msgspec

from service.kubernetes import KubeObject
from service.kubernetes.finalizers import has_finalizer
from service.policy.annotations import AnnotationValue
from service.policy.decisions import PolicyDecision
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.policy.scope import dry_run_decision, gc_switch, object_pause_decision, pause_decision, scope_decision
from service.policy.selectors import parse_selector
from service.settings import Settings, SourceSettings
from service.sources.registry import known_finalizers, source_named
from service.watching.assignment import Assignment

FinalizerAction = Literal["add", "remove", "keep"]


def scope_hash(name: str, settings: SourceSettings, cluster_uid: str) -> str:
    """Changes when the inventory no longer fits what is watched."""
    parts = [name, settings.resource, settings.selector, sorted(settings.namespaces), settings.mode, cluster_uid]
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()


def has_any_finalizer(seen: KubeObject) -> bool:
    """Whether it has any of our finalizers, that of this source or of another collector."""
    return has_finalizer(seen, *known_finalizers())


class SourceScope:
    def __init__(self, assignment: Assignment) -> None:
        self._assignment, self._source = assignment, assignment.settings
        self._policy, self._features = assignment.policy, assignment.installation.settings.features
        self._finalizer = assignment.declaration.finalizer
        self._others = _sources_sharing_finalizer(
            assignment.name, assignment.settings, assignment.installation.settings
        )
        self.hash = scope_hash(assignment.name, assignment.settings, assignment.cluster_uid)

    def has_own_finalizer(self, seen: KubeObject) -> bool:
        """Whether it has the finalizer of this source's collector."""
        return has_finalizer(seen, self._finalizer)

    def includes(self, seen: KubeObject) -> bool:
        """Whether it is in scope. An opt-in or opt-out with an unknown value leaves it in, because leaving the scope
        removes the finalizer."""
        return _is_in_scope(self._source, seen)

    def is_ours_to_publish(self, seen: KubeObject) -> bool:
        """Whether this source publishes its deletion. An object with our finalizer in no scope is published by every
        source."""
        return self.includes(seen) or not self._is_in_other_scope(seen)

    def is_stray(self, seen: KubeObject) -> bool:
        """Whether it has our finalizer and is in no source's scope."""
        return self.has_own_finalizer(seen) and not self.includes(seen) and not self._is_in_other_scope(seen)

    def is_collected(self, seen: KubeObject) -> bool:
        """Whether its deletion is carried out: it is in scope, and newer than the source unless existing objects are
        adopted."""
        return self.includes(seen) and self._is_new(seen)

    def keep_reason(self, seen: KubeObject) -> str:
        """Why its resources are to be kept, by its own annotations; empty if they don't say so. For sources that are
        swept: the sweep must know of objects that are not collected."""
        known = PolicyInput(
            source=self._source, policy=self._policy, features=self._features, labels=seen.labels,
            annotations=seen.annotations, namespace={},
        )  # fmt: skip
        found = evaluate_policy(known)
        return f"{found.kind}: {found.reason}" if found.kind != "delete" and found.mark else ""

    def needs_finalizer(self, seen: KubeObject) -> bool:
        """Whether it should have our finalizer. Not with an unknown annotation value, nor while it is moved."""
        return (
            self._source.mode == "finalizer"
            and self.is_collected(seen)
            and scope_decision(seen.annotations, seen.labels, self._source) is None
            and object_pause_decision(seen.annotations, self._source) is None
            and self._stopped() is None
            and dry_run_decision(seen.annotations, {}, self._policy, self._source) is None
        )

    def finalizer_action(self, seen: KubeObject) -> FinalizerAction:
        """What to do with our finalizer on a live object. Annotations of its Namespace may still forbid to add it."""
        if seen.going or self._stopped() is not None:
            return "keep"
        if self.has_own_finalizer(seen):
            # In observe mode the finalizer is from a time when the source had finalizer mode.
            kept = self._source.mode == "finalizer" and self.includes(seen)
            return "keep" if kept or self._is_in_other_scope(seen) else "remove"
        return "add" if self.needs_finalizer(seen) else "keep"

    def _stopped(self) -> PolicyDecision | None:
        return pause_decision(self._policy, self._source, self._features)

    def _is_new(self, seen: KubeObject) -> bool:
        said = gc_switch(seen.annotations, self._source)
        if self._source.adopt_existing or (isinstance(said, AnnotationValue) and said.word == "enabled"):
            return True
        # creationTimestamp has whole seconds: an object of the same second counts as new.
        return seen.created + 999 >= self._assignment.enabled_at

    def _is_in_other_scope(self, seen: KubeObject) -> bool:
        return any(_is_in_scope(other, seen) for other in self._others)


def _is_in_scope(source: SourceSettings, seen: KubeObject) -> bool:
    if source.namespaces and seen.namespace not in source.namespaces:
        return False
    if not parse_selector(source.selector).matches(seen.labels):
        return False
    why = scope_decision(seen.annotations, seen.labels, source)
    return why is None or why.kind == "hold"


def _sources_sharing_finalizer(name: str, own: SourceSettings, settings: Settings) -> list[SourceSettings]:
    """Other sources of the same resource in the same cluster that use the same finalizer."""

    def where(source: SourceSettings) -> str | None:
        return source.cluster or next(iter(settings.clusters), None)

    return [
        other
        for known, other in settings.sources.items()
        if known != name
        and other.resource == own.resource
        and other.mode == "finalizer"
        and source_named(other.collector).finalizer == source_named(own.collector).finalizer
        and where(other) == where(own)
    ]
