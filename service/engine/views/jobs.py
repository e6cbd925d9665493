"""Queries of jobs: lists by state or lane, and the current position of each job.
The state of a running job is the sorted set that contains it; the record has only final states."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from service.engine.batch_reads import (
    PAGE,
    batch,
    chunks,
    members,
    number,
    server_ms,
    text,
    to_datetime,
)
from service.engine.installation import Installation
from service.engine.keys import deletion_of
from service.engine.shard import Shard
from service.engine.views.overview import LANES_AT_ONCE, lane_names

ListState = Literal["due", "waiting", "leased", "alone", "dead", "held", "newer"]
LIST_STATES: Final[tuple[str, ...]] = get_args(ListState)

ENDED: Final = frozenset({"gone", "dead", "abandoned"})


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `state` is due, waiting (due later, or without a due time while its stage is not open), leased, alone
    (to be tried alone), newer, nowhere, aside, unreadable, gone, dead or abandoned; `held` is independent of it."""

    id: str
    deletion: str
    shard: int
    state: str
    held: bool
    lane: str
    kind: str
    target: str
    stage: int
    strategy: str
    urgent: bool
    attempts: int
    waits: int
    due: datetime | None
    verdict: str
    detail: str
    first_error: str
    last_error: str
    last_at: datetime | None
    deadline: datetime | None
    lease_end: datetime | None
    worker: str
    data: str
    resume: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def reason(self) -> str:
        """The reason for the state, where one was recorded."""
        return self.last_error if self.verdict == "retry" or not self.detail else self.detail


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """`more` is true where the limit cut the list."""

    at: datetime | None
    jobs: list[JobView]
    more: bool


def is_job(name: str) -> bool:
    """Whether the text has the format of a job id: DELETION#PLAN.NUMBER."""
    return re.fullmatch(r"[^#]+#\d+\.\d+", name) is not None


class _JobPosition(NamedTuple):
    """The state that a job's sorted set stands for, and its score there."""

    state: str
    score: float | None


async def list_jobs(
    installation: Installation, *, state: str | None = None, lane: str | None = None, limit: int = 50
) -> JobList:
    """Jobs state by state, ordered by time. Without a state: all unfinished jobs, and dead ones."""
    wanted = [state] if state else [name for name in LIST_STATES if name != "held"]
    found: dict[str, JobView] = {}
    now = 0
    for name in wanted:
        part: list[JobView] = []
        for shard in installation.shards:
            now = await server_ms(shard)
            ids = await _candidates(shard, name, lane, now, limit + 1)
            part += [view for view in await job_views(shard, ids, now) if _fits(view, name, lane)]
        part.sort(key=_order)
        found |= {view.id: view for view in part if view.id not in found}
        if len(found) > limit:
            break
    views = list(found.values())
    return JobList(at=to_datetime(now), jobs=views[:limit], more=len(views) > limit)


async def one_job(installation: Installation, job: str) -> JobView | None:
    if not is_job(job):
        return None
    shard = installation.shard_of_job(job)
    (view,) = await job_views(shard, [job], await server_ms(shard))
    return None if view.state == "lost" else view


async def job_views(shard: Shard, jobs: Sequence[str], now: int) -> list[JobView]:
    """Views of jobs; one without a record has the state `lost`."""
    views: list[JobView] = []
    for part in chunks(jobs, PAGE):
        found = dict(zip(part, await _records(shard, part), strict=True))
        running = [(job, record["lane"]) for job, record in found.items() if _is_running(record)]
        places = await _locate(shard, running, now)
        await _judge_unplaced(shard, found, places)
        leases = await _leases(shard) if any(place.state == "leased" for place in places.values()) else {}
        views += [_view(shard, job, found[job], places.get(job), leases) for job in part]
    return views


async def _records(shard: Shard, jobs: Sequence[str]) -> list[dict[str, str]]:
    """A record is a field of its plan's hash. One that can't be decoded has the state `unreadable`."""
    plans: dict[str, list[str]] = {}
    for job in jobs:
        plan, _, field = job.rpartition(".")
        plans.setdefault(plan, []).append(field)
    commands = [("HMGET", f"{shard.stem}job:{plan}", *fields) for plan, fields in plans.items()]
    answers = await batch(shard.caller, commands)
    found = {
        f"{plan}.{field}": _decoded(raw)
        for (plan, fields), answer in zip(plans.items(), answers, strict=True)
        for field, raw in zip(fields, answer, strict=True)
    }
    return [found[job] for job in jobs]


def _decoded(raw: bytes | None) -> dict[str, str]:
    if raw is None:
        return {}
    try:
        # Not the contract's decoder: a record of a newer version is shown as far as possible.
        record = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        record = None
    if not isinstance(record, dict) or "lane" not in record:
        return {"state": "unreadable", "data": text(raw)}
    return {str(name): str(value) for name, value in record.items()}


def _is_running(record: Mapping[str, str]) -> bool:
    return "lane" in record and "state" not in record


async def _candidates(shard: Shard, state: str, lane: str | None, now: int, limit: int) -> list[str]:
    """Ids, lowest score first. Several lanes are read in one batch, each up to the limit."""
    match state:
        case "due" | "waiting" | "leased":
            lanes = [lane] if lane else await lane_names(shard)
            return await _in_lanes(shard, state, lanes, now, limit)
        case "dead":
            return await _in_set(shard, "dead", "", lane, limit)
        case "alone":
            return await _in_set(shard, "alone", "", lane, limit)
        case _:
            return await _in_set(shard, state, "job:", lane, limit)


async def _in_lanes(shard: Shard, state: str, lanes: Sequence[str], now: int, limit: int) -> list[str]:
    low, high = {"due": ("-inf", now), "waiting": (f"({now}", "+inf"), "leased": ("-inf", "+inf")}[state]
    names = ("leases:{}",) if state == "leased" else ("lane:{}", "lane:{}:urgent")
    found: list[tuple[float, str]] = []
    for part in chunks(lanes, LANES_AT_ONCE):
        commands: list[tuple[Any, ...]] = [
            ("ZRANGEBYSCORE", shard.stem + name.format(lane), low, high, "LIMIT", 0, limit, "WITHSCORES")
            for lane in part
            for name in names
        ]
        for answer in await batch(shard.caller, commands):
            found += [(score, text(member)) for member, score in answer]
    return [job for _, job in sorted(found)[:limit]]


async def _in_set(shard: Shard, name: str, prefix: str, lane: str | None, limit: int) -> list[str]:
    found: list[str] = []
    async for page in members(shard, name):
        jobs = [member.name.removeprefix(prefix) for member in page if member.name.startswith(prefix)]
        if lane is not None:
            known = await _records(shard, jobs)
            jobs = [job for job, record in zip(jobs, known, strict=True) if record.get("lane") == lane]
        found += jobs
        if len(found) >= limit:
            break
    return found[:limit]


async def _locate(shard: Shard, jobs: Sequence[tuple[str, str]], now: int) -> dict[str, _JobPosition]:
    """Reads each sorted set once for all jobs that may be in it."""
    if not jobs:
        return {}
    stem, lanes = shard.stem, dict[str, list[str]]()
    for job, lane in jobs:
        lanes.setdefault(lane, []).append(job)
    names = [job for job, _ in jobs]
    commands: list[tuple[Any, ...]] = [
        ("ZMSCORE", f"{stem}alone", *names),
        ("ZMSCORE", f"{stem}newer", *(f"job:{job}" for job in names)),
    ]
    for lane, part in lanes.items():
        sets = (f"leases:{lane}", f"lane:{lane}", f"lane:{lane}:urgent")
        commands += [("ZMSCORE", stem + name, *part) for name in sets]
    alone, newer, *rest = await batch(shard.caller, commands)
    suspects, parked = dict(zip(names, alone, strict=True)), dict(zip(names, newer, strict=True))
    places: dict[str, _JobPosition] = {}
    for part, scores in zip(lanes.values(), chunks(rest, 3), strict=True):
        for job, leased, background, urgent in zip(part, *scores, strict=True):
            places[job] = _placed((leased, background, urgent, suspects[job], parked[job]), now)
    return places


def _placed(scores: Sequence[float | None], now: int) -> _JobPosition:
    leased, background, urgent, alone, newer = scores
    queued = background if background is not None else urgent
    if leased is not None:
        return _JobPosition("leased", leased)
    if alone is not None:
        return _JobPosition("alone", alone)
    if queued is not None:
        return _JobPosition("due" if queued <= now else "waiting", queued)
    return _JobPosition("newer" if newer is not None else "nowhere", None)


async def _judge_unplaced(
    shard: Shard, found: Mapping[str, Mapping[str, str]], places: dict[str, _JobPosition]
) -> None:
    """A job in no set waits for its stage to open; if the stage is open, the janitor will requeue the job."""
    unplaced = [job for job, place in places.items() if place.state == "nowhere"]
    commands: list[tuple[Any, ...]] = []
    for job in unplaced:
        stage = found[job].get("stage", "")
        fields = (f"opened.{stage}", f"cursor.{stage}", f"stage.{stage}")
        commands.append(("HMGET", f"{shard.stem}deletion:{deletion_of(job)}", *fields))
    for job, (opened, cursor, shape) in zip(unplaced, await batch(shard.caller, commands), strict=True):
        first = number(text(shape).split()[1]) if shape and len(shape.split()) > 1 else 0
        # While a stage is being opened, its cursor is the number of its jobs that were moved already.
        if opened is None or (cursor is not None and number(job.rpartition(".")[2]) >= first + number(cursor)):
            places[job] = _JobPosition("waiting", None)


async def _leases(shard: Shard) -> dict[float, tuple[str, float]]:
    """The worker that holds a batch and the end of its lease, by fencing token."""
    found: dict[float, tuple[str, float]] = {}
    async for page in members(shard, "batches"):
        for member in page:
            fence, _, worker = member.name.split(" ", 2)
            found[float(fence)] = (worker, member.score)
    return found


def _view(
    shard: Shard,
    job: str,
    record: Mapping[str, str],
    place: _JobPosition | None,
    leases: Mapping[float, tuple[str, float]],
) -> JobView:
    state = place.state if place else record.get("state", "lost")
    score = place.score if place else None
    worker, lease_end = leases.get(score or 0.0, ("", None)) if state == "leased" else ("", None)
    return JobView(
        id=job,
        deletion=deletion_of(job),
        shard=shard.number,
        state=state,
        held=record.get("held", "0") == "1" and state not in ENDED,
        lane=record.get("lane", ""),
        kind=record.get("kind", ""),
        target=record.get("target", ""),
        stage=int(number(record.get("stage"))),
        strategy=record.get("strategy", "required"),
        urgent=record.get("urgent", "1") != "0",
        attempts=int(number(record.get("attempts"))),
        waits=int(number(record.get("waits"))),
        due=to_datetime(score) if state in ("due", "waiting", "alone") else None,
        verdict=record.get("verdict", "gone" if state == "gone" else ""),
        detail=record.get("detail", ""),
        first_error=record.get("first_error", ""),
        last_error=record.get("last_error", ""),
        last_at=to_datetime(record.get("last_at")),
        deadline=to_datetime(record.get("deadline")),
        lease_end=to_datetime(lease_end) if lease_end is not None else None,
        worker=worker,
        data=record.get("data", ""),
        resume=record.get("resume", ""),
    )


def _order(view: JobView) -> float:
    at = view.due or view.lease_end or view.last_at
    return at.timestamp() if at else 0.0


def _fits(view: JobView, state: str, lane: str | None) -> bool:
    """Checked because a job may have moved since its set was read."""
    if lane is not None and view.lane != lane:
        return False
    if state == "held":
        return view.held or view.state == "unreadable"
    return view.state == state or (state == "dead" and view.state in ("aside", "unreadable"))
