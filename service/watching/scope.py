"""Which objects a source is about, and what is to be done with a live one: pure, from settings and what was seen.
Several sources may share a resource and a finalizer, so what one leaves alone another may claim."""

import hashlib
from typing import Literal

import msgspec

from service.contract.traits import FINALIZERS, traits_of
from service.kubernetes import Seen
from service.kubernetes.finalizers import marked
from service.policy.annotations import Said
from service.policy.decisions import Decision
from service.policy.scope import dry_run, outside, still, stopped, switched
from service.policy.selectors import parse
from service.policy.verdict import Facts as PolicyFacts
from service.policy.verdict import verdict_of
from service.settings import Settings, SourceSettings
from service.watching.assignment import Assignment

Standing = Literal["mark", "unmark", "leave"]


def scope_hash(name: str, settings: SourceSettings, cluster_uid: str) -> str:
    """Another one means that the inventory was made for something else."""
    parts = [name, settings.resource, settings.selector, sorted(settings.namespaces), settings.mode, cluster_uid]
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()


def has_any(seen: Seen) -> bool:
    """Whether it has a finalizer of ours, be it this source's or that of another collector."""
    return marked(seen, *FINALIZERS)


class Scope:
    def __init__(self, assignment: Assignment) -> None:
        self._assignment, self._source = assignment, assignment.settings
        self._policy, self._features = assignment.policy, assignment.installation.settings.features
        self._finalizer = assignment.traits.finalizer
        self._others = _siblings(assignment.name, assignment.settings, assignment.installation.settings)
        self.hash = scope_hash(assignment.name, assignment.settings, assignment.cluster_uid)

    def has_ours(self, seen: Seen) -> bool:
        """Whether it has the finalizer of this source."""
        return marked(seen, self._finalizer)

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
        return self.has_ours(seen) and not self.includes(seen) and not self._claimed_elsewhere(seen)

    def is_collected(self, seen: Seen) -> bool:
        """Whether its deletion concerns us: in scope, and not older than the source unless that was asked for."""
        return self.includes(seen) and self._is_new(seen)

    def spares(self, seen: Seen) -> str:
        """Why what it owns is to stay, by its own marks; empty where they don't say so. It is for a source that is
        swept: what is not collected is not forgotten for all that."""
        known = PolicyFacts(
            source=self._source, policy=self._policy, features=self._features, labels=seen.labels,
            annotations=seen.annotations, namespace={},
        )  # fmt: skip
        found = verdict_of(known)
        return f"{found.kind}: {found.reason}" if found.kind != "delete" and found.mark else ""

    def misses(self, seen: Seen) -> bool:
        """Whether it should have our finalizer. Not with a mark on it that nobody understands, nor while it moves."""
        return (
            self._source.mode == "finalizer"
            and self.is_collected(seen)
            and outside(seen.annotations, seen.labels, self._source) is None
            and still(seen.annotations, self._source) is None
            and self._stopped() is None
            and dry_run(seen.annotations, {}, self._policy, self._source) is None
        )

    def standing(self, seen: Seen) -> Standing:
        """What a live object's finalizer needs. Its Namespace may still stand in the way of a mark."""
        if seen.going or self._stopped() is not None:
            return "leave"
        if self.has_ours(seen):
            # A source that observes puts no finalizer on: then ours is from a time when it did.
            kept = self._source.mode == "finalizer" and self.includes(seen)
            return "leave" if kept or self._claimed_elsewhere(seen) else "unmark"
        return "mark" if self.misses(seen) else "leave"

    def _stopped(self) -> Decision | None:
        return stopped(self._policy, self._source, self._features)

    def _is_new(self, seen: Seen) -> bool:
        said = switched(seen.annotations, self._source)
        if self._source.adopt_existing or (isinstance(said, Said) and said.word == "enabled"):
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
    """Other sources of the same resource in the same cluster that use the same finalizer."""

    def where(source: SourceSettings) -> str | None:
        return source.cluster or next(iter(settings.clusters), None)

    return [
        other
        for known, other in settings.sources.items()
        if known != name
        and other.resource == own.resource
        and other.mode == "finalizer"
        and traits_of(other.collector).finalizer == traits_of(own.collector).finalizer
        and where(other) == where(own)
    ]
