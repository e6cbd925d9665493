"""`knell jobs`: list jobs, show one with everything that is known of it, have one tried now, give one up.
Giving up a required job is asked about, because its object is then released without it."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from service.cli import output, session
from service.contract.targets import RELEASE, lane_fault
from service.stream.installation import Installation
from service.stream.views.deletions import one_deletion
from service.stream.views.jobs import LIST_STATES, JobView, Listing, list_jobs, one_job

_ENDED = {
    "gone": "its target is gone",
    "dead": "it was given up",
    "abandoned": "it was abandoned",
}


@click.group()
def jobs() -> None:
    """List, show, retry or abandon jobs."""


@jobs.command("list")
@click.option("--lane", help="Only the jobs of this lane.")
@click.option("--state", type=click.Choice(LIST_STATES), help="Only jobs in this state; dead also means set aside.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1), help="Jobs at most.")
@session.output_option
@session.config_option
def listing(
    lane: str | None,
    state: str | None,
    limit: int,
    form: str,
    config: Path | None,
) -> None:
    """Jobs that are under way, and those that died.

    Jobs whose stage is not open yet are seen in `knell deletions show`.
    """
    if lane is not None and (fault := lane_fault(lane)):
        raise session.Misuse(fault)
    found = session.call(lambda opened: list_jobs(opened, state=state, lane=lane, limit=limit), config)
    _show_listing(found, form)


def _show_listing(found: Listing, form: str) -> None:
    if form == "json":
        output.show_json(found)
        return
    if not found.jobs:
        output.show([output.note("No such job.")])
        return
    output.show([_brief_table(found)])
    if found.more:
        output.show([output.note(f"and more (--limit, now {len(found.jobs)})")])


def _brief_table(found: Listing) -> RenderableType:
    return output.table(
        "jobs",
        ("job", "state", "due", "lane", "target", "attempts", "last", "why"),
        [
            (job.id, state_words(job), _due_from(job, found), job.lane, f"{job.kind} {job.target}",
             job.attempts, output.relative(job.last_at, found.at), _verdict(job))
            for job in found.jobs
        ],
        numbers=("attempts",),
    )  # fmt: skip


def _due_from(job: JobView, found: Listing) -> str:
    return output.relative(job.due, found.at) or due_words(job)


def job_table(found: list[JobView]) -> RenderableType:
    """Jobs of one deletion, with times to the millisecond."""
    return output.table(
        "jobs",
        ("job", "state", "stage", "lane", "target", "attempts", "due", "last attempt", "why", "first error"),
        [
            (job.id.rpartition("#")[2], state_words(job), job.stage, job.lane, f"{job.kind} {job.target}",
             job.attempts, due_words(job), output.moment(job.last_at), _verdict(job), job.first_error)
            for job in found
        ],
        numbers=("stage", "attempts"),
    )  # fmt: skip


def state_words(job: JobView) -> str:
    words = {"aside": "set aside", "nowhere": "in no place"}.get(job.state, job.state)
    return f"{words}, held" if job.held else words


def due_words(job: JobView) -> str:
    if job.lease_end:
        return f"lease ends {output.moment(job.lease_end)}"
    if job.state == "waiting" and job.due is None:
        return f"when stage {job.stage} opens"
    return output.moment(job.due)


def _verdict(job: JobView) -> str:
    if job.verdict and job.reason:
        return f"{job.verdict}: {job.reason}"
    return job.verdict or job.reason


@jobs.command("show")
@click.argument("job", metavar="ID")
@session.output_option
@session.config_option
def show(job: str, form: str, config: Path | None) -> None:
    """Everything that is known of one job."""
    found = session.call(lambda opened: one_job(opened, job), config)
    if found is None:
        raise session.Trouble(unknown(job))
    _show_one(found, form)


def _show_one(job: JobView, form: str) -> None:
    if form == "json":
        output.show_json(job)
    else:
        output.show([output.facts(f"job {job.id}", _facts(job))])


def _facts(job: JobView) -> Iterator[tuple[str, object]]:
    yield "state", state_words(job)
    yield "deletion", job.deletion
    yield "stage", job.stage
    yield "kind", job.kind
    yield "target", job.target
    yield "data", job.data
    yield "lane", job.lane
    yield "strategy", f"{job.strategy}, {'urgent' if job.urgent else 'background'}"
    yield "due", due_words(job)
    yield "worker", job.worker
    yield "attempts", job.attempts
    yield "waits", job.waits
    yield "verdict", job.verdict
    yield "detail", job.detail
    yield "first error", job.first_error
    yield "last error", job.last_error
    yield "last attempt", output.moment(job.last_at)
    yield "deadline", output.moment(job.deadline)
    yield "resume", job.resume
    yield "shard", job.shard


@jobs.command("retry")
@click.argument("job", metavar="ID")
@session.config_option
def retry(job: str, config: Path | None) -> None:
    """Have a job tried now, its attempts counted anew."""
    click.echo(session.call(lambda opened: retry_job(opened, job), config))


async def retry_job(installation: Installation, job: str) -> str:
    """What came of it, or Trouble."""
    view = await one_job(installation, job)
    if view is None:
        raise session.Trouble(unknown(job))
    if view.state == "unreadable":
        raise session.Trouble(
            f"the record of {output.clean(job)} can't be read, so nobody can try it; look at it "
            f"(`knell jobs show`), then mend the record or abandon the job"
        )
    state = await installation.shard_of_job(job).retry(job, session.operator())
    match state:
        case "due":
            return f"{output.clean(job)} is due now, its attempts are counted anew."
        case "leased":
            return f"{output.clean(job)} is being tried at this moment; nothing was changed."
        case "waiting":
            raise session.Trouble(f"{job} waits for its stage to open; it will be tried then")
        case "unknown":
            raise session.Trouble(unknown(job))
        case _:
            raise session.Trouble(ended(job, state))


@jobs.command("abandon")
@click.argument("job", metavar="ID")
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def abandon(job: str, yes: bool, config: Path | None) -> None:
    """Give a job up; its deletion goes on without it.

    A required job is asked about: its object will be released although the target may still be there.
    """
    click.echo(abandon_job(job, yes=yes, config=config))


def abandon_job(job: str, *, yes: bool, config: Path | None) -> str:
    """What came of it, or Trouble. Nobody holds a connection while he thinks."""
    question = session.call(lambda opened: _question(opened, job), config)
    if question and not yes:
        confirm(question)
    state = session.call(lambda opened: opened.shard_of_job(job).abandon(job, session.operator()), config)
    match state:
        case "abandoned":
            return f"{output.clean(job)} is abandoned; a call that was under way may still come to its end."
        case "release":
            raise session.Trouble(_release(job))
        case "unknown":
            raise session.Trouble(unknown(job))
        case _:
            raise session.Trouble(ended(job, state))


async def _question(installation: Installation, job: str) -> str:
    """What to ask before a job is given up; nothing for a best-effort one."""
    view = await one_job(installation, job)
    if view is None:
        raise session.Trouble(unknown(job))
    if view.ended:
        raise session.Trouble(ended(job, view.state))
    if view.state == "unreadable":
        return output.clean(
            f"The record of {job} can't be read. If you abandon it, its object will be released without it, "
            f"and its target may be left behind with nobody to remove it. Abandon it?"
        )
    if view.kind == RELEASE:
        raise session.Trouble(_release(job))
    if view.strategy != "required":
        return ""
    deletion = await one_deletion(installation, view.deletion)
    whose = deletion.object if deletion else view.deletion
    return output.clean(
        f"{job} is required. If you abandon it, {whose} will be released without it, and "
        f"{view.kind} {view.target} may be left behind with nobody to remove it. Abandon it?"
    )


def confirm(question: str) -> None:
    """Ends the command unless a person says yes."""
    try:
        agreed = click.confirm(question)
    except click.Abort:
        raise session.Trouble("nothing was changed, for nobody answered; --yes says it beforehand") from None
    if not agreed:
        raise session.Trouble("nothing was changed")


def unknown(job: str) -> str:
    name = output.clean(job)
    return f"no job {name} is known (its record may have expired); `knell jobs list` shows those that are"


def ended(job: str, state: str) -> str:
    return f"{output.clean(job)} has ended already: {_ENDED.get(state, state)}"


def _release(job: str) -> str:
    return (
        f"{output.clean(job)} is the release of its object, without which nothing is ever done; it can't be "
        f"abandoned, only retried"
    )
