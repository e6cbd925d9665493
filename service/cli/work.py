"""`knell work`: one worker process with its surface, from the first log line to an orderly end.
The surface comes first: a worker whose server is away is seen to live, and says why it is not ready."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.overriding import Policies, deletion_policy_option
from service.cli.reaching import reached_clusters
from service.cli.serving import away, serve
from service.cli.session import Trouble, config_option
from service.contract.aws import CAPA
from service.contract.azure import KARPENTER_AZURE
from service.engine.guard import Guard
from service.engine.installation import Installation
from service.engine.kept import KeptMemory
from service.kubernetes import Sightings
from service.settings import Settings
from service.watching.collectors import check_collectors
from service.web import Health, Metrics, ProcessCounts, Surface
from service.web.watch import Watch
from workers.handlers.objects import Collector
from workers.handlers.places import Places
from workers.handlers.protocol import Handler, Planner
from workers.handlers.registry import Registry
from workers.handlers.simulated import SOURCE, ProviderAway, Simulated
from workers.judging.guarding import guarded_by
from workers.judging.wiring import places_in, registry_for
from workers.runtime.quota import BudgetQuota
from workers.runtime.worker import Worker

if TYPE_CHECKING:
    from workers.handlers.aws.wiring import AwsSide
    from workers.handlers.azure.wiring import AzureSide


Errand = Callable[[], Coroutine[Any, Any, None]]


def simulate_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--simulate",
        metavar="URL",
        help="Also serve the simulated provider at this address (see python -m standins.provider).",
    )(command)


@click.command()
@config_option
@simulate_option
@deletion_policy_option
def work(config: Path | None, policies: Policies, simulate: str | None) -> None:
    """Run workers: plan events and carry out their jobs.

    SIGTERM takes nothing new and finishes, or hands back, within worker.grace; a second signal ends at once.
    """
    serve(config, policies, lambda settings: work_on(settings, simulate))


async def work_on(settings: Settings, simulate: str | None) -> None:
    """One worker and its HTTP server, until a signal stops it. Raises SettingsError for an unknown collector."""
    check_collectors(settings.sources)
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    watch = Watch(settings, lambda: away(installation))
    duty = Duty()
    try:
        async with (
            Surface(settings.surface, Health(watch, duty.stage), Metrics(watch, duty.counts)),
            handlers_of(settings, installation, simulate) as registry,
        ):
            duty.worker = Worker(installation, registry)
            duty.worker.handle_signals()
            await duty.worker.run()
    finally:
        await watch.aclose()
        await installation.aclose()


@asynccontextmanager
async def handlers_of(
    settings: Settings, installation: Installation, simulate: str | None, sightings: Sightings | None = None
) -> AsyncIterator[Registry]:
    """The handlers and planners of this process, and its way to the clusters of its sources. `sightings` are those of a
    watch side in the same process."""
    handlers, collectors, detached = list[Handler](), list[Collector](), dict[str, Planner]()
    errands = list[Errand]()
    async with reached_clusters(settings) as clusters, AsyncExitStack() as stack:
        places = places_in(settings, clusters, installation)
        if collects_on_aws(settings):
            side = await stack.enter_async_context(aws_of(settings, places, installation))
            handlers += side.handlers
            collectors.append(side.collector)
        if collects_on_azure(settings):
            azure = await stack.enter_async_context(azure_of(settings, places, installation))
            handlers += azure.handlers
            collectors.append(azure.collector)
            errands += _sweeps(settings, installation, places, azure)
        if simulate is not None:
            provider = await stack.enter_async_context(_simulated(settings, simulate))
            handlers.append(provider)
            collectors.append(provider)
            detached[SOURCE] = provider
        yield registry_for(
            settings, clusters, installation, handlers=handlers, collectors=collectors, detached=detached,
            sightings=sightings, places=places, errands=errands,
        )  # fmt: skip


def collects_on_aws(settings: Settings) -> bool:
    """Also while the feature is off: then jobs that are there already are held by policy, which says so, and not for
    want of a handler."""
    return any(source.collector == CAPA for source in settings.sources.values())


@asynccontextmanager
async def aws_of(settings: Settings, places: Places, installation: Installation | None) -> "AsyncIterator[AwsSide]":
    """Without an installation nothing is drawn from budgets, and the guard is not asked."""
    # Only here: a process that has no such source does without the SDK, which takes longer to import than all the rest.
    from workers.handlers.aws.wiring import aws_side

    share = settings.worker.background_share
    quota = BudgetQuota(installation.budgets, share) if installation is not None else None
    guarded = guarded_by(Guard(installation), settings) if installation is not None else None
    # A person who asks waits as long as it takes.
    patience = None if installation is not None else timedelta(hours=1)
    memory = KeptMemory(installation) if installation is not None else None
    async with aws_side(settings, places, quota, guarded, memory=memory, patience=patience) as side:
        yield side


def collects_on_azure(settings: Settings) -> bool:
    return any(source.collector == KARPENTER_AZURE for source in settings.sources.values())


@asynccontextmanager
async def azure_of(settings: Settings, places: Places, installation: Installation | None) -> "AsyncIterator[AzureSide]":
    """Without an installation nothing is drawn from budgets."""
    # Only here, as for AWS.
    from workers.handlers.azure.wiring import azure_side

    share = settings.worker.background_share
    quota = BudgetQuota(installation.budgets, share) if installation is not None else None
    memory = KeptMemory(installation) if installation is not None else None
    async with azure_side(settings, places, quota, memory) as side:
        yield side


def _sweeps(settings: Settings, installation: Installation, places: Places, side: "AzureSide") -> list[Errand]:
    """One for each source that is swept; of all processes one makes its passes."""
    if not settings.azure.sweep.enabled:
        return []
    from workers.sweeps.wiring import sweeper_of

    return [sweeper_of(settings, installation, places, side.lister, source).run for source in settings.azure.nodes]


@asynccontextmanager
async def _simulated(settings: Settings, address: str) -> AsyncIterator[Simulated]:
    provider = Simulated(address, caller=settings.worker.name)
    try:
        await provider.__aenter__()
    except ProviderAway as error:
        raise Trouble(
            f"can't reach the simulated provider at {address} ({error}); start one with `python -m standins.provider`"
        ) from None
    try:
        yield provider
    finally:
        await provider.__aexit__(None, None, None)


class Duty:
    """What the surface may know of the worker, also before there is one."""

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
        tally = self.worker.tally
        return ProcessCounts(
            taken=tally.taken,
            settled=dict(tally.settled),
            late=tally.late,
            planned=tally.planned,
            held=tally.held,
            in_hand=self.worker.crew.busy,
        )
