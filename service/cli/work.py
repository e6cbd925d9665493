"""`knell work`: one worker process with its surface, from the first log line to an orderly end.
The surface comes first: a worker whose server is away is seen to live, and says why it is not ready."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import click
import structlog

from service import logs
from service.cli.session import Trouble, config_option, explain, settings_of
from service.settings import Settings
from service.stream.installation import Installation
from service.surface import Health, Metrics, ProcessCounts, Surface, SurfaceFailed
from service.surface.watch import Watch
from workers.handlers.protocol import Handler, Planner
from workers.handlers.registry import Registry
from workers.handlers.release import Release
from workers.handlers.simulated import SOURCE, Simulated
from workers.runtime.worker import Worker

log = structlog.get_logger(__name__)


def simulate_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--simulate",
        metavar="URL",
        help="Also serve the simulated provider at this address (see python -m service.local.provider).",
    )(command)


@click.command()
@config_option
@simulate_option
def work(config: Path | None, simulate: str | None) -> None:
    """Run workers: plan events and carry out their jobs.

    SIGTERM takes nothing new and finishes, or hands back, within worker.grace; a second signal ends at once.
    """
    serve(config, simulate)


def serve(config: Path | None, simulate: str | None) -> None:
    """Run one worker until it is told to stop; what stands in its way is said in one sentence."""
    settings = settings_of(config)
    logs.configure(settings.log)
    try:
        run_loop(_serve(settings, simulate))
    except Trouble:
        raise
    except SurfaceFailed as error:
        raise Trouble(str(error)) from None
    except Exception as error:
        words = explain(_innermost(error), settings.redis)
        if words is None:
            log.exception("a loop failed, the process ends")
            raise SystemExit(1) from None
        raise Trouble(words) from None


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop

        factory = new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


async def _serve(settings: Settings, simulate: str | None) -> None:
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    watch = Watch(settings, lambda: _away(installation))
    duty = Duty()
    try:
        async with (
            Surface(settings.surface, Health(watch, duty.stage), Metrics(watch, duty.counts)),
            _handlers(simulate, settings.worker.name) as registry,
        ):
            duty.worker = Worker(installation, registry)
            duty.worker.handle_signals()
            await duty.worker.run()
    finally:
        await watch.aclose()
        await installation.aclose()


@asynccontextmanager
async def _handlers(simulate: str | None, caller: str) -> AsyncIterator[Registry]:
    """The handlers and planners of this process."""
    handlers: list[Handler] = [Release()]
    planners: dict[str, Planner] = {}
    if simulate is None:
        yield Registry(handlers, planners)
        return
    provider = Simulated(simulate, caller=caller)
    try:
        await provider.__aenter__()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Trouble(
            f"can't reach the simulated provider at {simulate} ({str(error) or type(error).__name__}); "
            "start one with `python -m service.local.provider`"
        ) from None
    try:
        handlers.append(provider)
        planners[SOURCE] = provider
        yield Registry(handlers, planners)
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


def _away(installation: Installation) -> tuple[float, str] | None:
    caller = installation.caller
    return None if caller.away_since is None else (caller.away_since, caller.away_reason)


def _innermost(error: BaseException) -> BaseException:
    """What really happened, where a task group reports a single failure."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
