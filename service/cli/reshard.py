"""`knell reshard`: moves the data to another number of shards, with workers stopped.
An interrupted move is resumed by running it again. At the end it prints the setting to change."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import click
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from service.cli import session
from service.cli.output import show_json, status_line
from service.engine.installation import Installation
from service.engine.reshard.reshard import CannotReshard, Reshard, Resharded
from service.settings import Settings

T = TypeVar("T")

_WORDS: Final = {
    "marked": "marking shards",
    "settings": "copying counts",
    "copied": "copying",
    "flipped": "changing the count",
    "removed": "removing what has moved",
    "dropped": "dropping shards",
    "finished": "finishing",
}


@click.command()
@click.option("--to", "count", type=click.IntRange(1, 1024), required=True, help="The new number of shards.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@session.config_option
@session.output_option
def reshard(count: int, yes: bool, config: Path | None, form: str) -> None:
    """Move the data to another number of shards, with workers stopped.

    Stop all workers, and whatever publishes events, first. If it is interrupted, run it again.
    """
    settings = session.interactive_settings(config)
    if not yes:
        before, under_way = _call(settings, lambda found: Reshard(found, count).stored())
        words = "The move that was begun" if under_way else "A move"
        question = f"{words} from {before} to {count} shards needs all workers stopped. Go on?"
        click.confirm(question, abort=True, err=True)
    done = _call(settings, lambda found: _run(found, count))
    if form == "json":
        show_json({"before": done.before, "after": done.after, "moved": done.moved})
    else:
        click.echo(
            f"Moved from {done.before} to {done.after} shards, {done.moved} items changed their place. "
            f"Now set redis.shards (KNELL_REDIS_SHARDS) to {done.after}, then start the workers. "
            "The audit so far stays under its old keys until its retention ends; `knell deletions show` reads it there."
        )


def _call(settings: Settings, work: Callable[[Installation], Awaitable[T]]) -> T:
    """Like `session.run_with_redis`, but without the check of the shard count."""

    async def with_installation() -> T:
        installation = Installation(settings, name="knell-cli", patience=session.PATIENCE)
        try:
            await installation.connections.client.execute_command("PING")
            return await work(installation)
        finally:
            await installation.aclose()

    try:
        return asyncio.run(with_installation())
    except CannotReshard as error:
        raise session.CommandError(str(error)) from None
    except Exception as error:
        words = session.explain_redis_error(error, settings.redis)
        if words is None:
            raise
        raise session.CommandError(words) from None


async def _run(installation: Installation, count: int) -> Resharded:
    columns = (TextColumn("{task.description}"), BarColumn(pulse_style="cyan"), TextColumn("{task.completed}"))
    with Progress(*columns, console=status_line(), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def told(step: str, size: int) -> None:
            if step not in _WORDS:
                return
            if step not in tasks:
                tasks[step] = progress.add_task(_WORDS[step], total=None)
            progress.advance(tasks[step], size)

        return await Reshard(installation, count, progress=told).run(session.operator())
