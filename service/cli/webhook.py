"""`knell webhook`: one process that answers the API server's reviews of deletions, with its HTTP server. It needs no
Redis, so that protection does not depend on it."""

from pathlib import Path

import click

from service.admission.webhook import Webhook
from service.cli.long_running import run_until_stopped
from service.cli.session import InvalidUsage, config_option
from service.settings import Settings
from service.watching.watcher import on_signals
from service.web import Health, Metrics, WebServer


@click.command()
@config_option
def webhook(config: Path | None) -> None:
    """Answer the API server's questions about deletions: deny those of protected objects.

    Several replicas share one certificate. SIGTERM answers for some seconds more; a second signal ends at once.
    """
    run_until_stopped(config, {}, run_webhook)


async def run_webhook(settings: Settings) -> None:
    """Webhook and HTTP server, until a signal stops them."""
    if not settings.protection.webhook.enabled:
        raise InvalidUsage(
            "the webhook is off; set protection.webhook.enabled (KNELL_PROTECTION_WEBHOOK_ENABLED=true), and once it "
            "runs apply what `knell protection manifests` prints"
        )
    process = Webhook(settings)
    health = Health(
        None,
        lambda: "stopping" if process.stopping else "working",
        process.hindrances,
        process.problems,
    )
    async with WebServer(settings.surface, health, Metrics(None, more=process.metrics)):
        on_signals([process.stop])
        await process.run()
