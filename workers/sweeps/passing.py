"""One pass of a sweep: list what might be orphaned, then every sign of life, and tell what has been orphaned for long.
A list that is not whole ends the pass without a word about anything."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Literal

import msgspec
import structlog

from service.cluster import Served, Unreadable
from service.policy.decisions import Decision
from service.policy.verdict import Facts as PolicyFacts
from service.policy.verdict import verdict_of
from service.settings import Settings
from service.stream.installation import Installation
from service.stream.inventory import Inventory
from service.stream.orphans import STEP, Begun, Orphans, Sighting
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.listing import Lister, Way
from workers.handlers.places import Place, Places
from workers.judging.inspection import chooses
from workers.sweeps.candidates import Candidate, Candidates, of_no_use
from workers.sweeps.pacing import Pacing
from workers.sweeps.telling import Ripe, Telling, Told

log = structlog.get_logger(__name__)
Progress = Callable[[str, int], None]
Becomes = Literal["waits", "told", "known", "left", "would be told"]


class NoPass(Exception):
    """Nothing was found out, and nothing was changed; the message says why and what to do."""


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """One that has no owner. `becomes` says what this pass did with it."""

    claim: str
    uid: str
    subscription: str
    group: str
    machine: bool
    first: int
    passes: int
    becomes: Becomes


@dataclass(slots=True)
class Swept:
    """What a pass found. `orphans` are only kept for who asks for them; `told` were published for the first time."""

    source: str
    way: Way
    decision: Decision
    listed: int = 0
    claims: int = 0
    found: int = 0
    told: int = 0
    known: int = 0
    stale: int = 0
    orphans: list[Orphan] = field(default_factory=list)


def _silent(words: str, count: int) -> None:
    del words, count


class Pass:
    """Of one source. With `rehearse` nothing is written and nothing told; `shown` keeps the orphans for who asks."""

    def __init__(
        self,
        settings: Settings,
        installation: Installation,
        places: Places,
        lister: Lister,
        source: str,
        *,
        rehearse: bool = False,
        shown: bool = False,
        progress: Progress = _silent,
    ) -> None:
        self._settings, self._installation, self._places, self._lister = settings, installation, places, lister
        self._source, self._rehearse, self._shown, self._progress = source, rehearse, shown or rehearse, progress
        self._declared = settings.sources[source]
        self._nodes = settings.azure.nodes.get(source, ())
        self._orphans, self._inventory = Orphans(installation, source), Inventory(installation, source)
        self._telling = Telling(installation, self._orphans, source, self._declared.resource, self._nodes)

    async def run(self) -> Swept:
        """Raises NoPass, AzureError or ClusterError."""
        place = self._place()
        decision = self._decision()
        way = self._settings.azure.sweep.listing
        begun = await self._orphans.begin() if not self._rehearse else Begun(0, await self._orphans.now())
        swept = await self._by(way, place, decision, begun)
        if swept.stale and way == "graph":
            # What was proven gone long ago is still in its rows.
            log.warning("Resource Graph lags, listing by the providers", source=self._source, stale=swept.stale)
            swept = await self._by("provider", place, decision, begun)
        return swept

    def _place(self) -> Place:
        place = self._places.of(self._source)
        if place is None:
            raise NoPass(f"there is no way to the cluster of source {self._source}")
        if selective := chooses(self._declared):
            raise NoPass(
                f"source {self._source} chooses its objects by {selective}, and nothing tells whether it would have "
                f"chosen the one that an orphan belonged to; take that out, or set azure.sweep.enabled to false"
            )
        return place

    def _decision(self) -> Decision:
        """Of an object without any mark: what the settings say of the source."""
        known = PolicyFacts(
            source=self._declared, policy=self._settings.policy, features=self._settings.features, labels={},
            annotations={}, namespace={},
        )  # fmt: skip
        return verdict_of(known)

    async def _by(self, way: Way, place: Place, decision: Decision, begun: Begun) -> Swept:
        number, now = begun
        cluster = await place.identity()
        candidates, way = await self._candidates(way)
        swept = Swept(self._source, way, decision, listed=candidates.listed)
        names = candidates.names() if not self._rehearse else set()
        await self._owners(place, candidates, swept)
        finished = await self._looked_after(candidates, names)
        swept.found = len(candidates)
        acts = decision.kind == "delete" and not self._rehearse
        pacing = Pacing(self._installation)
        async for part in _parts(candidates):
            await self._judge(part, number, now, cluster, swept, acts=acts and await pacing.room())
        if not self._rehearse and not (swept.stale and way == "graph"):
            await self._orphans.forget_before(number)
            if way == "provider":
                # What Resource Graph does not show may be there all the same.
                await self._inventory.forget(finished)
            await self._orphans.note({"sweep_at": now, "sweep_found": swept.found, "sweep_by": way})
        return swept

    # ---- candidates first

    async def _candidates(self, way: Way) -> tuple[Candidates, Way]:
        try:
            return await self._listed(way), way
        except AzureError as error:
            if way != "graph" or not of_no_use(error):
                raise
            log.warning("Resource Graph is of no use, listing by the providers", source=self._source, reason=str(error))
            return await self._listed("provider"), "provider"

    async def _listed(self, way: Way) -> Candidates:
        candidates = Candidates()
        for number, nodes in enumerate(self._nodes):
            where = f"{nodes.resource_group} by {'Resource Graph' if way == 'graph' else 'the providers'}"
            await candidates.gather(self._lister, nodes, number, way, partial(self._progress, where))
        return candidates

    # ---- signs of life last

    async def _owners(self, place: Place, candidates: Candidates, swept: Swept) -> None:
        """Every NodeClaim that lives, from a whole list that began after the last candidate was read."""
        resource = self._declared.resource

        async def every(served: Served) -> None:
            swept.claims = 0
            async for page in place.cluster.pages(served, None, metadata_only=True):
                if page.unreadable:
                    raise Unreadable(f"not every NodeClaim could be read: {page.unreadable[0]}")
                for seen in page.items:
                    candidates.lives(seen.name)
                swept.claims += len(page.items)
                self._progress("NodeClaims", swept.claims)

        # As it is served now: a version that is no more would else fail every pass from then on.
        await place.on(resource, every)
        # Asked last: the objects of a CRD that is going vanish, too.
        state = await place.crd_state(resource)
        if state != "established":
            raise NoPass(f"the CRD of {resource} is {state}, so that missing NodeClaims prove nothing")

    async def _looked_after(self, candidates: Candidates, names: set[str]) -> list[str]:
        """What a NodeClaim left that the inventory knows is its own deletion's, or is to stay; also where nobody has
        noticed yet that it is gone: its marks count then, not ours. Answers the uids of those that were to stay and of
        which nothing is left."""
        finished: list[str] = []
        async for part in self._inventory.scan():
            for uid, record in part:
                if record is None:
                    raise NoPass(f"the inventory's record of uid {uid} can't be read, so nobody knows what is to stay")
                if record.kept and record.gone and record.name not in names:
                    finished.append(uid)
                else:
                    candidates.lives(record.name)
        return finished

    # ---- how long

    async def _judge(
        self, part: Sequence[tuple[str, Candidate]], number: int, now: int, cluster: str, swept: Swept, *, acts: bool
    ) -> None:
        known = await self._orphans.recall(one.uid for _, one in part)
        sightings: dict[str, Sighting] = {}
        ripe: list[Ripe] = []
        for claim, one in part:
            before = known.get(one.uid)
            seen = Sighting(first=now, last=number)
            if before is not None:
                # A pass that was made anew for another list is the same pass.
                passes = before.passes + (before.last != number)
                seen = msgspec.structs.replace(before, last=number, passes=passes)
            sightings[one.uid] = seen
            if self._is_ripe(seen, now):
                ripe.append(Ripe(claim, one))
        told = await self._telling.tell(ripe, sightings, cluster, now, swept.way) if acts else Told({}, 0)
        swept.stale += told.stale
        swept.told += (new := sum(state == "added" for state in told.states.values()))
        swept.known += len(told.states) - new
        if not self._rehearse:
            await self._orphans.keep(sightings)
        if self._shown:
            due = {one.uid for _, one in ripe}
            swept.orphans += [self._shape(claim, one, sightings[one.uid], told.states, due) for claim, one in part]

    def _is_ripe(self, seen: Sighting, now: int) -> bool:
        age = self._settings.azure.sweep.age / timedelta(milliseconds=1)
        # A rehearsal is a pass, too, that only is not written down.
        return seen.passes >= 2 and now - seen.first >= age

    def _shape(self, claim: str, one: Candidate, seen: Sighting, states: dict[str, str], due: set[str]) -> Orphan:
        nodes = self._nodes[one.place]
        becomes: Becomes = "waits"
        if seen.left:
            becomes = "left"
        elif one.uid in states:
            becomes = "told" if states[one.uid] == "added" else "known"
        elif one.uid in due:
            becomes = "would be told"
        return Orphan(
            claim=claim, uid=one.uid, subscription=nodes.subscription, group=nodes.resource_group, machine=bool(one.vm),
            first=seen.first, passes=seen.passes, becomes=becomes,
        )  # fmt: skip


async def _parts(candidates: Candidates) -> AsyncIterator[list[tuple[str, Candidate]]]:
    part: list[tuple[str, Candidate]] = []
    for item in candidates:
        part.append(item)
        if len(part) == STEP:
            yield part
            part = []
    if part:
        yield part
