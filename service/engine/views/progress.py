"""Progress of deletions for the conditions of their objects: held and waiting jobs, and the outcome for resources.
It is read from the records, so that it does not depend on which worker wrote them."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from service.contract import FINALLY, JobRecord, Undecodable, decode_job_record
from service.engine.batch_reads import PAGE, batch, chunks, records
from service.engine.installation import Installation
from service.engine.views.deletions import StageView, deletion_view, stages_of

MOST: Final = 1_000
"""How many jobs of open stages are read of one deletion: enough to name the first few and count the rest."""

ASIDE: Final = "aside"
"""State of a job that was set aside because its workers died; it needs an operator."""

What = Literal["resource", "look", "release"]


class _PlacedJob(NamedTuple):
    what: What
    stage: StageView


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is held for an operator or waiting. `what` is a resource, the final check (`look`), or the release of
    the object; `due` is when it is tried again, in milliseconds of the epoch."""

    what: What
    target: str
    held: bool
    verdict: str
    why: str
    due: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """`why` says why there is no plan yet."""

    state: str
    why: str
    obstacles: list[Obstacle]


class RemovalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for the resources of a plan, without those that never existed, the final check and the release.
    `policy` and `withdrawn` are the decisions."""

    resources: int
    removed: int
    abandoned: int
    given_up: int
    absent: int
    policy: str
    withdrawn: str


async def progress(installation: Installation, deletions: Collection[str]) -> dict[str, Progress]:
    """For the deletions that have a record."""
    found: dict[str, Progress] = {}
    for shard in installation.shards:
        mine = [one for one in deletions if installation.keys.shard_of(one) == shard.number]
        for part in chunks(mine, PAGE):
            kept = await records(shard.caller, [f"{shard.stem}deletion:{one}" for one in part])
            known = {one: record for one, record in zip(part, kept, strict=True) if record}
            rows = {one: _open_jobs(record) for one, record in known.items()}
            asked = [one for one in known if rows[one]]
            reads: list[tuple[Any, ...]] = [
                ("HMGET", f"{shard.stem}job:{one}#{known[one]['plan']}", *rows[one]) for one in asked
            ]
            texts = dict(zip(asked, await batch(shard.caller, reads), strict=True))
            for one, record in known.items():
                obstacles = _obstacles(rows[one].values(), texts.get(one, ()))
                found[one] = Progress(
                    state=record.get("state", ""), why=record.get("held", ""), obstacles=list(obstacles)
                )
    return found


async def removal_summary(installation: Installation, deletion: str) -> RemovalSummary | None:
    """None for a deletion that was never planned."""
    shard = installation.shard_of(deletion)
    (record,) = await records(shard.caller, [f"{shard.stem}deletion:{deletion}"])
    if "plan" not in record:
        return None
    numbers = [number for number, job in _jobs(record).items() if job.what == "resource"]
    states: Counter[str] = Counter()
    for part in chunks(numbers, PAGE):
        (texts,) = await batch(shard.caller, [("HMGET", f"{shard.stem}job:{deletion}#{record['plan']}", *part)])
        states.update(_state(text) for text in texts)
    view = deletion_view(shard.number, deletion, record)
    return RemovalSummary(
        resources=len(numbers) - states["absent"], removed=states["gone"], abandoned=states["abandoned"],
        given_up=states["dead"], absent=states["absent"], policy=view.policy, withdrawn=view.withdrawn,
    )  # fmt: skip


def _jobs(record: Mapping[str, str]) -> dict[int, _PlacedJob]:
    """Every job by its number, with its stage: the last one that has it, because a job that found late targets is moved
    to a stage after them."""
    stages = stages_of(record)
    release = next((stage.first for stage in stages if stage.release), 0)
    found: dict[int, _PlacedJob] = {}
    for stage in stages:
        own = _PlacedJob(_what(stage, late=stage.first > release), stage)
        found |= dict.fromkeys(range(stage.first, stage.first + stage.jobs), own)
    return found


def _what(stage: StageView, *, late: bool) -> What:
    """The targets that were found late have numbers after the release."""
    if stage.release:
        return "release"
    return "look" if stage.chain == FINALLY and not late else "resource"


def _open_jobs(record: Mapping[str, str]) -> dict[int, What]:
    if "plan" not in record or record.get("state") not in ("running", "releasing"):
        return {}
    jobs = _jobs(record).items()
    opened = ((number, job.what) for number, job in jobs if job.stage.opened_at and not job.stage.closed_at)
    return dict(islice(opened, MOST))


def _obstacles(whats: Collection[What], texts: Sequence[bytes | None]) -> Iterator[Obstacle]:
    for what, text in zip(whats, texts, strict=False):
        job = _record(text)
        if job is not None and (job.state == ASIDE or (not job.state and job.shown)):
            aside = job.state == ASIDE
            yield Obstacle(
                what=what, target=job.target, held=aside or job.shown == "held", verdict=job.verdict, due=job.due,
                why=job.last_error if aside or job.verdict == "retry" else job.detail,
            )  # fmt: skip


def _state(text: bytes | None) -> str:
    job = _record(text)
    return "" if job is None else "absent" if job.absent else job.state


def _record(text: bytes | None) -> JobRecord | None:
    try:
        return None if text is None else decode_job_record(text)
    except Undecodable:
        return None
