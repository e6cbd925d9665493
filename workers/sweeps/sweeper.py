"""Sweep loop of one source. A Lease decides which process runs it, and Redis stores when the next pass is due.
A failed pass is repeated sooner; a process that takes over continues from the last successful pass."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import structlog

from service.contract.names import sweep_lease
from service.engine.installation import Installation
from service.engine.orphans import OrphanSightings
from service.engine.restore_detection import LeaseCounter
from service.kubernetes import ClusterError, KubernetesClient, Lease, LeaseWriteCounter
from service.settings import Settings
from workers.handlers.orphans import OrphanFinder, SweepSchedule
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.sweeps.sweep_pass import SweepPass, SweepResult

log = structlog.get_logger(__name__)
SOONER: Final = 0.2
"""Share of the interval after which a failed pass is repeated."""

LOOK: Final = timedelta(seconds=5)
"""How often to check whether the cluster has been connected."""


Counting = Callable[[KubernetesClient, str, str], LeaseWriteCounter]


class Sweeper:
    """`one_pass` runs one pass; `counting` makes the counter of a Lease (see `lease_counting`)."""

    def __init__(
        self,
        settings: Settings,
        clusters: SourceClusters,
        orphans: OrphanSightings,
        source: str,
        holder: str,
        schedule: SweepSchedule,
        one_pass: Callable[[], Awaitable[SweepResult]],
        counting: Counting,
    ) -> None:
        self._counting = counting
        self._settings, self._clusters, self._orphans, self._pass = settings, clusters, orphans, one_pass
        self._source, self._holder, self._schedule = source, holder, schedule
        self._log = log.bind(source=source)

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            try:
                cluster = await self._source_cluster()
                watch, name = self._settings.watch, sweep_lease(self._source)
                counter = self._counting(cluster.client, await cluster.identity(), name)
                lease = Lease(cluster.client, watch.namespace, name, self._holder, watch.lease, counter=counter)
                async with lease:
                    await self._while_held(lease)
            except ClusterError as error:
                self._log.warning("no sweep, for its Lease can't be had", reason=str(error))
                await asyncio.sleep(self._settings.watch.retry.total_seconds())

    async def _source_cluster(self) -> SourceCluster:
        while (cluster := self._clusters.of(self._source)) is None:  # noqa: ASYNC110 - clusters come in without a bell
            await asyncio.sleep(LOOK.total_seconds())
        return cluster

    async def _while_held(self, lease: Lease) -> None:
        """Runs until the Lease is lost: then a running pass is cancelled, because another process may have begun
        one."""
        sweeping = asyncio.ensure_future(self._sweep())
        losing = asyncio.ensure_future(lease.lost.wait())
        try:
            await asyncio.wait([sweeping, losing], return_when=asyncio.FIRST_COMPLETED)
            if sweeping.done():
                sweeping.result()
        finally:
            for task in (sweeping, losing):
                task.cancel()
            await asyncio.wait([sweeping, losing])

    async def _sweep(self) -> None:
        every = self._schedule.every / timedelta(milliseconds=1)
        while True:
            wait = await self._orphans.last_pass_at() + every - await self._orphans.now()
            # If the clock went back, the last pass lies in the future.
            if 0 < wait <= every:
                await asyncio.sleep(wait / 1000)
                continue
            if not await self._one():
                await asyncio.sleep(every * SOONER / 1000)

    async def _one(self) -> bool:
        try:
            swept = await self._pass()
        except Exception as error:  # noqa: BLE001  # here a pass is accounted for, whatever it raised
            why = f"{type(error).__name__}: {error}"
            self._log.warning("sweep made no pass, nothing is known of anything", reason=why)
            await self._orphans.set_problem(f"sweep: {why}")
            return False
        await self._orphans.set_problem("sweep: " + "; ".join(swept.trouble) if swept.trouble else "")
        self._log.info(
            "swept", by=swept.method, listed=swept.listed, owners=swept.owners, orphans=swept.found,
            published=swept.published, unidentified=swept.unidentified, policy=swept.decision.kind,
        )  # fmt: skip
        return True


def build_sweeper(
    settings: Settings, installation: Installation, clusters: SourceClusters, finder: OrphanFinder, source: str
) -> Sweeper:
    one = SweepPass(settings, installation, clusters, finder, source)
    orphans, counting = OrphanSightings(installation, source), lease_counting(settings, installation)
    schedule = finder.schedule(source)
    return Sweeper(settings, clusters, orphans, source, settings.worker.name, schedule, one.run, counting)


def lease_counting(settings: Settings, installation: Installation) -> Counting:
    """Counters on the sweep's Lease, by which a cluster restored from a backup is detected. The sweep renews its Lease
    even where no watcher runs."""

    def counting(cluster: KubernetesClient, uid: str, lease: str) -> LeaseCounter:
        return LeaseCounter(installation, cluster, uid, settings.watch.namespace, lease)

    return counting
