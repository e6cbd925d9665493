"""How long each orphan has been one, and what becomes of it: it waits, is told, or stays by somebody's decision.
Whatever is seen for the first time, or with other ids than before, has to wait."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from service.engine.orphans import Begun, Orphans, Sighting
from workers.handlers.azure.listing import Way
from workers.sweeps.candidates import Candidate
from workers.sweeps.telling import Ripe, Telling, Told

Becomes = Literal["waits", "told", "known", "left", "doubted", "stays", "would be told"]


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """One that has no owner. `becomes` says what this pass did with it: `doubted` is a machine in a group in which no
    Node of this cluster runs, `stays` is what policy keeps."""

    claim: str
    uid: str
    place: int
    machine: bool
    first: int
    passes: int
    becomes: Becomes


class Part(msgspec.Struct, frozen=True):
    """What became of some of a pass's orphans."""

    orphans: list[Orphan]
    told: int
    known: int
    stale: int


class Ripening:
    """Of one pass. `at_home` are the places that are proven to be this cluster's; without `writes` nothing is kept."""

    def __init__(
        self, orphans: Orphans, telling: Telling, begun: Begun, cluster: str, age: timedelta, *, writes: bool
    ) -> None:
        self._orphans, self._telling, self._begun, self._cluster = orphans, telling, begun, cluster
        self._age, self._writes = age / timedelta(milliseconds=1), writes

    async def judge(
        self, part: Sequence[tuple[str, Candidate]], way: Way, at_home: set[int], *, acts: bool, policy: bool
    ) -> Part:
        uids = [self._telling.uid(claim, one) for claim, one in part]
        known = await self._orphans.recall(uids)
        sightings = {uid: self._seen(known.get(uid), one) for uid, (_, one) in zip(uids, part, strict=True)}
        due = [
            Ripe(uid, claim, one) for uid, (claim, one) in zip(uids, part, strict=True) if self._is_ripe(sightings[uid])
        ]
        ripe = [one for one in due if not one.one.vm or one.one.place in at_home]
        if acts:
            told = await self._telling.tell(ripe, sightings, self._cluster, self._begun.now, way)
        else:
            under_way = await self._telling.open(ripe, sightings, self._cluster)
            told = Told(dict.fromkeys(under_way, "known"), 0)
        if self._writes:
            await self._orphans.keep(sightings)
        becoming = {one.uid: self._becomes(one, sightings[one.uid], told, at_home, policy=policy) for one in due}
        orphans = [
            Orphan(
                claim=claim, uid=uid, place=one.place, machine=bool(one.vm), first=sightings[uid].first,
                passes=sightings[uid].passes, becomes=becoming.get(uid, "waits"),
            )
            for uid, (claim, one) in zip(uids, part, strict=True)
        ]  # fmt: skip
        new = sum(state == "added" for state in told.states.values())
        return Part(orphans, new, len(told.states) - new, told.stale)

    def _seen(self, before: Sighting | None, one: Candidate) -> Sighting:
        number, now = self._begun
        if before is None:
            return Sighting(first=now, last=number, ids=one.ids)
        if before.ids != one.ids or before.first > now:
            # Another resource has that name by now, or a part of it, or the server's clock went back. Of another one
            # nothing was decided.
            left = 0 if one.is_other(before.ids) else before.left
            return replace(before, first=now, last=number, passes=1, ids=one.ids, left=left)
        # A pass that was made anew for another list is the same pass.
        return replace(before, last=number, passes=before.passes + (before.last != number))

    def _is_ripe(self, seen: Sighting) -> bool:
        # A rehearsal is a pass, too, that only is not written down.
        return seen.passes >= 2 and self._begun.now - seen.first >= self._age

    def _becomes(self, one: Ripe, seen: Sighting, told: Told, at_home: set[int], *, policy: bool) -> Becomes:
        if seen.left:
            return "left"
        if one.uid in told.states:
            return "told" if told.states[one.uid] == "added" else "known"
        if one.one.vm and one.one.place not in at_home:
            return "doubted"
        if not policy:
            return "stays"
        return "waits" if self._writes else "would be told"
