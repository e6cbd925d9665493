"""`knell work`: one worker process with its HTTP server.
The HTTP server starts first, so that the process reports why it is not ready while Redis can't be reached."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.cluster_clients import connect_clusters
from service.cli.deletion_policy import Policies, deletion_policy_option
from service.cli.extension import Extension, current_extension, known_collectors
from service.cli.long_running import redis_outage, run_until_stopped
from service.cli.session import config_option
from service.contract.aws import CAPA
from service.contract.azure import KARPENTER_AZURE
from service.engine.guard import Guard
from service.engine.installation import Installation
from service.engine.kept_store import KeptStore
from service.kubernetes import RecentObjects
from service.settings import Settings
from service.watching.recognition import check_collectors
from service.web import Health, Metrics, ProcessCounts, WebServer
from service.web.redis_probe import RedisProbe
from workers.handlers.collector import Collector
from workers.handlers.protocol import Handler
from workers.handlers.registry import HandlerRegistry
from workers.handlers.source_clusters import SourceClusters
from workers.judging.registry_builder import build_registry, build_source_clusters, guard_check
from workers.runtime.call_budget import CallBudget
from workers.runtime.worker import Worker

if TYPE_CHECKING:
    from workers.handlers.aws.components import AwsComponents
    from workers.handlers.azure.components import AzureComponents


BackgroundTask = Callable[[], Coroutine[Any, Any, None]]


@click.command()
@config_option
@deletion_policy_option
def work(config: Path | None, policies: Policies) -> None:
    """Run workers: plan events and carry out their jobs.

    SIGTERM takes nothing new and finishes, or hands back, within worker.grace; a second signal ends at once.
    """
    extension = current_extension()
    run_until_stopped(config, policies, lambda settings: run_worker(settings, extension))


async def run_worker(settings: Settings, extension: Extension | None = None) -> None:
    """One worker and its HTTP server, until a signal stops it. Raises SettingsError for an unknown collector."""
    check_collectors(settings.sources, known_collectors(extension))
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    probe = RedisProbe(settings, lambda: redis_outage(installation))
    status = WorkerStatus()
    try:
        async with (
            WebServer(settings.surface, Health(probe, status.stage), Metrics(probe, status.counts)),
            open_registry(settings, installation, extension=extension) as registry,
        ):
            status.worker = Worker(installation, registry)
            status.worker.handle_signals()
            await status.worker.run()
    finally:
        await probe.aclose()
        await installation.aclose()


@asynccontextmanager
async def open_registry(
    settings: Settings,
    installation: Installation,
    recent_objects: RecentObjects | None = None,
    extension: Extension | None = None,
) -> AsyncIterator[HandlerRegistry]:
    """Handlers and planners of this process, with clients of the clusters of its sources. `recent_objects` are those of
    a watcher in the same process."""
    handlers, collectors = list[Handler](), list[Collector]()
    background_tasks = list[BackgroundTask]()
    async with connect_clusters(settings) as clusters, AsyncExitStack() as stack:
        source_clusters = build_source_clusters(settings, clusters, installation)
        if uses_aws(settings):
            side = await stack.enter_async_context(open_aws(settings, source_clusters, installation))
            handlers += side.handlers
            collectors.append(side.collector)
        if uses_azure(settings):
            azure = await stack.enter_async_context(open_azure(settings, source_clusters, installation))
            handlers += azure.handlers
            collectors.append(azure.collector)
            background_tasks += _sweep_loops(settings, installation, source_clusters, azure)
        if extension is not None:
            more = await stack.enter_async_context(extension.connect(settings))
            handlers += more.handlers
            collectors.append(more.collector)
        yield build_registry(
            settings, clusters, installation, handlers=handlers, collectors=collectors, recent_objects=recent_objects,
            source_clusters=source_clusters, background_tasks=background_tasks,
        )  # fmt: skip


def uses_aws(settings: Settings) -> bool:
    """True also while the feature is off, so that existing jobs are held by policy and not for lack of a handler."""
    return any(source.collector == CAPA for source in settings.sources.values())


@asynccontextmanager
async def open_aws(
    settings: Settings, source_clusters: SourceClusters, installation: Installation | None
) -> "AsyncIterator[AwsComponents]":
    """Without an installation no budget is drawn on, and the guard is not read."""
    # Imported only here: without such a source the SDK is not loaded, which takes longer than everything else.
    from workers.handlers.aws.components import aws_components

    share = settings.worker.background_share
    quota = CallBudget(installation.budgets, share) if installation is not None else None
    guarded = guard_check(Guard(installation), settings) if installation is not None else None
    # A command of an operator waits as long as it takes.
    patience = None if installation is not None else timedelta(hours=1)
    memory = KeptStore(installation) if installation is not None else None
    async with aws_components(settings, source_clusters, quota, guarded, memory=memory, patience=patience) as side:
        yield side


def uses_azure(settings: Settings) -> bool:
    return any(source.collector == KARPENTER_AZURE for source in settings.sources.values())


@asynccontextmanager
async def open_azure(
    settings: Settings, source_clusters: SourceClusters, installation: Installation | None
) -> "AsyncIterator[AzureComponents]":
    """Without an installation no budget is drawn on."""
    # Imported only here, as for AWS.
    from workers.handlers.azure.components import azure_components

    share = settings.worker.background_share
    quota = CallBudget(installation.budgets, share) if installation is not None else None
    memory = KeptStore(installation) if installation is not None else None
    async with azure_components(settings, source_clusters, quota, memory) as side:
        yield side


def _sweep_loops(
    settings: Settings, installation: Installation, source_clusters: SourceClusters, side: "AzureComponents"
) -> list[BackgroundTask]:
    """One loop for each swept source; a Lease decides which process sweeps."""
    if not settings.azure.sweep.enabled:
        return []
    from workers.sweeps.sweeper import build_sweeper

    return [
        build_sweeper(settings, installation, source_clusters, side.lister, source).run
        for source in settings.azure.nodes
    ]


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
