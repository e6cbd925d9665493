"""`knell watch`: the watch side alone, with its surface, from the first log line to the Leases handed over.
The surface comes first: a process that reaches neither Redis nor a cluster is seen to live, and says why it waits."""

from pathlib import Path

import click

from service.cli.overriding import Policies, deletion_policy_option
from service.cli.serving import away, serve
from service.cli.session import Misuse, config_option
from service.engine.installation import Installation
from service.settings import Settings
from service.watching.showing import WatchDuty
from service.watching.watcher import Watcher
from service.web import Health, Metrics, Surface
from service.web.watch import Watch


@click.command()
@config_option
@deletion_policy_option
def watch(config: Path | None, policies: Policies) -> None:
    """Watch the sources: mark objects, see them go, publish that.

    Several replicas share the sources by Leases. SIGTERM hands them over at once; a second signal ends at once.
    """
    serve(config, policies, watch_on)


async def watch_on(settings: Settings) -> None:
    """The watch side and its surface, until it is told to stop."""
    demand_sources(settings)
    installation = Installation(settings, name=f"knell-{settings.worker.name}")
    look = Watch(settings, lambda: away(installation))
    duty = WatchDuty()
    try:
        watcher = Watcher(settings, installation)
        health = Health(look, duty.stage, duty.hindrances, duty.problems)
        async with Surface(settings.surface, health, Metrics(look, more=duty.metrics)):
            duty.watcher = watcher
            watcher.handle_signals()
            await watcher.run()
    finally:
        await look.aclose()
        await installation.aclose()


def demand_sources(settings: Settings) -> None:
    if not settings.sources:
        raise Misuse(
            "there is nothing to watch: declare clusters and sources in the settings, such as\n"
            "  clusters: {home: {in_cluster: true}}\n"
            "  sources: {pools: {resource: nodeclaims.karpenter.sh, collector: none}}"
        )
