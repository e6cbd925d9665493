"""`knell guard`: shows the guard of every source, and releases one that has tripped.
A release replans every deletion that the guard held; later deletions are counted from zero."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import click

from service.cli import output, session
from service.engine.guard import Guard, GuardView, HeldDeletion
from service.engine.installation import Installation

_STEP = 200
_ROUNDS = 10
_MOMENT = 0.5


class _Released(NamedTuple):
    """`again` is the guard after the release."""

    replayed: int
    again: GuardView


@click.group()
def guard() -> None:
    """What holds a source when too much of it goes at once: status, release."""


@guard.command("status")
@session.output_option
@session.config_option
def status(form: str, config: Path | None) -> None:
    """Every source: what was let through in its window, what the limit is, what is held."""
    views = session.run_with_redis(lambda opened: Guard(opened).status(), config)
    if form == "json":
        output.show_json({"guards": views})
        return
    if not views:
        output.show([output.note("There is no source, neither in the settings nor on the server.")])
        return
    columns = ("source", "state", "counted", "limit", "owned", "held", "released")
    rows = [
        (
            view.source,
            _state(view),
            view.counted,
            _or_dash(view.limit),
            _or_dash(view.owned),
            view.held,
            _released_by(view),
        )
        for view in views
    ]
    output.show([output.table("guards", columns, rows, numbers=("counted", "limit", "owned", "held"))])
    for view in views:
        if view.tripped is not None:
            output.show([output.note(f"{view.source}: {view.why}")])


@guard.command("release")
@click.argument("source")
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def release(source: str, yes: bool, config: Path | None) -> None:
    """Release everything that the guard of SOURCE holds, and count from zero."""
    view, found = session.run_with_redis(lambda opened: _read_guard(opened, source), config)
    if view.tripped is None and not found:
        click.echo(f"The guard of {output.clean(source)} has not tripped and holds nothing; nothing was changed.")
        return
    if not yes:
        session.confirm(output.clean(_question(view, len(found))))
    done = session.run_with_redis(lambda opened: _release(opened, source), config)
    click.echo(f"The guard of {output.clean(source)} is released; {_count_deletions(done.replayed)} planned again.")
    if done.again.tripped is not None:
        raise session.CommandError(
            f"meanwhile it has tripped again, and holds what was deleted since; "
            f"`knell guard status` tells more ({output.clean(done.again.why)})"
        )


def _question(view: GuardView, held: int) -> str:
    since = f" since {output.moment(view.tripped)} ({view.why})" if view.tripped is not None else ""
    what = f"The guard of {view.source} holds {held} deletions{since}."
    return f"{what} If you release it, all of them are carried out. Release it?"


async def _read_guard(installation: Installation, source: str) -> tuple[GuardView, list[HeldDeletion]]:
    opened = Guard(installation)
    return await _guard_of(opened, source), await opened.held(source)


async def _guard_of(opened: Guard, source: str) -> GuardView:
    views = await opened.status()
    for view in views:
        if view.source == source:
            return view
    known = ", ".join(output.clean(view.source) for view in views) or "none"
    raise session.InvalidUsage(f"no source {output.clean(source)} is known; there are: {known}")


async def _release(installation: Installation, source: str) -> _Released:
    opened, who, replayed = Guard(installation), session.operator(), 0
    await opened.release(source, who)
    screen = output.status_line()
    # Progress is shown on a terminal only.
    progress: Any = screen.status("planning again") if screen.is_terminal else nullcontext()
    with progress as shown:
        for _ in range(_ROUNDS):
            found = await opened.held(source)
            for first in range(0, len(found), _STEP):
                replayed += await opened.replay(found[first : first + _STEP], who)
                if shown is not None:
                    shown.update(f"planning again: {replayed}, of this round {first} of {len(found)}")
            again = await _guard_of(opened, source)
            if not found or again.tripped is not None:
                break
            # A planner that read the guard before the release may still record a held deletion.
            await asyncio.sleep(_MOMENT)
    return _Released(replayed, await _guard_of(opened, source))


def _state(view: GuardView) -> str:
    if view.tripped is not None:
        return f"holds new ones since {output.moment(view.tripped)}"
    return "off" if view.limit is None else "lets through"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _released_by(view: GuardView) -> str:
    return f"{output.moment(view.released)} by {view.released_by}" if view.released is not None else ""


def _count_deletions(count: int) -> str:
    return "1 deletion is" if count == 1 else f"{count} deletions are"
