"""One pass of a sweep: lists candidates, then living owners, and publishes those that have been orphaned for long
enough. An incomplete list aborts the pass, and nothing is published."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.orphans import STEP, OrphanSightings, PassStart
from service.kubernetes import ServedResource, Unreadable
from service.policy.decisions import PolicyDecision
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.settings import Settings
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.listing import AzureLister, ListingMethod
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.judging.inspection import selecting_settings
from workers.sweeps.candidates import OrphanCandidate, OrphanCandidates, is_graph_unusable
from workers.sweeps.cluster_groups import groups_with_nodes
from workers.sweeps.kept_claims import KeptClaims
from workers.sweeps.orphan_events import OrphanPublisher, PublishBackpressure
from workers.sweeps.waiting_period import BatchResult, Orphan, WaitingPeriod

log = structlog.get_logger(__name__)
Progress = Callable[[str, int], None]


class SweepAborted(Exception):
    """The pass found and changed nothing; the message says why and what to do."""


@dataclass(slots=True)
class SweepResult:
    """Result of a pass. `orphans` is filled on request only; `published` counts new events, `doubted` machines in a
    group in which no Node of this cluster runs, `unidentified` resources that the list showed without an id."""

    source: str
    way: ListingMethod
    decision: PolicyDecision
    listed: int = 0
    claims: int = 0
    found: int = 0
    published: int = 0
    known: int = 0
    stale: int = 0
    doubted: int = 0
    unidentified: int = 0
    orphans: list[Orphan] = field(default_factory=list)

    def add(self, part: BatchResult, *, shown: bool) -> None:
        self.published, self.known, self.stale = (
            self.published + part.published,
            self.known + part.known,
            self.stale + part.stale,
        )
        self.doubted += sum(one.becomes == "doubted" for one in part.orphans)
        if shown:
            self.orphans += part.orphans

    @property
    def trouble(self) -> list[str]:
        """Warnings for the operator."""
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


class SweepPass:
    """A pass of one source. With `rehearse` nothing is written or published; with `shown` the result lists the
    orphans."""

    def __init__(
        self,
        settings: Settings,
        installation: Installation,
        clusters: SourceClusters,
        lister: AzureLister,
        source: str,
        *,
        rehearse: bool = False,
        shown: bool = False,
        progress: Progress = _silent,
    ) -> None:
        self._settings, self._installation, self._clusters, self._lister = settings, installation, clusters, lister
        self._source, self._rehearse, self._shown, self._progress = source, rehearse, shown or rehearse, progress
        self._declared = settings.sources[source]
        self._nodes = settings.azure.nodes.get(source, ())
        self._orphans = OrphanSightings(installation, source)
        self._kept_claims = KeptClaims(Inventory(installation, source), lister, self._nodes)
        self._publisher = OrphanPublisher(installation, self._orphans, source, self._declared.resource, self._nodes)

    async def run(self) -> SweepResult:
        """Raises NoPass, AzureError or ClusterError."""
        cluster = self._source_cluster()
        decision = self._decision()
        way = self._settings.azure.sweep.listing
        begun = await self._orphans.begin_pass() if not self._rehearse else PassStart(0, await self._orphans.now())
        swept = await self._run_with(way, cluster, decision, begun)
        if swept.stale and way == "graph":
            # Its rows still contain resources that were proven absent.
            log.warning("Resource Graph lags, listing by the providers", source=self._source, stale=swept.stale)
            swept = await self._run_with("provider", cluster, decision, begun)
        return swept

    def _source_cluster(self) -> SourceCluster:
        cluster = self._clusters.of(self._source)
        if cluster is None:
            raise SweepAborted(f"there is no way to the cluster of source {self._source}")
        if selective := selecting_settings(self._declared):
            raise SweepAborted(
                f"source {self._source} chooses its objects by {selective}, and nothing tells whether it would have "
                f"chosen the one that an orphan belonged to; take that out, or set azure.sweep.enabled to false"
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
        self, way: ListingMethod, cluster: SourceCluster, decision: PolicyDecision, begun: PassStart
    ) -> SweepResult:
        cluster_uid = await cluster.identity()
        candidates, way = await self._candidates(way)
        swept = SweepResult(self._source, way, decision, listed=candidates.listed, unidentified=candidates.unidentified)
        await self._exclude_owned(cluster, candidates, swept)
        finished = await self._kept_claims.exclude(candidates, begun.now)
        swept.found = len(candidates)
        # Only if there is a machine among the candidates, because Nodes are a long list.
        groups = await groups_with_nodes(cluster, self._nodes) if any(one.vm for _, one in candidates) else set[int]()
        if why := await self._clusters.doubt(self._source, cluster_uid):
            raise SweepAborted(why)
        age = self._settings.azure.sweep.age
        waiting_period = WaitingPeriod(
            self._orphans, self._publisher, begun, cluster_uid, age, writes=not self._rehearse
        )
        deletes, backpressure = decision.kind == "delete", PublishBackpressure(self._installation)
        async for part in _parts(candidates):
            acts = deletes and not self._rehearse and await backpressure.has_room()
            found = await waiting_period.process_batch(part, way, groups, acts=acts, policy=deletes)
            swept.add(found, shown=self._shown)
        if not self._rehearse and not (swept.stale and way == "graph"):
            await self._orphans.remove_unseen(begun.number, begun.now)
            await self._kept_claims.forget(finished)
            await self._orphans.save_state({"sweep_at": begun.now, "sweep_found": swept.found, "sweep_by": way})
        return swept

    # ---- candidates first

    async def _candidates(self, way: ListingMethod) -> tuple[OrphanCandidates, ListingMethod]:
        try:
            return await self._listed(way), way
        except AzureError as error:
            if way != "graph" or not is_graph_unusable(error):
                raise
            log.warning("Resource Graph is of no use, listing by the providers", source=self._source, reason=str(error))
            return await self._listed("provider"), "provider"

    async def _listed(self, way: ListingMethod) -> OrphanCandidates:
        candidates = OrphanCandidates()
        for number, nodes in enumerate(self._nodes):
            where = f"{nodes.resource_group} by {'Resource Graph' if way == 'graph' else 'the providers'}"
            await candidates.gather(self._lister, nodes, number, way, partial(self._progress, where))
        return candidates

    # ---- living owners last

    async def _exclude_owned(self, cluster: SourceCluster, candidates: OrphanCandidates, swept: SweepResult) -> None:
        """Removes candidates of living NodeClaims, from a complete list that began after the last candidate was
        read."""
        resource = self._declared.resource

        async def every(served: ServedResource) -> None:
            swept.claims = 0
            async for page in cluster.client.pages(served, None, metadata_only=True):
                if page.unreadable:
                    raise Unreadable(f"not every NodeClaim could be read: {page.unreadable[0]}")
                for seen in page.items:
                    candidates.remove(seen.name)
                swept.claims += len(page.items)
                self._progress("NodeClaims", swept.claims)

        # By the version served now: a version that was removed would fail every later pass.
        await cluster.on(resource, every)
        # Last: objects of a terminating CRD disappear, too.
        state = await cluster.crd_state(resource)
        if state != "established":
            raise SweepAborted(f"the CRD of {resource} is {state}, so that missing NodeClaims prove nothing")


async def _parts(candidates: OrphanCandidates) -> AsyncIterator[list[tuple[str, OrphanCandidate]]]:
    part: list[tuple[str, OrphanCandidate]] = []
    for item in candidates:
        part.append(item)
        if len(part) == STEP:
            yield part
            part = []
    if part:
        yield part
