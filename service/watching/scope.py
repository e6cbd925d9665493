"""Which objects a source is about, and what is to be done with a live one: pure, from settings and what was seen.
Several sources may share a resource and its one finalizer, so what one leaves alone another may claim."""

import hashlib
from typing import Literal

import msgspec

from service.cluster import Seen
from service.contract.names import FINALIZER, GC
from service.policy.scope import dry_run, outside, paused
from service.policy.selectors import parse
from service.settings import Settings, SourceSettings
from service.watching.assignment import Assignment

Standing = Literal["mark", "unmark", "leave"]


def scope_hash(name: str, settings: SourceSettings, cluster_uid: str) -> str:
    """Another one means that the inventory was made for something else."""
    parts = [name, settings.resource, settings.selector, sorted(settings.namespaces), settings.mode, cluster_uid]
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()


def has_ours(seen: Seen) -> bool:
    return FINALIZER in seen.finalizers


class Scope:
    def __init__(self, assignment: Assignment) -> None:
        self._assignment, self._source = assignment, assignment.settings
        self._policy = assignment.policy
        self._others = _siblings(assignment.name, assignment.settings, assignment.installation.settings)
        self.hash = scope_hash(assignment.name, assignment.settings, assignment.cluster_uid)

    def is_here(self, seen: Seen) -> bool:
        """Whether this run is to look at it at all."""
        return self._assignment.share(seen.namespace)

    def includes(self, seen: Seen) -> bool:
        """In scope; a mark that nobody understands keeps it there, for leaving it would let it go."""
        return _claims(self._source, seen)

    def is_ours_to_publish(self, seen: Seen) -> bool:
        """One with our finalizer always has somebody who publishes it: what is nobody's by now is everybody's."""
        return self.includes(seen) or not self._claimed_elsewhere(seen)

    def is_stray(self, seen: Seen) -> bool:
        """Whether it has our finalizer and is nobody's."""
        return has_ours(seen) and not self.includes(seen) and not self._claimed_elsewhere(seen)

    def is_collected(self, seen: Seen) -> bool:
        """Whether its deletion concerns us: in scope, and not older than the source unless that was asked for."""
        return self.includes(seen) and self._is_new(seen)

    def misses(self, seen: Seen) -> bool:
        """Whether it should have our finalizer. Not with a mark on it that nobody understands."""
        return (
            self._source.mode == "finalizer"
            and self.is_collected(seen)
            and outside(seen.annotations, seen.labels, self._source) is None
            and paused(self._policy, self._source) is None
            and dry_run(seen.annotations, {}, self._policy, self._source) is None
        )

    def standing(self, seen: Seen) -> Standing:
        """What a live object's finalizer needs. Its Namespace may still stand in the way of a mark."""
        if seen.going or paused(self._policy, self._source) is not None:
            return "leave"
        if has_ours(seen):
            # A source that observes puts no finalizer on: then ours is from a time when it did.
            kept = self._source.mode == "finalizer" and self.includes(seen)
            return "leave" if kept or self._claimed_elsewhere(seen) else "unmark"
        return "mark" if self.misses(seen) else "leave"

    def _is_new(self, seen: Seen) -> bool:
        if self._source.adopt_existing or seen.annotations.get(GC, "").strip().lower() == "enabled":
            return True
        # Objects carry whole seconds: one of the same second counts as new.
        return seen.created + 999 >= self._assignment.enabled_at

    def _claimed_elsewhere(self, seen: Seen) -> bool:
        return any(_claims(other, seen) for other in self._others)


def _claims(source: SourceSettings, seen: Seen) -> bool:
    if source.namespaces and seen.namespace not in source.namespaces:
        return False
    if not parse(source.selector).matches(seen.labels):
        return False
    why = outside(seen.annotations, seen.labels, source)
    return why is None or why.kind == "hold"


def _siblings(name: str, own: SourceSettings, settings: Settings) -> list[SourceSettings]:
    """Other sources of the same resource in the same cluster that use the finalizer."""

    def where(source: SourceSettings) -> str | None:
        return source.cluster or next(iter(settings.clusters), None)

    return [
        other
        for known, other in settings.sources.items()
        if known != name and other.resource == own.resource and other.mode == "finalizer" and where(other) == where(own)
    ]
