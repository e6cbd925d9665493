"""`knell status`: one screen of totals, lanes and budgets, once or every second.
All numbers are read from the live data, so they are also right while no worker runs."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Group, RenderableType
from rich.live import Live

from service.cli import output, session
from service.cli.source_notices import notices_of
from service.engine.calls import ServerUnavailable
from service.engine.clients import is_unavailable
from service.engine.installation import Installation
from service.engine.lease_counters import restore_reason
from service.engine.views.overview import Overview, PauseView, overview
from service.engine.views.sources import SourceView, declared_sources

_EVERY: Final = 1.0
# Lines of the screen besides lanes and budgets, and the minimum number of lanes.
_OTHER_LINES: Final = 20
_FEWEST_LANES: Final = 3


@click.command()
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--lanes", default=20, show_default=True, help="Lanes to show, the fullest first; 0 for all.")
@session.output_option
@session.config_option
def status(watch: bool, lanes: int, form: str, config: Path | None) -> None:
    """What is going on: totals, lanes, budgets.

    In JSON durations are seconds, and every lane is there.
    """
    try:
        session.run_with_redis(lambda found: _run(found, watch=watch, lanes=lanes, as_json=form == "json"), config)
    except KeyboardInterrupt:
        # Ctrl-C is the regular end of --watch.
        if not watch:
            raise


async def _run(installation: Installation, *, watch: bool, lanes: int, as_json: bool) -> None:
    if watch and sys.stdout.isatty() and not as_json:
        await _live(installation, lanes)
        return
    while True:
        snapshot, sources = await overview(installation), await declared_sources(installation)
        if as_json:
            shown = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
            output.show_json({**shown, "sources": sources}, on_one_line=watch)
        else:
            output.show(render(snapshot, installation, lanes, sources))
        if not watch:
            return
        sys.stdout.flush()
        await asyncio.sleep(_EVERY)


async def _live(installation: Installation, lanes: int) -> None:
    """While Redis does not answer, the last screen stays, with its time."""
    snapshot, sources = await overview(installation), await declared_sources(installation)
    away = list[RenderableType]()
    with Live(console=output.console(), auto_refresh=False, screen=True) as live:
        while True:
            others = _OTHER_LINES + len(snapshot.budgets) + sum(one.troubled for one in sources)
            room = max(_FEWEST_LANES, live.console.height - others)
            shown = render(snapshot, installation, min(lanes or room, room), sources)
            live.update(Group(*away, *shown), refresh=True)
            await asyncio.sleep(_EVERY)
            try:
                snapshot, sources, away = await overview(installation), await declared_sources(installation), []
            except Exception as error:
                if not isinstance(error, ServerUnavailable) and not is_unavailable(error):
                    raise
                why = session.explain_redis_error(error, installation.settings.redis) or str(error)
                away = [output.note(f"This is from {output.moment(snapshot.at)}: {why}", "bold red")]


def render(
    snapshot: Overview, installation: Installation, lanes: int, sources: Sequence[SourceView] = ()
) -> Iterator[RenderableType]:
    """The whole screen; of the sources only their notices."""
    where = installation.settings.redis.described()
    yield output.facts(f"{where}, prefix {installation.keys.prefix}, {output.moment(snapshot.at)}", _totals(snapshot))
    yield from _warnings(snapshot)
    yield from (output.note(line, "yellow") for one in sources for line in notices_of(one, installation.settings))
    yield from _lanes(snapshot, lanes)
    yield from _budgets(snapshot)


def _totals(snapshot: Overview) -> Iterator[tuple[str, object]]:
    totals = snapshot.totals
    yield "events waiting", f"{totals.events}  (lag {totals.lag}, being planned {totals.planning})"
    yield "deletions", f"{totals.open} open, {totals.done} done"
    yield (
        "jobs",
        f"{totals.due} due, {totals.queued - totals.due} later, "
        f"{totals.leased} leased, {totals.alone} alone; {totals.opening} stages opening",
    )
    yield "oldest due", output.span(totals.oldest) or "-"
    yield "waiting", f"{totals.waiting}  ({totals.waiting_deletions} deletions, {totals.waiting_jobs} jobs)"
    yield (
        "held",
        f"{totals.held}  ({totals.held_events} events, {totals.held_deletions} deletions, {totals.held_jobs} jobs)",
    )
    yield "dead or set aside", totals.dead
    yield "newer", totals.newer
    yield (
        "so far",
        f"{totals.throttled} throttled, {totals.abandoned} abandoned, {totals.lost} lost, "
        f"{totals.planner_deaths} planners died of one event",
    )
    yield "workers heard", f"{totals.workers}, on {totals.shards} shards"


def _warnings(snapshot: Overview) -> Iterator[RenderableType]:
    for pause in snapshot.paused:
        yield output.note(pause_words(pause), "yellow")
    for one in snapshot.restored:
        since = output.moment(one.since)
        yield output.note(f"Cluster {one.cluster}, since {since}: {restore_reason(one.cluster, one.why)}.", "bold red")
    for relist in snapshot.relists:
        asked = output.moment(relist.asked)
        yield output.note(f"Shard {relist.shard}: a relist is asked for since {asked}, {relist.why}.", "yellow")
    if snapshot.totals.held or snapshot.totals.dead:
        yield output.note("Something needs a person: `knell held list`, `knell jobs list --state dead`.", "yellow")
    if snapshot.totals.lost:
        yield output.note("Records were found missing; a relist or a sweep brings them back.", "red")


def pause_words(pause: PauseView) -> str:
    what = "All lanes are" if pause.lane == "*" else f"Lane {pause.lane} is"
    return f"{what} paused by {pause.who}, since {output.moment(pause.since)}."


def _lanes(snapshot: Overview, most: int) -> Iterator[RenderableType]:
    if not snapshot.lanes:
        yield output.note("No lane has work in it.")
        return
    shown = snapshot.lanes[:most] if most > 0 else snapshot.lanes
    yield output.table(
        "lanes",
        ("lane", "due", "queued", "leased", "oldest", "paused", "dry for"),
        [
            (lane.lane, lane.due, lane.queued, lane.leased, output.span(lane.oldest),
             "paused" if lane.paused else "",
             output.span(lane.dry_until - snapshot.at) if lane.dry_until else "")
            for lane in shown
        ],
        numbers=("due", "queued", "leased", "oldest", "dry for"),
    )  # fmt: skip
    if len(shown) < len(snapshot.lanes):
        yield output.note(f"and {len(snapshot.lanes) - len(shown)} more lanes (--lanes 0 shows all)")


def _budgets(snapshot: Overview) -> Iterator[RenderableType]:
    if not snapshot.budgets:
        return
    yield output.table(
        "budgets",
        ("place", "limit", "tokens", "of", "per", "kind", "speed", "paused for"),
        [
            (one.place, one.limit, f"{one.tokens:.10g}", f"{one.capacity:.10g}", output.span(one.per),
             one.kind, f"{one.factor * one.learned:.0%}",
             output.span(one.paused_until - snapshot.at) if one.paused_until else "")
            for one in snapshot.budgets
        ],
        numbers=("tokens", "of", "per", "speed", "paused for"),
    )  # fmt: skip
