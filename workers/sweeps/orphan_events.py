"""Publisher of orphans as events, each once, with backpressure.
An orphan that still exists after its deletion ended is published again, unless it was kept on purpose."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from service.contract import Event
from service.engine.installation import Installation
from service.engine.orphans import OrphanSighting, OrphanSightings
from service.engine.outcomes import FINAL, deletion_outcomes
from workers.handlers.orphans import OrphanCandidate, OrphanFinder

MOST_UNPLANNED: Final = 100
"""Most unplanned events in the streams when a sweep adds more. Events are planned in order, so urgent ones must not
queue behind thousands of orphans."""

PATIENCE: Final = timedelta(seconds=10)
_LOOK: Final = 0.1


class DueOrphan(NamedTuple):
    """An orphan whose waiting period is over, and the uid of its deletion."""

    uid: str
    owner: str
    one: OrphanCandidate


class PublishResult(NamedTuple):
    """State of the deletion by uid; `added` if it is new. `stale` counts orphans that the list still shows although
    their deletions are done: the list lags, or the resource was created again."""

    states: dict[str, str]
    stale: int


class OrphanPublisher:
    """Publishes orphans of one source."""

    def __init__(
        self,
        installation: Installation,
        orphans: OrphanSightings,
        finder: OrphanFinder,
        source: str,
        resource: str,
    ) -> None:
        self._installation, self._orphans, self._finder = installation, orphans, finder
        self._source, self._resource = source, resource
        self._fronts = [f"orphan.{place.name.replace('/', '.')}." for place in finder.places(source)]

    def uid(self, owner: str, one: OrphanCandidate) -> str:
        """Made of the place and the owner's name, so that there is only one open deletion for both."""
        return f"{self._fronts[one.place]}{owner}".lower()

    async def open_deletions(
        self, due: Sequence[DueOrphan], sightings: Mapping[str, OrphanSighting], cluster: str
    ) -> set[str]:
        """Uids of those with an open deletion; publishes nothing."""
        events = [self._event(one, sightings[one.uid], cluster, 0) for one in due]
        ended = await deletion_outcomes(self._installation, [event.deletion for event in events])
        return {
            event.uid for event, ending in zip(events, ended, strict=True) if ending.state and ending.state not in FINAL
        }

    async def publish(
        self,
        due: Sequence[DueOrphan],
        sightings: dict[str, OrphanSighting],
        cluster: str,
        now: int,
        *,
        current: bool,
    ) -> PublishResult:
        """Updates the sightings of those that are published again or kept. With a `current` list, a resource whose
        deletion is done exists again; otherwise the list may lag."""
        some = [one for one in due if not sightings[one.uid].left]
        events = {one.uid: self._event(one, sightings[one.uid], cluster, now) for one in some}
        if not events:
            return PublishResult({}, 0)
        answers = await self._installation.publish(list(events.values()))
        states = {uid: answer.state for uid, answer in zip(events, answers, strict=True)}
        for one in some:
            if states[one.uid] == "added":
                sightings[one.uid] = replace(sightings[one.uid], told=one.one.ids)
        over = [one for one in some if states[one.uid] in FINAL]
        ended = await deletion_outcomes(self._installation, [events[one.uid].deletion for one in over])
        # The open deletion is about a part alone, which may wait for the rest: that needs a deletion of its own.
        again = [
            one
            for one in some
            if states[one.uid] not in (*FINAL, "added") and self._finder.has_more(sightings[one.uid].told, one.one.ids)
        ]
        stale = 0
        for one, ending in zip(over, ended, strict=True):
            # A decision to keep does not apply to another resource of the same name.
            same = not self._finder.is_other(sightings[one.uid].told, one.one.ids)
            if same and ending.kept:
                sightings[one.uid] = replace(sightings[one.uid], left=now)
            elif not same or current:
                again.append(one)
            stale += same and not ending.kept
        if again:
            states |= await self._again(again, sightings, cluster, now)
        return PublishResult(states, stale)

    async def _again(
        self, over: Sequence[DueOrphan], sightings: dict[str, OrphanSighting], cluster: str, now: int
    ) -> dict[str, str]:
        """Publishes resources that exist although a deletion of that name has ended."""
        for one in over:
            seen = sightings[one.uid]
            sightings[one.uid] = replace(seen, round=seen.round + 1, told=one.one.ids)
        # Saved before it is published: otherwise a crash would publish the same round twice.
        await self._orphans.save({one.uid: sightings[one.uid] for one in over})
        answers = await self._installation.publish([self._event(one, sightings[one.uid], cluster, now) for one in over])
        return {one.uid: answer.state for one, answer in zip(over, answers, strict=True)}

    def _event(self, due: DueOrphan, seen: OrphanSighting, cluster: str, now: int) -> Event:
        return Event(
            cluster=cluster, resource=self._resource, uid=due.uid, name=due.owner, source=self._source,
            reason="orphan", round=seen.round, urgent=0, at=now, data=self._finder.event_data(self._source, due.one),
        )  # fmt: skip


class PublishBackpressure:
    """Limits how many unplanned events one pass may add."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._full = False

    async def has_room(self) -> bool:
        """Waits for room for a while. After a timeout it stays false for the rest of the pass; the next pass
        continues."""
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while not self._full and await self._unplanned() > MOST_UNPLANNED:
            self._full = time.monotonic() > deadline
            await asyncio.sleep(_LOOK)
        return not self._full

    async def _unplanned(self) -> int:
        """An event stays in the stream until it is planned."""
        lengths = [await shard.caller.command("XLEN", f"{shard.stem}events") for shard in self._installation.shards]
        return sum(map(int, lengths))
