"""One pass of a sweep: list what might be orphaned, then every sign of life, and tell what has been orphaned for long.
A list that is not whole ends the pass without a word about anything."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.orphans import STEP, Begun, Orphans
from service.kubernetes import Served, Unreadable
from service.policy.decisions import Decision
from service.policy.verdict import Facts as PolicyFacts
from service.policy.verdict import verdict_of
from service.settings import Settings
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.listing import Lister, Way
from workers.handlers.places import Place, Places
from workers.judging.inspection import chooses
from workers.sweeps.candidates import Candidate, Candidates, of_no_use
from workers.sweeps.homes import at_home
from workers.sweeps.keeping import Keeping
from workers.sweeps.pacing import Pacing
from workers.sweeps.ripening import Orphan, Part, Ripening
from workers.sweeps.telling import Telling

log = structlog.get_logger(__name__)
Progress = Callable[[str, int], None]


class NoPass(Exception):
    """Nothing was found out, and nothing was changed; the message says why and what to do."""


@dataclass(slots=True)
class Swept:
    """What a pass found. `orphans` are only kept for who asks for them; `told` were published for the first time,
    `doubted` are machines in a group in which no Node of this cluster runs, `unidentified` are resources that the list
    showed without an id."""

    source: str
    way: Way
    decision: Decision
    listed: int = 0
    claims: int = 0
    found: int = 0
    told: int = 0
    known: int = 0
    stale: int = 0
    doubted: int = 0
    unidentified: int = 0
    orphans: list[Orphan] = field(default_factory=list)

    def add(self, part: Part, *, shown: bool) -> None:
        self.told, self.known, self.stale = self.told + part.told, self.known + part.known, self.stale + part.stale
        self.doubted += sum(one.becomes == "doubted" for one in part.orphans)
        if shown:
            self.orphans += part.orphans

    @property
    def trouble(self) -> list[str]:
        """What a person should know about the pass."""
        found: list[str] = []
        if self.doubted:
            found.append(
                f"{self.doubted} machines seem to be orphans in a group in which no Node of this cluster runs; see "
                f"whether azure.nodes and the source's cluster belong together"
            )
        if self.unidentified:
            by = "Resource Graph" if self.way == "graph" else "the providers' lists"
            found.append(
                f"{self.unidentified} resources have no id (resourceGuid or vmId) in the rows of {by} and were skipped"
                + ("; azure.sweep.listing: provider lists them otherwise" if self.way == "graph" else "")
            )
        return found


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
        self._orphans = Orphans(installation, source)
        self._keeping = Keeping(Inventory(installation, source), lister, self._nodes)
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
        cluster = await place.identity()
        candidates, way = await self._candidates(way)
        swept = Swept(self._source, way, decision, listed=candidates.listed, unidentified=candidates.unidentified)
        await self._owners(place, candidates, swept)
        finished = await self._keeping.spare(candidates, begun.now)
        swept.found = len(candidates)
        # Only where a machine is in question: the Nodes of a cluster are a long list.
        home = await at_home(place, self._nodes) if any(one.vm for _, one in candidates) else set[int]()
        if why := await self._places.doubt(self._source, cluster):
            raise NoPass(why)
        age = self._settings.azure.sweep.age
        ripening = Ripening(self._orphans, self._telling, begun, cluster, age, writes=not self._rehearse)
        deletes, pacing = decision.kind == "delete", Pacing(self._installation)
        async for part in _parts(candidates):
            acts = deletes and not self._rehearse and await pacing.room()
            found = await ripening.judge(part, way, home, acts=acts, policy=deletes)
            swept.add(found, shown=self._shown)
        if not self._rehearse and not (swept.stale and way == "graph"):
            await self._orphans.forget_before(begun.number, begun.now)
            await self._keeping.forget(finished)
            await self._orphans.note({"sweep_at": begun.now, "sweep_found": swept.found, "sweep_by": way})
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


async def _parts(candidates: Candidates) -> AsyncIterator[list[tuple[str, Candidate]]]:
    part: list[tuple[str, Candidate]] = []
    for item in candidates:
        part.append(item)
        if len(part) == STEP:
            yield part
            part = []
    if part:
        yield part
