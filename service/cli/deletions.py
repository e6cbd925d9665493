"""`knell deletions`: list them, or tell the whole story of one with its times.
The story is shown as it is found: record, stages and jobs at once, then what the audit adds."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.status import Status

from service.cli import output, session
from service.cli.jobs import job_table
from service.stream.installation import Installation
from service.stream.views.deletions import (
    FINISHED_STATES,
    OPEN_STATES,
    DeletionView,
    Listing,
    Story,
    list_deletions,
    story,
)
from service.stream.views.timeline import Moment, milestones, timeline

_SCAN: Final = 200_000


@click.group()
def deletions() -> None:
    """List deletions, or tell the whole story of one."""


@deletions.command("list")
@click.option("--state", type=click.Choice([*OPEN_STATES, *FINISHED_STATES]), help="Only those in this state.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1), help="Deletions at most.")
@session.output_option
@session.config_option
def listing(state: str | None, limit: int, form: str, config: Path | None) -> None:
    """Open deletions, oldest first; done and dropped ones when asked for, latest first."""
    found = session.call(lambda opened: list_deletions(opened, state=state, limit=limit), config)
    _show_listing(found, form)


def _show_listing(found: Listing, form: str) -> None:
    if form == "json":
        output.show_json(found)
        return
    if not found.deletions:
        output.show([output.note("No such deletion.")])
        return
    columns = ("deletion", "state", "object", "source", "published", "planned", "done", "left", "of", "why")
    rows = [_row(view, found.at) for view in found.deletions]
    output.show([output.table("deletions", columns, rows, numbers=("left", "of"))])
    if found.more:
        output.show([output.note(f"and more (--limit, now {len(found.deletions)})")])


def _row(view: DeletionView, now: datetime | None) -> tuple[object, ...]:
    return (
        view.id, view.state, view.object, view.source, output.relative(view.published_at, now),
        output.relative(view.planned_at, now), output.relative(view.done_at, now), view.left, view.jobs,
        view.held_why or view.withdrawn,
    )  # fmt: skip


@deletions.command("show")
@click.argument("deletion", metavar="ID")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=0), help="Jobs at most; 0 for all.")
@click.option(
    "--scan",
    default=_SCAN,
    show_default=True,
    type=click.IntRange(min=0),
    help="Audit entries to look through.",
)
@session.output_option
@session.config_option
def show(deletion: str, limit: int, scan: int, form: str, config: Path | None) -> None:
    """The whole story of one deletion, with times."""
    session.call(lambda opened: _tell(opened, deletion, limit or None, scan, form), config)


async def _tell(installation: Installation, deletion: str, limit: int | None, scan: int, form: str) -> None:
    screen = output.status_line()
    # Only a person at a terminal watches progress.
    progress: Any = screen.status("reading jobs") if screen.is_terminal else nullcontext()
    with progress as shown:
        found = await story(
            installation,
            deletion,
            limit=limit,
            progress=lambda read, of: _say(shown, f"reading jobs: {read} of {of}"),
        )
        if found is None:
            raise session.Trouble(
                f"no deletion {output.clean(deletion)} is known (finished ones expire); "
                f"`knell deletions list` shows those that are"
            )
        if form != "json":
            output.show(_record(found))
        moments, cut = await _moments(installation, found, scan, shown)
    if form == "json":
        whole = {"deletion": found.deletion, "stages": found.stages, "jobs": found.jobs, "timeline": moments}
        output.show_json({**whole, "timeline_cut_at": cut or None})
    else:
        output.show(_timeline(moments, cut))


def _say(shown: Status | None, words: str) -> None:
    if shown is not None:
        shown.update(words)


async def _moments(
    installation: Installation, found: Story, scan: int, shown: Status | None
) -> tuple[list[Moment], str]:
    """What the audit has, and, if there was more of it than we may read, up to when it was read."""
    moments, cut = milestones(found), ""
    async for page in timeline(installation, found.deletion):
        moments += page.moments
        _say(shown, f"reading the audit: {page.read} entries, at {output.moment(page.upto)}")
        if page.read >= scan:
            cut = output.moment(page.upto)
            break
    return sorted(moments, key=lambda one: one.at), cut


def _record(found: Story) -> Iterator[RenderableType]:
    view = found.deletion
    yield output.facts(f"deletion {view.id}", _facts(view))
    if found.stages:
        yield output.table(
            "stages",
            ("stage", "chain", "jobs", "left", "opened", "closed"),
            [
                (stage.number, stage.chain, stage.jobs, stage.left, output.moment(stage.opened_at),
                 output.moment(stage.closed_at))
                for stage in found.stages
            ],
            numbers=("stage", "jobs", "left"),
        )  # fmt: skip
        yield job_table(found.jobs)
    if len(found.jobs) < view.jobs:
        yield output.note(f"and {view.jobs - len(found.jobs)} more jobs (--limit 0 shows all)")


def _facts(view: DeletionView) -> Iterator[tuple[str, object]]:
    yield "state", view.state
    yield "object", view.object
    yield "cluster", view.cluster
    yield "uid", f"{view.uid}, round {view.round}"
    yield "source", f"{view.source}, {view.reason}, {'urgent' if view.urgent else 'background'}"
    yield "data", view.data
    yield "event's time", output.moment(view.object_at)
    yield "published", output.moment(view.published_at)
    yield "planned", output.moment(view.planned_at)
    yield "done", output.moment(view.done_at)
    word = "waits" if view.state == "waiting" else "held"
    yield f"{word} since", output.moment(view.held_since) if view.held_why else ""
    yield f"{word} because", view.held_why
    yield "policy", view.policy
    yield "withdrawn because", view.withdrawn
    if view.published_at and view.done_at:
        yield "took", output.span(view.done_at - view.published_at)
    yield "jobs", f"{view.left} left of {view.jobs}, {view.abandoned} abandoned, {view.given_up} given up"
    yield "shard", view.shard


def _timeline(moments: list[Moment], cut: str) -> Iterator[RenderableType]:
    yield output.table(
        "timeline",
        ("at", "what", "job", "who", "why"),
        [(output.moment(one.at), one.what, one.job.rpartition("#")[2], one.who, one.why) for one in moments],
    )
    if cut:
        yield output.note(f"The audit was read up to {cut}; --scan reads on.", "yellow")
