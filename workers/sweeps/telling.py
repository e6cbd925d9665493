"""Publishes orphans as events, each once, and sees what became of those that were published before.
One that is there although its deletion is over is published anew, unless a person decided that it stays."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from service.contract import Event
from service.settings import AzureNodes
from service.stream.installation import Installation
from service.stream.orphans import Orphans, Sighting
from workers.handlers.azure.collector import Sighted
from workers.handlers.azure.listing import Way
from workers.sweeps.candidates import Candidate

FINAL: Final = frozenset({"done", "dropped"})
_FIELDS: Final = ("state", "withdrawn", "abandoned", "given_up")


class Ripe(NamedTuple):
    """One that has been orphaned for long enough."""

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

    async def tell(
        self, ripe: Sequence[Ripe], sightings: dict[str, Sighting], cluster: str, now: int, way: Way
    ) -> Told:
        """Sightings of those that get another round, or are left for good, are changed."""
        events = [
            self._event(claim, one, sightings[one.uid], cluster, now)
            for claim, one in ripe
            if not sightings[one.uid].left
        ]
        if not events:
            return Told({}, 0)
        answers = await self._installation.publish(events)
        states = {event.uid: answer.state for event, answer in zip(events, answers, strict=True)}
        over = [event for event in events if states[event.uid] in FINAL]
        decided = await self._decided(over)
        for uid in decided:
            sightings[uid] = msgspec.structs.replace(sightings[uid], left=True)
        rest = [event for event in over if event.uid not in decided]
        if rest and way == "provider":
            states |= await self._again(rest, sightings)
        return Told(states, len(rest))

    async def _again(self, over: Sequence[Event], sightings: dict[str, Sighting]) -> dict[str, str]:
        """It is there by a fresh list, although its deletion is over: a new reason to act."""
        nexts = [msgspec.structs.replace(event, round=event.round + 1) for event in over]
        for event in nexts:
            sightings[event.uid] = msgspec.structs.replace(sightings[event.uid], round=event.round)
        # Before it is published: a round that nobody knows would be published a second time.
        await self._orphans.keep({event.uid: sightings[event.uid] for event in nexts})
        answers = await self._installation.publish(nexts)
        return {event.uid: answer.state for event, answer in zip(nexts, answers, strict=True)}

    async def _decided(self, over: Sequence[Event]) -> set[str]:
        """Those that a person gave up, or that were found to be somebody else's: they are not brought up again."""
        decided: set[str] = set()
        for event in over:
            shard = self._installation.shards[self._installation.keys.shard_of(event.deletion)]
            ((state, withdrawn, abandoned, given_up),) = await shard.recall([event.deletion], _FIELDS)
            # Withdrawn by us: something spoke for it then, and nothing does now.
            if not withdrawn and (state == "dropped" or abandoned or given_up):
                decided.add(event.uid)
        return decided

    def _event(self, claim: str, one: Candidate, seen: Sighting, cluster: str, now: int) -> Event:
        nodes = self._nodes[one.place]
        data = Sighted(
            subscription=nodes.subscription.lower(), group=nodes.resource_group.lower(), vm=one.vm, nic=one.nic,
            cluster=nodes.cluster,
        )  # fmt: skip
        return Event(
            cluster=cluster, resource=self._resource, uid=one.uid, name=claim, source=self._source,
            reason="orphan", round=seen.round, urgent=0, at=now, data=msgspec.json.encode(data).decode(),
        )  # fmt: skip
