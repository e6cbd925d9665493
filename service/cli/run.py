"""`knell run`: watcher and worker in one process, for small installations and for trying it out.
They share the connections to Redis and one HTTP server, and stop together. Without sources it is a worker alone,
beside the webhook where that is enabled."""

import asyncio
from pathlib import Path

import click

from service.admission.webhook import Webhook
from service.cli.deletion_policy import Policies, deletion_policy_option
from service.cli.long_running import redis_outage, run_until_stopped
from service.cli.session import config_option
from service.cli.work import WorkerStatus, open_registry, run_worker
from service.engine.installation import Installation
from service.kubernetes import RecentObjects
from service.settings import Settings
from service.watching.watcher import Watcher, WatchHealth, on_signals
from service.web import Health, Metrics, WebServer
from service.web.redis_probe import RedisProbe
from workers.runtime.worker import Worker


@click.command()
@config_option
@deletion_policy_option
def run(config: Path | None, policies: Policies) -> None:
    """Run everything in one process: watch the sources, plan events, and carry out their jobs.

    SIGTERM hands over what is watched, takes nothing new and finishes, or hands back, within worker.grace; a second
    signal ends at once.
    """
    run_until_stopped(config, policies, run_watcher_and_worker)


async def run_watcher_and_worker(settings: Settings) -> None:
    """Watcher, worker, webhook if it is enabled, and HTTP server, until a signal stops them."""
    if not settings.sources and not settings.protection.webhook.enabled:
        await run_worker(settings)
        return
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    probe = RedisProbe(settings, lambda: redis_outage(installation))
    working, watching, webhook = WorkerStatus(), WatchHealth(), Webhook(settings)
    try:
        recent_objects = RecentObjects()
        watcher = Watcher(settings, installation, recent_objects)
        health = Health(
            probe,
            lambda: _stage(working, watching),
            lambda: [*watching.hindrances(), *webhook.hindrances()],
            lambda: [*watching.problems(), *webhook.problems()],
        )
        metrics = Metrics(probe, working.counts, lambda: [*watching.metrics(), *webhook.metrics()])
        async with (
            WebServer(settings.surface, health, metrics),
            open_registry(settings, installation, recent_objects) as registry,
        ):
            working.worker = worker = Worker(installation, registry)
            watching.watcher = watcher
            on_signals([watcher.stop, worker.stop, webhook.stop])
            async with asyncio.TaskGroup() as group:
                group.create_task(watcher.run())
                group.create_task(worker.run())
                group.create_task(webhook.run())
    finally:
        await probe.aclose()
        await installation.aclose()


def _stage(working: WorkerStatus, watching: WatchHealth) -> str:
    """`stopping` or `starting` if either side is, else `working`."""
    stages = (working.stage(), watching.stage())
    return next((word for word in ("stopping", "starting") if word in stages), "working")
