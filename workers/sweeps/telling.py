"""Publishes orphans as events, each once, and sees what became of those that were published before.
One that is there although its deletion is over is published anew, unless a person decided that it stays."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from service.contract import Event
from service.engine.endings import FINAL, endings
from service.engine.installation import Installation
from service.engine.orphans import Orphans, Sighting
from service.settings import AzureNodes
from workers.handlers.azure.collector import Sighted
from workers.handlers.azure.listing import Way
from workers.sweeps.candidates import Candidate


class Ripe(NamedTuple):
    """One that has been orphaned for long enough, and the uid that its deletion goes by."""

    uid: str
    claim: str
    one: Candidate


class Told(NamedTuple):
    """By uid, the state of its deletion: `added` where it is new. `stale` is how many the list still shows although
    their deletions are done: the list lags, or something came back."""

    states: dict[str, str]
    stale: int


class Telling:
    """Of one source, in one cluster."""

    def __init__(
        self, installation: Installation, orphans: Orphans, source: str, resource: str, nodes: Sequence[AzureNodes]
    ) -> None:
        self._installation, self._orphans = installation, orphans
        self._source, self._resource, self._nodes = source, resource, nodes

    def uid(self, claim: str, one: Candidate) -> str:
        """Of what has this name in this place: while one deletion of it is open there is no other."""
        nodes = self._nodes[one.place]
        return f"orphan.{nodes.subscription}.{nodes.resource_group}.{claim}".lower()

    async def open(self, ripe: Sequence[Ripe], sightings: Mapping[str, Sighting], cluster: str) -> set[str]:
        """The uids of those whose deletion is under way; nothing is told."""
        events = [self._event(one, sightings[one.uid], cluster, 0) for one in ripe]
        ended = await endings(self._installation, [event.deletion for event in events])
        return {
            event.uid for event, ending in zip(events, ended, strict=True) if ending.state and ending.state not in FINAL
        }

    async def tell(
        self, ripe: Sequence[Ripe], sightings: dict[str, Sighting], cluster: str, now: int, way: Way
    ) -> Told:
        """Sightings of those that get another round, or are left for good, are changed."""
        some = [one for one in ripe if not sightings[one.uid].left]
        events = {one.uid: self._event(one, sightings[one.uid], cluster, now) for one in some}
        if not events:
            return Told({}, 0)
        answers = await self._installation.publish(list(events.values()))
        states = {uid: answer.state for uid, answer in zip(events, answers, strict=True)}
        for one in some:
            if states[one.uid] == "added":
                sightings[one.uid] = replace(sightings[one.uid], told=one.one.ids)
        over = [one for one in some if states[one.uid] in FINAL]
        ended = await endings(self._installation, [events[one.uid].deletion for one in over])
        # Of an interface alone one is under way, and a machine has it by now: it waits for that machine, which needs a
        # deletion of its own.
        again = [
            one for one in some if states[one.uid] not in (*FINAL, "added") and one.one.is_news(sightings[one.uid].told)
        ]
        stale = 0
        for one, ending in zip(over, ended, strict=True):
            # Of another resource of the same name nothing was decided.
            same = not one.one.is_other(sightings[one.uid].told)
            if same and ending.kept:
                sightings[one.uid] = replace(sightings[one.uid], left=now)
            elif not same or way == "provider":
                again.append(one)
            stale += same and not ending.kept
        if again:
            states |= await self._again(again, sightings, cluster, now)
        return Told(states, stale)

    async def _again(
        self, over: Sequence[Ripe], sightings: dict[str, Sighting], cluster: str, now: int
    ) -> dict[str, str]:
        """It is there, although a deletion of that name is over: a new reason to act."""
        for one in over:
            seen = sightings[one.uid]
            sightings[one.uid] = replace(seen, round=seen.round + 1, told=one.one.ids)
        # Before it is published: a round that nobody knows would be published a second time.
        await self._orphans.keep({one.uid: sightings[one.uid] for one in over})
        answers = await self._installation.publish([self._event(one, sightings[one.uid], cluster, now) for one in over])
        return {one.uid: answer.state for one, answer in zip(over, answers, strict=True)}

    def _event(self, ripe: Ripe, seen: Sighting, cluster: str, now: int) -> Event:
        nodes = self._nodes[ripe.one.place]
        data = Sighted(
            subscription=nodes.subscription.lower(), group=nodes.resource_group.lower(), vm=ripe.one.vm,
            nic=ripe.one.nic, cluster=nodes.cluster,
        )  # fmt: skip
        return Event(
            cluster=cluster, resource=self._resource, uid=ripe.uid, name=ripe.claim, source=self._source,
            reason="orphan", round=seen.round, urgent=0, at=now, data=msgspec.json.encode(data).decode(),
        )  # fmt: skip
