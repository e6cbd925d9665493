"""`knell run`: both sides in one process, for small installations and for trying it out.
They share the connections to Redis and one surface, and stop together; without sources it is a worker alone."""

import asyncio
from pathlib import Path

import click

from service.cli.overriding import Policies, deletion_policy_option
from service.cli.serving import away, serve
from service.cli.session import config_option
from service.cli.work import Duty, handlers_of, simulate_option, work_on
from service.engine.installation import Installation
from service.kubernetes import Sightings
from service.settings import Settings
from service.watching.showing import WatchDuty
from service.watching.watcher import Watcher, on_signals
from service.web import Health, Metrics, Surface
from service.web.watch import Watch
from workers.runtime.worker import Worker


@click.command()
@config_option
@simulate_option
@deletion_policy_option
def run(config: Path | None, policies: Policies, simulate: str | None) -> None:
    """Run everything in one process: watch the sources, plan events, and carry out their jobs.

    SIGTERM hands over what is watched, takes nothing new and finishes, or hands back, within worker.grace; a second
    signal ends at once.
    """
    serve(config, policies, lambda settings: run_on(settings, simulate))


async def run_on(settings: Settings, simulate: str | None) -> None:
    """Both sides and their surface, until they are told to stop."""
    if not settings.sources:
        await work_on(settings, simulate)
        return
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    look = Watch(settings, lambda: away(installation))
    working, watching = Duty(), WatchDuty()
    try:
        sightings = Sightings()
        watcher = Watcher(settings, installation, sightings)
        health = Health(look, lambda: _stage(working, watching), watching.hindrances, watching.problems)
        async with (
            Surface(settings.surface, health, Metrics(look, working.counts, watching.metrics)),
            handlers_of(settings, installation, simulate, sightings) as registry,
        ):
            working.worker = worker = Worker(installation, registry)
            watching.watcher = watcher
            on_signals([watcher.stop, worker.stop])
            async with asyncio.TaskGroup() as group:
                group.create_task(watcher.run())
                group.create_task(worker.run())
    finally:
        await look.aclose()
        await installation.aclose()


def _stage(working: Duty, watching: WatchDuty) -> str:
    """Of two that are not equally far, what is less than working."""
    stages = (working.stage(), watching.stage())
    return next((word for word in ("stopping", "starting") if word in stages), "working")
