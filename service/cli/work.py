"""`knell work`: one worker process with its HTTP server.
The HTTP server starts first, so that the process reports why it is not ready while Redis can't be reached."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from service.cli.cluster_clients import connect_clusters
from service.cli.deletion_policy import Policies, deletion_policy_option
from service.cli.long_running import redis_outage, run_until_stopped
from service.cli.session import config_option
from service.engine.installation import Installation
from service.kubernetes import RecentObjects
from service.settings import Settings, check_collectors
from service.web import Health, Metrics, ProcessCounts, WebServer
from service.web.redis_probe import RedisProbe
from workers.app import open_app
from workers.handlers.registry import HandlerRegistry
from workers.runtime.worker import Worker


@click.command()
@config_option
@deletion_policy_option
def work(config: Path | None, policies: Policies) -> None:
    """Run workers: plan events and carry out their jobs.

    SIGTERM takes nothing new and finishes, or hands back, within worker.grace; a second signal ends at once.
    """
    run_until_stopped(config, policies, run_worker)


async def run_worker(settings: Settings) -> None:
    """One worker and its HTTP server, until a signal stops it. Raises SettingsError for an unknown collector."""
    check_collectors(settings.sources)
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    probe = RedisProbe(settings, lambda: redis_outage(installation))
    status = WorkerStatus()
    try:
        async with (
            WebServer(settings.surface, Health(probe, status.stage), Metrics(probe, status.counts)),
            open_registry(settings, installation) as registry,
        ):
            status.worker = Worker(installation, registry)
            status.worker.handle_signals()
            await status.worker.run()
    finally:
        await probe.aclose()
        await installation.aclose()


@asynccontextmanager
async def open_registry(
    settings: Settings, installation: Installation, recent_objects: RecentObjects | None = None
) -> AsyncIterator[HandlerRegistry]:
    """Handlers and planners of this process, with clients of the clusters of its sources. `recent_objects` are those of
    a watcher in the same process."""
    async with connect_clusters(settings) as clusters, open_app(settings, clusters, installation) as app:
        yield app.registry(recent_objects)


class WorkerStatus:
    """State of the worker for health and metrics, also before it exists."""

    worker: Worker | None = None

    def stage(self) -> str:
        if self.worker is None:
            return "starting"
        if self.worker.stopping:
            return "stopping"
        return "working" if self.worker.ready else "starting"

    def counts(self) -> ProcessCounts:
        if self.worker is None:
            return ProcessCounts()
        counters = self.worker.counters
        return ProcessCounts(
            taken=counters.taken,
            settled=dict(counters.settled),
            late=counters.late,
            planned=counters.planned,
            held=counters.held,
            in_hand=self.worker.slots.busy,
        )
