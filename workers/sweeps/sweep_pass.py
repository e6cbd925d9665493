"""One pass of a sweep: lists candidates, then living owners, and publishes those that have been orphaned for long
enough. An incomplete list aborts the pass, and nothing is published."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import structlog

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.orphans import STEP, OrphanSightings, PassStart
from service.kubernetes import ServedResource, Unreadable
from service.policy.decisions import PolicyDecision
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.settings import Settings
from workers.handlers.orphans import MethodUnusable, OrphanCandidate, OrphanCandidates, OrphanFinder, Progress
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.judging.inspection import selecting_settings
from workers.sweeps.kept_owners import KeptOwners
from workers.sweeps.orphan_events import OrphanPublisher, PublishBackpressure
from workers.sweeps.waiting_period import BatchResult, Orphan, WaitingPeriod

log = structlog.get_logger(__name__)


class SweepAborted(Exception):
    """The pass found and changed nothing; the message says why and what to do."""


@dataclass(slots=True)
class SweepResult:
    """Result of a pass by one listing method. `orphans` is filled on request only; `owners` counts the living ones,
    `published` new events, `doubted` orphans in a place that is not proven to be this cluster's, `unidentified`
    resources that the list showed without an id. `trouble` are warnings for the operator."""

    source: str
    method: str
    decision: PolicyDecision
    listed: int = 0
    owners: int = 0
    found: int = 0
    published: int = 0
    known: int = 0
    stale: int = 0
    doubted: int = 0
    unidentified: int = 0
    orphans: list[Orphan] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def add(self, part: BatchResult, *, shown: bool) -> None:
        self.published, self.known, self.stale = (
            self.published + part.published,
            self.known + part.known,
            self.stale + part.stale,
        )
        self.doubted += sum(one.becomes == "doubted" for one in part.orphans)
        if shown:
            self.orphans += part.orphans


def _silent(words: str, count: int) -> None:
    del words, count


class SweepPass:
    """A pass of one source. With `rehearse` nothing is written or published; with `shown` the result lists the
    orphans."""

    def __init__(
        self,
        settings: Settings,
        installation: Installation,
        clusters: SourceClusters,
        finder: OrphanFinder,
        source: str,
        *,
        rehearse: bool = False,
        shown: bool = False,
        progress: Progress = _silent,
    ) -> None:
        self._settings, self._installation, self._clusters, self._finder = settings, installation, clusters, finder
        self._source, self._rehearse, self._shown, self._progress = source, rehearse, shown or rehearse, progress
        self._declared = settings.sources[source]
        self._orphans = OrphanSightings(installation, source)
        self._kept_owners = KeptOwners(Inventory(installation, source), finder, source)
        self._publisher = OrphanPublisher(installation, self._orphans, finder, source, self._declared.resource)

    async def run(self) -> SweepResult:
        """Raises SweepAborted, UnreadableRecord, ListingFailed or ClusterError."""
        cluster = self._source_cluster()
        decision = self._decision()
        begun = await self._orphans.begin_pass() if not self._rehearse else PassStart(0, await self._orphans.now())
        *lagging, current = self._finder.methods(self._source)
        for method in lagging:
            try:
                swept = await self._run_with(method, cluster, decision, begun, current=False)
            except MethodUnusable as error:
                log.warning("this list is of no use", source=self._source, by=method, reason=str(error))
                continue
            if not swept.stale:
                return swept
            # It still contains resources that were proven absent.
            log.warning("this list lags", source=self._source, by=method, stale=swept.stale)
        return await self._run_with(current, cluster, decision, begun, current=True)

    def _source_cluster(self) -> SourceCluster:
        cluster = self._clusters.of(self._source)
        if cluster is None:
            raise SweepAborted(f"there is no way to the cluster of source {self._source}")
        if selective := selecting_settings(self._declared):
            raise SweepAborted(
                f"source {self._source} chooses its objects by {selective}, and nothing tells whether it would have "
                f"chosen the one that an orphan belonged to; take that out, or {self._finder.words.disable}"
            )
        return cluster

    def _decision(self) -> PolicyDecision:
        """Policy for an object without marks, by the settings of the source."""
        known = PolicyInput(
            source=self._declared, policy=self._settings.policy, features=self._settings.features, labels={},
            annotations={}, namespace={},
        )  # fmt: skip
        return evaluate_policy(known)

    async def _run_with(
        self, method: str, cluster: SourceCluster, decision: PolicyDecision, begun: PassStart, *, current: bool
    ) -> SweepResult:
        cluster_uid = await cluster.identity()
        # Candidates first, living owners last.
        candidates = await self._finder.candidates(self._source, method, self._progress)
        swept = SweepResult(
            self._source, method, decision, listed=candidates.listed, unidentified=candidates.unidentified
        )
        await self._exclude_owned(cluster, candidates, swept)
        finished = await self._kept_owners.exclude(candidates, begun.now)
        swept.found = len(candidates)
        proven = await self._proven_places(cluster, candidates)
        if why := await self._clusters.doubt(self._source, cluster_uid):
            raise SweepAborted(why)
        waiting_period = WaitingPeriod(
            self._orphans, self._publisher, self._finder, begun, cluster_uid, self._finder.schedule(self._source).age,
            writes=not self._rehearse,
        )  # fmt: skip
        deletes, backpressure = decision.kind == "delete", PublishBackpressure(self._installation)
        async for part in _parts(candidates):
            acts = deletes and not self._rehearse and await backpressure.has_room()
            found = await waiting_period.process_batch(part, proven, current=current, acts=acts, policy=deletes)
            swept.add(found, shown=self._shown)
        if not self._rehearse and (current or not swept.stale):
            await self._orphans.remove_unseen(begun.number, begun.now)
            await self._kept_owners.forget(finished)
            await self._orphans.save_state({"sweep_at": begun.now, "sweep_found": swept.found, "sweep_by": method})
        swept.trouble = self._trouble(swept)
        return swept

    async def _exclude_owned(self, cluster: SourceCluster, candidates: OrphanCandidates, swept: SweepResult) -> None:
        """Removes candidates of living owners, from a complete list that began after the last candidate was read."""
        resource, words = self._declared.resource, self._finder.words

        async def every(served: ServedResource) -> None:
            if served.namespaced:
                raise SweepAborted(
                    f"{resource} have namespaces, but orphans are known by the name of their owner alone; "
                    f"{words.disable}"
                )
            swept.owners = 0
            async for page in cluster.client.pages(served, None, metadata_only=True):
                if page.unreadable:
                    raise Unreadable(f"not every {words.owner} could be read: {page.unreadable[0]}")
                for seen in page.items:
                    candidates.remove(seen.name)
                swept.owners += len(page.items)
                self._progress(words.owners, swept.owners)

        # By the version served now: a version that was removed would fail every later pass.
        await cluster.on(resource, every)
        # Last: objects of a terminating CRD disappear, too.
        state = await cluster.crd_state(resource)
        if state != "established":
            raise SweepAborted(f"the CRD of {resource} is {state}, so that missing {words.owners} prove nothing")

    async def _proven_places(self, cluster: SourceCluster, candidates: OrphanCandidates) -> set[int]:
        """Read only if a candidate needs it, because the lists that prove it may be long."""
        if any(self._finder.needs_proof(one.ids) for _, one in candidates):
            return await self._finder.proven_places(self._source, cluster)
        return set()

    def _trouble(self, swept: SweepResult) -> list[str]:
        found = [self._finder.doubt(swept.doubted)] if swept.doubted else []
        if swept.unidentified:
            found.append(self._finder.unidentified(swept.unidentified, swept.method))
        return found


async def _parts(candidates: OrphanCandidates) -> AsyncIterator[list[tuple[str, OrphanCandidate]]]:
    part: list[tuple[str, OrphanCandidate]] = []
    for item in candidates:
        part.append(item)
        if len(part) == STEP:
            yield part
            part = []
    if part:
        yield part
