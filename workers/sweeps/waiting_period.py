"""Waiting period of orphans: each must be seen in two passes and for a minimum time before it is published.
The period starts again when an orphan is seen with other ids."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from service.engine.orphans import OrphanSighting, OrphanSightings, PassStart
from workers.handlers.orphans import OrphanCandidate, OrphanFinder
from workers.sweeps.orphan_events import DueOrphan, OrphanPublisher, PublishResult

Becomes = Literal["waits", "told", "known", "left", "doubted", "stays", "would be told"]


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """Resources without an owner, whose name is `owner`. `becomes` is what this pass did with them: `told` was
    published, `doubted` is in a place that is not proven to be this cluster's, `stays` is kept by policy, `left` by an
    operator's decision."""

    owner: str
    uid: str
    place: int
    ids: str
    first: int
    passes: int
    becomes: Becomes


class BatchResult(msgspec.Struct, frozen=True):
    """Result for a batch of candidates."""

    orphans: list[Orphan]
    published: int
    known: int
    stale: int


class WaitingPeriod:
    """Waiting periods of one pass. `proven` are the places proven to be this cluster's; without `writes` nothing is
    stored."""

    def __init__(
        self,
        orphans: OrphanSightings,
        publisher: OrphanPublisher,
        finder: OrphanFinder,
        begun: PassStart,
        cluster: str,
        age: timedelta,
        *,
        writes: bool,
    ) -> None:
        self._orphans, self._publisher, self._finder = orphans, publisher, finder
        self._begun, self._cluster = begun, cluster
        self._age, self._writes = age / timedelta(milliseconds=1), writes

    async def process_batch(
        self,
        part: Sequence[tuple[str, OrphanCandidate]],
        proven: set[int],
        *,
        current: bool,
        acts: bool,
        policy: bool,
    ) -> BatchResult:
        uids = [self._publisher.uid(owner, one) for owner, one in part]
        known = await self._orphans.get_many(uids)
        sightings = {uid: self._seen(known.get(uid), one) for uid, (_, one) in zip(uids, part, strict=True)}
        due = [
            DueOrphan(uid, owner, one)
            for uid, (owner, one) in zip(uids, part, strict=True)
            if self._is_due(sightings[uid])
        ]
        publishable = [one for one in due if self._is_proven(one.one, proven)]
        if acts:
            published = await self._publisher.publish(
                publishable, sightings, self._cluster, self._begun.now, current=current
            )
        else:
            under_way = await self._publisher.open_deletions(publishable, sightings, self._cluster)
            published = PublishResult(dict.fromkeys(under_way, "known"), 0)
        if self._writes:
            await self._orphans.save(sightings)
        becoming = {one.uid: self._becomes(one, sightings[one.uid], published, proven, policy=policy) for one in due}
        orphans = [
            Orphan(
                owner=owner, uid=uid, place=one.place, ids=one.ids, first=sightings[uid].first,
                passes=sightings[uid].passes, becomes=becoming.get(uid, "waits"),
            )
            for uid, (owner, one) in zip(uids, part, strict=True)
        ]  # fmt: skip
        new = sum(state == "added" for state in published.states.values())
        return BatchResult(orphans, new, len(published.states) - new, published.stale)

    def _seen(self, before: OrphanSighting | None, one: OrphanCandidate) -> OrphanSighting:
        number, now = self._begun
        if before is None:
            return OrphanSighting(first=now, last=number, ids=one.ids)
        if before.ids != one.ids or before.first > now:
            # Another resource has that name now, or only a part of the old one is left, or the server's clock went
            # back. A decision to keep does not apply to another resource.
            left = 0 if self._finder.is_other(before.ids, one.ids) else before.left
            return replace(before, first=now, last=number, passes=1, ids=one.ids, left=left)
        # A pass that is repeated with the other listing method counts once.
        return replace(before, last=number, passes=before.passes + (before.last != number))

    def _is_due(self, seen: OrphanSighting) -> bool:
        # A dry run counts as a pass, although it is not stored.
        return seen.passes >= 2 and self._begun.now - seen.first >= self._age

    def _is_proven(self, one: OrphanCandidate, proven: set[int]) -> bool:
        return one.place in proven or not self._finder.needs_proof(one.ids)

    def _becomes(
        self,
        one: DueOrphan,
        seen: OrphanSighting,
        published: PublishResult,
        proven: set[int],
        *,
        policy: bool,
    ) -> Becomes:
        if seen.left:
            return "left"
        if one.uid in published.states:
            return "told" if published.states[one.uid] == "added" else "known"
        if not self._is_proven(one.one, proven):
            return "doubted"
        if not policy:
            return "stays"
        return "waits" if self._writes else "would be told"
