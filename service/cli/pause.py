"""`knell pause` and `knell resume`: stop all lanes or one, and resume them.
Workers read the pause before every destructive call, so it also applies to jobs that are already leased."""

from pathlib import Path
from typing import NamedTuple

import click

from service.cli import output, session
from service.cli.status import pause_words
from service.contract.targets import lane_fault
from service.engine.installation import Installation
from service.engine.views.overview import PauseView, lane_names, pauses

ALL = "*"


class _PauseChange(NamedTuple):
    """`before` are the pauses before the change; `known`: the lane has jobs now."""

    changed: bool
    before: dict[str, PauseView]
    known: bool


@click.command()
@click.argument("lane", required=False)
@session.config_option
def pause(lane: str | None, config: Path | None) -> None:
    """Stop all lanes, or LANE, before the next destructive call."""
    name = _lane_name(lane)
    done = session.run_with_redis(lambda opened: _set_pause(opened, name, stop=True), config)
    what = _lanes_text(name)
    again = "" if name == ALL else f" {output.clean(name)}"
    if name in done.before:
        rest = "; shards that did not have it do now" if done.changed else ""
        click.echo(f"Already so: {output.clean(pause_words(done.before[name]))[:-1]}{rest}.")
    else:
        click.echo(f"{what} paused: no destructive call begins any more. `knell resume{again}` ends it.")
    if name != ALL and not done.known:
        click.echo("There is no work in that lane now; the pause holds when there is.")


@click.command()
@click.argument("lane", required=False)
@session.config_option
def resume(lane: str | None, config: Path | None) -> None:
    """Let all lanes, or LANE, go on."""
    name = _lane_name(lane)
    done = session.run_with_redis(lambda opened: _set_pause(opened, name, stop=False), config)
    what = _lanes_text(name)
    if name in done.before:
        since = output.moment(done.before[name].since)
        click.echo(f"{what} no longer paused (by {output.clean(done.before[name].who)}, since {since}).")
    else:
        click.echo(f"{what} not paused; nothing was changed.")
    for other in sorted(set(done.before) - {name}):
        click.echo(f"But: {output.clean(pause_words(done.before[other]))}")


def _lane_name(lane: str | None) -> str:
    if lane is None or lane == ALL:
        return ALL
    if fault := lane_fault(lane):
        raise session.InvalidUsage(fault)
    return lane


def _lanes_text(name: str) -> str:
    return "All lanes are" if name == ALL else f"Lane {output.clean(name)} is"


async def _set_pause(installation: Installation, name: str, *, stop: bool) -> _PauseChange:
    before: dict[str, PauseView] = {}
    changed = known = False
    for shard in installation.shards:
        for found in await pauses(shard):
            before.setdefault(found.lane, found)
        known |= name in await lane_names(shard) if name != ALL else True
        changed |= await shard.pause(name, stop=stop, who=session.operator())
    return _PauseChange(changed, before, known)
