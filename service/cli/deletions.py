"""`knell deletions`: lists deletions, or shows the history of one.
Record, stages and jobs are shown at once; the audit, which takes longer to read, follows."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.status import Status

from service.cli import addresses, output, session
from service.cli.jobs import job_table
from service.contract.resource_names import qualified, short_kind
from service.engine.installation import Installation
from service.engine.views.deletions import (
    FINISHED_STATES,
    OPEN_STATES,
    DeletionDetails,
    DeletionList,
    DeletionView,
    deletion_details,
    list_deletions,
)
from service.engine.views.timeline import TimelineEntry, TimelineLine, merge_repeats, milestones, timeline

_SCAN: Final = 200_000
_WIDE: Final = ("deletion", "source", "published", "planned", "done", "left", "of")


@click.group()
def deletions() -> None:
    """List deletions, or show the whole history of one."""


@deletions.command("list")
@click.option("--state", type=click.Choice([*OPEN_STATES, *FINISHED_STATES]), help="Only those in this state.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1), help="Deletions at most.")
@session.listing_option
@session.config_option
def listing(state: str | None, limit: int, form: str, config: Path | None) -> None:
    """Open deletions, oldest first; done and dropped ones when asked for, latest first."""
    found = session.run_with_redis(lambda opened: list_deletions(opened, state=state, limit=limit), config)
    _show_listing(found, form)


def _show_listing(found: DeletionList, form: str) -> None:
    if form == "json":
        output.show_json(found)
        return
    if form == "name":
        output.show_names(addresses.kind_and_name(view.resource, view.name) for view in found.deletions)
        return
    if not found.deletions:
        output.show([output.note("No such deletion.")])
        return
    short = addresses.short_ids(view.uid for view in found.deletions)
    rows = [(short.get(view.uid, "-"), *_row(view, found.at)) for view in found.deletions]
    columns = ("id", "kind", "object", "state", "age", *_WIDE, "reason")
    output.show([output.table("deletions", columns, rows, numbers=("age", "left", "of"), wide=_WIDE, cut="reason")])
    if found.more:
        output.show([output.note(f"and more (--limit, now {len(found.deletions)})")])


def _row(view: DeletionView, now: datetime | None) -> tuple[object, ...]:
    return (
        short_kind(view.resource), qualified(view.namespace, view.name), view.state, output.age(view.published_at, now),
        view.id, view.source, output.relative(view.published_at, now), output.relative(view.planned_at, now),
        output.relative(view.done_at, now), view.left, view.jobs, _reason(view),
    )  # fmt: skip


def _reason(view: DeletionView) -> str:
    told = view.held_why or view.withdrawn
    return told or (f"{view.left} of {view.jobs} jobs left" if view.left else "")


@deletions.command("show")
@addresses.address_argument()
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
def show(
    what: str, namespace: str | None, cluster: str | None, limit: int, scan: int, form: str, config: Path | None
) -> None:
    """The whole history of one deletion, with times.

    It is addressed by its object (awscluster/shop -n team), by its id, or by the start of its object's uid. Lines of
    the story that repeat are folded into one; --output wide and json have each.
    """
    address = addresses.Address(what, namespace, cluster)
    session.run_with_redis(lambda opened: _show_deletion(opened, address, limit or None, scan, form), config)


async def _show_deletion(
    installation: Installation, address: addresses.Address, limit: int | None, scan: int, form: str
) -> None:
    screen = output.status_line()
    # Progress is shown on a terminal only.
    progress: Any = screen.status("looking for it") if screen.is_terminal else nullcontext()
    with progress as shown:
        deletion = await addresses.find_deletion(installation, address)
        found = await deletion_details(
            installation,
            deletion,
            limit=limit,
            progress=lambda read, of: _update_progress(shown, f"reading jobs: {read} of {of}"),
        )
        if found is None:
            raise session.CommandError(f"the record of deletion {output.clean(deletion)} has just expired")
        if form != "json":
            output.show(_record_tables(found))
        entries, cut = await _read_timeline(installation, found, scan, shown)
    if form == "json":
        whole = {"deletion": found.deletion, "stages": found.stages, "jobs": found.jobs, "timeline": entries}
        output.show_json({**whole, "timeline_cut_at": cut or None})
    else:
        output.show(_timeline(entries, cut, every=form == "wide"))


def _update_progress(shown: Status | None, words: str) -> None:
    if shown is not None:
        shown.update(words)


async def _read_timeline(
    installation: Installation, found: DeletionDetails, scan: int, shown: Status | None
) -> tuple[list[TimelineEntry], str]:
    """Entries of the audit; and, if it was longer than `scan`, the time up to which it was read."""
    entries, cut = list[TimelineEntry](), ""
    async for page in timeline(installation, found.deletion):
        entries += page.moments
        _update_progress(shown, f"reading the audit: {page.read} entries, at {output.moment(page.upto)}")
        if page.read >= scan:
            cut = output.moment(page.upto)
            break
    told = {(one.what, one.why) for one in entries}
    entries += [one for one in milestones(found) if (one.what, one.why) not in told]
    return sorted(entries, key=lambda one: one.at), cut


def _record_tables(found: DeletionDetails) -> Iterator[RenderableType]:
    view = found.deletion
    named = qualified(view.namespace, view.name)
    yield output.facts(f"deletion of {short_kind(view.resource)} {named}", _facts(view))
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
    yield "id", view.id
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


def _timeline(entries: list[TimelineEntry], cut: str, *, every: bool) -> Iterator[RenderableType]:
    """Repeated entries are folded into one line, unless `every`."""
    rows: list[tuple[str, ...]]
    if every:
        rows = [(output.moment(one.at), one.what, one.job.rpartition("#")[2], one.who, one.why) for one in entries]
    else:
        rows = [(output.second(one.at), _repeated(one), _jobs(one), "", one.why) for one in merge_repeats(entries)]
    yield output.table("timeline", ("at", "what", "job", "who", "why"), rows, wide=("who",), cut="why")
    if cut:
        yield output.note(f"The audit was read up to {cut}; --scan reads on.", "yellow")


def _repeated(line: TimelineLine) -> str:
    """`held 27 times in 4m30s`."""
    if line.times == 1:
        return line.what
    return f"{line.what} {line.times} times in {output.span(line.until - line.at)}"


def _jobs(line: TimelineLine) -> str:
    return f"{len(line.jobs)} jobs" if len(line.jobs) > 1 else "".join(job.rpartition("#")[2] for job in line.jobs)
