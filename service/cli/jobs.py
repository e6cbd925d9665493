"""`knell jobs`: lists jobs, shows one, retries one at once, and abandons one.
Abandoning a required job needs a confirmation, because its object is then released without it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from rich.console import RenderableType

from service.cli import addresses, output, session
from service.contract.resource_names import short_kind
from service.contract.targets import RELEASE, lane_fault
from service.engine.installation import Installation
from service.engine.views.deletions import DeletionView, one_deletion, some_deletions
from service.engine.views.jobs import LIST_STATES, JobList, JobView, list_jobs, one_job

_JOB = "KIND/NAME[#JOB]|ID"
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
@session.listing_option
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
        raise session.InvalidUsage(fault)
    found, whose = session.run_with_redis(lambda opened: _read_jobs(opened, state, lane, limit), config)
    _show_listing(found, whose, form)


async def _read_jobs(
    installation: Installation, state: str | None, lane: str | None, limit: int
) -> tuple[JobList, dict[str, DeletionView]]:
    found = await list_jobs(installation, state=state, lane=lane, limit=limit)
    return found, await some_deletions(installation, (job.deletion for job in found.jobs))


def _show_listing(found: JobList, whose: Mapping[str, DeletionView], form: str) -> None:
    if form == "json":
        output.show_json(found)
        return
    if form == "name":
        output.show_names(job_name(job.id, whose.get(job.deletion)) for job in found.jobs)
        return
    if not found.jobs:
        output.show([output.note("No such job.")])
        return
    output.show([_brief_table(found, whose)])
    if found.more:
        output.show([output.note(f"and more (--limit, now {len(found.jobs)})")])


def _brief_table(found: JobList, whose: Mapping[str, DeletionView]) -> RenderableType:
    wide = ("id", "object", "lane", "whole target", "attempts", "last")
    short = addresses.short_ids(view.uid for view in whose.values())
    return output.table(
        "jobs",
        ("job", "state", "due", "target", *wide, "reason"),
        [
            (short_job(job.id, whose.get(job.deletion), short), state_words(job), _due_from(job, found),
             short_target(job), job.id, whose[job.deletion].object if job.deletion in whose else "", job.lane,
             f"{job.kind} {job.target}", job.attempts, output.relative(job.last_at, found.at), _reason(job))
            for job in found.jobs
        ],
        numbers=("attempts",),
        wide=wide,
        cut="reason",
    )  # fmt: skip


def job_name(job: str, view: DeletionView | None) -> str:
    """The job's address by its object, or its id if the record of its deletion is gone."""
    if view is None:
        return job
    return f"{addresses.kind_and_name(view.resource, view.name)}#{job.rpartition('#')[2]}"


def short_job(job: str, view: DeletionView | None, short: Mapping[str, str]) -> str:
    if view is None:
        return job
    return f"{short.get(view.uid) or f'{short_kind(view.resource)}/{view.name}'}#{job.rpartition('#')[2]}"


def short_target(job: JobView) -> str:
    """Kind without provider, and the last part of an id that is a path or an ARN."""
    last = job.target.rpartition(":")[2] if job.target.startswith("arn:") else job.target
    return f"{job.kind.rpartition('.')[2]} {last.rpartition('/')[2] if last.startswith('/') else last}"


def _due_from(job: JobView, found: JobList) -> str:
    return output.relative(job.due, found.at) or due_words(job)


def job_table(found: list[JobView]) -> RenderableType:
    """Jobs of one deletion."""
    wide = ("lane", "whole target", "attempts", "due", "last attempt", "first error")
    return output.table(
        "jobs",
        ("job", "state", "stage", "target", *wide, "reason"),
        [
            (job.id.rpartition("#")[2], state_words(job), job.stage, short_target(job), job.lane,
             f"{job.kind} {job.target}", job.attempts, due_words(job), output.moment(job.last_at), job.first_error,
             _reason(job))
            for job in found
        ],
        numbers=("stage", "attempts"),
        wide=wide,
        cut="reason",
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


def _reason(job: JobView) -> str:
    if job.verdict and job.reason:
        return f"{job.verdict}: {job.reason}"
    return job.verdict or job.reason


@jobs.command("show")
@addresses.address_argument(_JOB)
@session.output_option
@session.config_option
def show(what: str, namespace: str | None, cluster: str | None, form: str, config: Path | None) -> None:
    """Everything that is known of one job.

    A job is addressed by its object and its number there (awscluster/shop#1.3 -n team), by its id, or by the id as
    `knell jobs list` shortens it. The number may be left out where only one job is under way.
    """
    found = session.run_with_redis(
        lambda opened: _find_job(opened, addresses.Address(what, namespace, cluster)), config
    )
    _show_one(found, form)


async def _find_job(installation: Installation, address: addresses.Address) -> JobView:
    job = await addresses.find_job(installation, address)
    found = await one_job(installation, job)
    if found is None:
        raise session.CommandError(job_not_found(job))
    return found


def _show_one(job: JobView, form: str) -> None:
    if form == "json":
        output.show_json(job)
    else:
        output.show([output.facts(f"job {job.id}", _job_facts(job))])


def _job_facts(job: JobView) -> Iterator[tuple[str, object]]:
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
@addresses.address_argument(_JOB)
@session.config_option
def retry(what: str, namespace: str | None, cluster: str | None, config: Path | None) -> None:
    """Try a job now, with its attempts counted from zero. It is addressed as in `knell jobs show`."""
    address = addresses.Address(what, namespace, cluster)

    async def addressed(installation: Installation) -> str:
        return await retry_job(installation, await addresses.find_job(installation, address))

    click.echo(session.run_with_redis(addressed, config))


async def retry_job(installation: Installation, job: str) -> str:
    """Returns the message for the operator. Raises CommandError."""
    view = await one_job(installation, job)
    if view is None:
        raise session.CommandError(job_not_found(job))
    if view.state == "unreadable":
        raise session.CommandError(
            f"the record of {output.clean(job)} can't be read, so it can't be tried; look at it "
            f"(`knell jobs show`), then mend the record or abandon the job"
        )
    state = await installation.shard_of_job(job).retry(job, session.operator())
    match state:
        case "due":
            return f"{output.clean(job)} is due now, its attempts are counted from zero."
        case "leased":
            return f"{output.clean(job)} is being tried at this moment; nothing was changed."
        case "waiting":
            raise session.CommandError(f"{job} waits for its stage to open; it will be tried then")
        case "unknown":
            raise session.CommandError(job_not_found(job))
        case _:
            raise session.CommandError(job_ended(job, state))


@jobs.command("abandon")
@addresses.address_argument(_JOB)
@click.option("--yes", is_flag=True, help="Don't ask.")
@session.config_option
def abandon(what: str, namespace: str | None, cluster: str | None, yes: bool, config: Path | None) -> None:
    """Give a job up; its deletion goes on without it.

    A required job is asked about: its object will be released although the target may still be there. It is addressed
    as in `knell jobs show`.
    """
    address = addresses.Address(what, namespace, cluster)
    job = session.run_with_redis(lambda opened: addresses.find_job(opened, address, strict=True), config)
    click.echo(abandon_job(job, yes=yes, config=config))


def abandon_job(job: str, *, yes: bool, config: Path | None) -> str:
    """Returns the message for the operator. Raises CommandError. No connection is open while the operator is asked."""
    question = session.run_with_redis(lambda opened: _question(opened, job), config)
    if question and not yes:
        session.confirm(question)
    state = session.run_with_redis(lambda opened: opened.shard_of_job(job).abandon(job, session.operator()), config)
    match state:
        case "abandoned":
            return f"{output.clean(job)} is abandoned; a call that was under way may still come to its end."
        case "release":
            raise session.CommandError(_release_not_abandoned(job))
        case "unknown":
            raise session.CommandError(job_not_found(job))
        case _:
            raise session.CommandError(job_ended(job, state))


async def _question(installation: Installation, job: str) -> str:
    """The confirmation before a job is abandoned; empty for a best-effort job."""
    view = await one_job(installation, job)
    if view is None:
        raise session.CommandError(job_not_found(job))
    if view.ended:
        raise session.CommandError(job_ended(job, view.state))
    if view.state == "unreadable":
        return output.clean(
            f"The record of {job} can't be read. If you abandon it, its object will be released without it, "
            f"and its target may be left behind, and Knell will not remove it. Abandon it?"
        )
    if view.kind == RELEASE:
        raise session.CommandError(_release_not_abandoned(job))
    if view.strategy != "required":
        return ""
    deletion = await one_deletion(installation, view.deletion)
    whose = deletion.object if deletion else view.deletion
    return output.clean(
        f"{job} is required. If you abandon it, {whose} will be released without it, and "
        f"{view.kind} {view.target} may be left behind, and Knell will not remove it. Abandon it?"
    )


def job_not_found(job: str) -> str:
    name = output.clean(job)
    return f"no job {name} is known (its record may have expired); `knell jobs list` shows those that are"


def job_ended(job: str, state: str) -> str:
    return f"{output.clean(job)} has ended already: {_ENDED.get(state, state)}"


def _release_not_abandoned(job: str) -> str:
    return (
        f"{output.clean(job)} is the release of its object, without which nothing is ever done; it can't be "
        f"abandoned, only retried"
    )
