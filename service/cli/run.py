"""`knell run`: everything in one process, for small installations and for trying it out.
So far that is a worker with its surface; the side that watches joins it here."""

from pathlib import Path

import click

from service.cli.session import config_option
from service.cli.work import serve, simulate_option


@click.command()
@config_option
@simulate_option
def run(config: Path | None, simulate: str | None) -> None:
    """Run everything in one process.

    SIGTERM takes nothing new and finishes, or hands back, within worker.grace; a second signal ends at once.
    """
    serve(config, simulate)
