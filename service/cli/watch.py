"""`knell watch`: one watcher process with its HTTP server.
The HTTP server starts first, so that the process reports why it waits while Redis or a cluster can't be reached."""

import asyncio
from pathlib import Path

import click

from service.admission.webhook import Webhook
from service.cli.deletion_policy import Policies, deletion_policy_option
from service.cli.long_running import redis_outage, run_until_stopped
from service.cli.session import InvalidUsage, config_option
from service.engine.installation import Installation
from service.settings import Settings
from service.watching.watcher import Watcher, WatchHealth, on_signals
from service.web import Health, Metrics, WebServer
from service.web.redis_probe import RedisProbe


@click.command()
@config_option
@deletion_policy_option
def watch(config: Path | None, policies: Policies) -> None:
    """Watch the sources: mark objects, see them go, publish that.

    Several replicas share the sources by Leases. SIGTERM hands them over at once; a second signal ends at once.
    """
    run_until_stopped(config, policies, run_watcher)


async def run_watcher(settings: Settings) -> None:
    """Watcher, webhook if it is enabled, and HTTP server, until a signal stops them."""
    require_sources(settings)
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    probe = RedisProbe(settings, lambda: redis_outage(installation))
    watch_health, webhook = WatchHealth(), Webhook(settings)
    try:
        watcher = Watcher(settings, installation)
        health = Health(
            probe,
            watch_health.stage,
            lambda: [*watch_health.hindrances(), *webhook.hindrances()],
            lambda: [*watch_health.problems(), *webhook.problems()],
        )
        metrics = Metrics(probe, more=lambda: [*watch_health.metrics(), *webhook.metrics()])
        async with WebServer(settings.surface, health, metrics):
            watch_health.watcher = watcher
            on_signals([watcher.stop, webhook.stop])
            async with asyncio.TaskGroup() as group:
                group.create_task(watcher.run())
                group.create_task(webhook.run())
    finally:
        await probe.aclose()
        await installation.aclose()


def require_sources(settings: Settings) -> None:
    if not settings.sources:
        raise InvalidUsage(
            "there is nothing to watch: declare clusters and sources in the settings, such as\n"
            "  clusters: {home: {in_cluster: true}}\n"
            "  sources: {pools: {resource: nodeclaims.karpenter.sh, collector: none}}"
        )
