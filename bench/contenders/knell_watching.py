"""Knell's process for the rows about objects: what `knell run` and `knell watch` start, with a no-op handler.

The collector stands in for `none`: it plans one target for each object, which its handler takes for gone at once.
"""

from __future__ import annotations

# First of all, as the command does it: the logs decide how structlog is imported.
from service.logs import configure  # isort: skip

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.order import WatchOrder
from bench.peers.loops import fastest_loop
from bench.peers.starts import Starts
from bench.peers.tally import answer
from service import python_gc
from service.cli.cluster_clients import connect_clusters
from service.cli.long_running import redis_outage
from service.cli.work import WorkerStatus
from service.contract import Draw, Gone, Job, Limit, Plan, Target, Verdict
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.kubernetes import RecentObjects, preload
from service.settings import Settings, SourceSettings, load
from service.settings.sources import ClusterSettings, FeedbackSettings, GuardSettings, WatchSettings
from service.watching.watcher import Watcher, WatchHealth, on_signals
from service.web import Health, Metrics, WebServer
from service.web.redis_probe import RedisProbe
from workers.handlers.collector import ObjectFacts
from workers.handlers.protocol import Batch
from workers.judging.registry_builder import build_registry
from workers.runtime.worker import Worker

SOURCE: Final = "bench"
KIND: Final = "bench/nothing"
LANE: Final = "bench/here/nothing"
LOOK: Final = 0.1


def settings_for(order: WatchOrder) -> Settings:
    """The defaults of an installation, but for what all contenders have off."""
    environment = {
        "KNELL_REDIS_URL": f"redis://127.0.0.1:{order.port}/0",
        "KNELL_SURFACE_HOST": "127.0.0.1",
        "KNELL_SURFACE_PORT": "0",
        "KNELL_LOG_FORMAT": "json",
    }
    releases = order.task != "watch"
    source = SourceSettings(
        resource=f"{order.plural}.{order.group}",
        collector="none",
        mode="finalizer" if releases else "observe",
        namespaces=(order.namespace,) if releases else (),
        # The objects are older than the source.
        adopt_existing=True,
        guard=GuardSettings(enabled=False),
    )
    return msgspec.structs.replace(
        load(None, environment),
        clusters={SOURCE: ClusterSettings(kubeconfig=Path(order.kubeconfig))},
        sources={SOURCE: source},
        # Each turn has Leases of its own: the last holder was killed, and could not hand over.
        watch=WatchSettings(namespace=order.namespace),
        feedback=FeedbackSettings(events=False, conditions=False),
    )


class OneTarget:
    """A collector under the name of the one that finds nothing."""

    name = "none"
    metadata_only = True

    async def collect(self, facts: ObjectFacts) -> Plan:
        return Plan([Target(kind=KIND, id=facts.ref.name, lane=LANE)])


class NoopObjectHandler:
    """Begins where a destructive call would be made: after the last look at the object."""

    kind = KIND

    def __init__(self, starts: Starts) -> None:
        self._starts = starts
        self._draws = (Draw(Limit.bucket("bench.nothing", 10_000_000, 1_000_000)),)

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._draws if lane == LANE else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        await batch.clear(*batch.jobs)
        for job in batch.jobs:
            self._starts.began(job.target)
            yield job, Gone()


async def run(installation: Installation, *, stands_by: bool = False) -> None:
    """As `knell run` does. One that stands by is ready when it competes for the Lease, and not when it has listed."""
    settings = installation.settings
    working, watching = WorkerStatus(), WatchHealth()
    async with _shown(installation, working, watching), connect_clusters(settings) as clusters:
        recent_objects = RecentObjects()
        registry = build_registry(
            settings, clusters, installation, handlers=[NoopObjectHandler(Starts())], collectors=[OneTarget()],
            recent_objects=recent_objects,
        )  # fmt: skip
        working.worker = worker = Worker(installation, registry)
        watching.watcher = watcher = Watcher(settings, installation, recent_objects)
        on_signals([watcher.stop, worker.stop])
        async with asyncio.TaskGroup() as group:
            group.create_task(watcher.run())
            group.create_task(worker.run())
            await (_until(lambda: watcher.ready and worker.ready) if stands_by else _listed(watcher))
            answer(ready=True)


async def watch(installation: Installation) -> None:
    """As `knell watch` does."""
    duty = WatchHealth()
    async with _shown(installation, WorkerStatus(), duty):
        duty.watcher = watcher = Watcher(installation.settings, installation)
        async with asyncio.TaskGroup() as group:
            group.create_task(watcher.run())
            await _listed(watcher)
            answer(listed=await Inventory(installation, SOURCE).size())
            await _until(lambda: bool(watcher.share_leases[0].counters.events))
            answer(seen=True)


async def _listed(watcher: Watcher) -> None:
    await _until(lambda: bool(watcher.share_leases[0].counters.relists))


async def _until(holds: Callable[[], bool]) -> None:
    """The counts have no event to wait for; a look now and then costs next to nothing."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(LOOK)


@asynccontextmanager
async def _shown(installation: Installation, working: WorkerStatus, watching: WatchHealth) -> AsyncIterator[None]:
    look = RedisProbe(installation.settings, lambda: redis_outage(installation))
    try:
        health = Health(look, watching.stage, watching.hindrances, watching.problems)
        metrics = Metrics(look, working.counts, watching.metrics)
        async with WebServer(installation.settings.surface, health, metrics):
            yield
    finally:
        await look.aclose()


async def main(order: WatchOrder) -> None:
    # As the command does it.
    preload()
    python_gc.collect_rarely()
    settings = settings_for(order)
    configure(settings.log)
    installation = Installation(settings, name="knell-bench")
    try:
        if order.task == "watch":
            await watch(installation)
        else:
            await run(installation, stands_by=order.task == "stand-by")
    finally:
        await installation.aclose()


if __name__ == "__main__":
    fastest_loop()(main(WatchOrder.decode(sys.argv[1])))
