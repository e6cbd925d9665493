"""Queries of deletions: lists by state, and the details of one.
A deletion's record has its event, its times and the ranges of its stages, from which jobs are counted."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from service.contract import Event
from service.engine.batch_reads import PAGE, batch, members, number, records, server_ms, text, to_datetime
from service.engine.installation import Installation
from service.engine.shard import Shard
from service.engine.views.jobs import JobView, job_views

OPEN_STATES: Final = ("published", "running", "releasing", "waiting", "held")
FINISHED_STATES: Final = ("done", "dropped")


class DeletionView(msgspec.Struct, frozen=True, kw_only=True):
    """One deletion. `left` is the number of jobs that have not ended, out of `jobs`; both are 0 before it is
    planned."""

    id: str
    shard: int
    state: str
    cluster: str
    resource: str
    namespace: str
    name: str
    uid: str
    round: int
    source: str
    reason: str
    urgent: bool
    data: str
    object_at: datetime | None
    published_at: datetime | None
    planned_at: datetime | None
    done_at: datetime | None
    held_since: datetime | None
    held_why: str
    jobs: int
    left: int
    abandoned: int
    given_up: int
    entry: str
    # The policy decision at planning time, and why the deletion was withdrawn, if it was.
    policy: str = ""
    withdrawn: str = ""

    @property
    def object(self) -> str:
        """The object as RESOURCE NAMESPACE/NAME."""
        named = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource} {named}"


class StageView(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of one chain; `left` is the number of its jobs that have not ended. Its jobs are numbered from `first`
    on. A job that found late targets is moved to a stage after them, and its number stays in this range, too."""

    number: int
    chain: str
    first: int
    jobs: int
    left: int
    opened_at: datetime | None
    closed_at: datetime | None
    release: bool


class DeletionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A deletion, its stages and its jobs, up to a limit, those that have not ended first."""

    deletion: DeletionView
    stages: list[StageView]
    jobs: list[JobView]


class DeletionList(msgspec.Struct, frozen=True, kw_only=True):
    """`more` is true where the limit cut the list."""

    at: datetime | None
    deletions: list[DeletionView]
    more: bool


async def list_deletions(installation: Installation, *, state: str | None = None, limit: int = 50) -> DeletionList:
    """Open deletions, oldest first; with a finished state, the latest first."""
    found: list[DeletionView] = []
    for shard in installation.shards:
        part: list[DeletionView] = []
        async for page in _pages(shard, state):
            keys = [f"{shard.stem}deletion:{deletion}" for deletion in page]
            rows = zip(page, await records(shard.caller, keys), strict=True)
            views = [deletion_view(shard.number, deletion, record) for deletion, record in rows]
            part += [view for view in views if state is None or view.state == state]
            if len(part) > limit:
                break
        found += part[: limit + 1]
    if state in FINISHED_STATES:
        found.sort(key=lambda view: _stamp(view.done_at), reverse=True)
    else:
        found.sort(key=lambda view: _stamp(view.published_at))
    at = to_datetime(await server_ms(installation.shards[0]))
    return DeletionList(at=at, deletions=found[:limit], more=len(found) > limit)


async def one_deletion(installation: Installation, deletion: str) -> DeletionView | None:
    shard = installation.shard_of(deletion)
    (record,) = await records(shard.caller, [f"{shard.stem}deletion:{deletion}"])
    return deletion_view(shard.number, deletion, record) if record else None


async def some_deletions(installation: Installation, ids: Iterable[str]) -> dict[str, DeletionView]:
    """The deletions of these ids that have records."""
    found = dict[str, DeletionView]()
    wanted = set(ids)
    for shard in installation.shards:
        here = sorted(one for one in wanted if installation.shard_of(one).number == shard.number)
        kept = await records(shard.caller, [f"{shard.stem}deletion:{one}" for one in here])
        found |= {
            one: deletion_view(shard.number, one, record) for one, record in zip(here, kept, strict=True) if record
        }
    return found


async def event_of(installation: Installation, deletion: str) -> list[str]:
    """The event's fields from the deletion's record as a flat list, for publishing it again."""
    shard, names = installation.shard_of(deletion), Event.__struct_fields__
    (values,) = await batch(shard.caller, [("HMGET", f"{shard.stem}deletion:{deletion}", *names)])
    return [
        part for name, value in zip(names, values, strict=True) if value is not None for part in (name, text(value))
    ]


async def deletion_details(
    installation: Installation,
    deletion: str,
    *,
    limit: int | None = 100,
    progress: Callable[[int, int], None] | None = None,
) -> DeletionDetails | None:
    """Everything except the timeline. `progress` is called with the number of jobs read and their total."""
    shard = installation.shard_of(deletion)
    (record,) = await records(shard.caller, [f"{shard.stem}deletion:{deletion}"])
    if not record:
        return None
    view = deletion_view(shard.number, deletion, record)
    now = await server_ms(shard)
    going, ended = list[JobView](), list[JobView]()
    for first in range(0, view.jobs, PAGE):
        ids = [f"{deletion}#{record['plan']}.{number}" for number in range(first, min(first + PAGE, view.jobs))]
        for job in await job_views(shard, ids, now):
            kept = ended if job.ended else going
            if limit is None or len(kept) < limit:
                kept.append(job)
        if progress:
            progress(min(first + PAGE, view.jobs), view.jobs)
    jobs = [*going, *ended]
    return DeletionDetails(deletion=view, stages=stages_of(record), jobs=jobs if limit is None else jobs[:limit])


def deletion_view(shard: int, deletion: str, record: Mapping[str, str]) -> DeletionView:
    """An empty record gives the state `lost`. Before planning, a record has its event as one JSON text."""
    if "event" in record:
        event = msgspec.json.decode(record["event"], type=dict[str, str | int])
        record = {name: str(value) for name, value in event.items()} | dict(record)
    stages = stages_of(record)
    return DeletionView(
        id=deletion,
        shard=shard,
        state=record.get("state", "lost"),
        cluster=record.get("cluster", ""),
        resource=record.get("resource", ""),
        namespace=record.get("namespace", ""),
        name=record.get("name", ""),
        uid=record.get("uid", ""),
        round=int(number(record.get("round"), 1)),
        source=record.get("source", ""),
        reason=record.get("reason", ""),
        urgent=record.get("urgent", "1") != "0",
        data=record.get("data", ""),
        object_at=to_datetime(record.get("at")),
        published_at=to_datetime(record.get("published_at")),
        planned_at=to_datetime(record.get("planned_at")),
        done_at=to_datetime(record.get("done_at")),
        held_since=to_datetime(record.get("held_since")),
        held_why=record.get("held", ""),
        jobs=max((stage.first + stage.jobs for stage in stages), default=0),
        left=sum(stage.left for stage in stages),
        abandoned=int(number(record.get("abandoned"))),
        given_up=int(number(record.get("given_up"))),
        entry=record.get("entry", ""),
        policy=record.get("policy", ""),
        withdrawn=record.get("withdrawn", ""),
    )


def stages_of(record: Mapping[str, str]) -> list[StageView]:
    names = sorted(int(field[6:]) for field in record if field.startswith("stage.") and field[6:].isdecimal())
    return [_stage(index, record) for index in names]


def _stage(index: int, record: Mapping[str, str]) -> StageView:
    # The format is "chain first-number count successor".
    shape = record[f"stage.{index}"].split()
    count = int(number(shape[2])) if len(shape) > 2 else 0
    return StageView(
        number=index,
        chain=shape[0] if shape else "",
        first=int(number(shape[1])) if len(shape) > 1 else 0,
        jobs=count,
        left=int(number(record.get(f"left.{index}"))),
        opened_at=to_datetime(record.get(f"opened.{index}")),
        closed_at=to_datetime(record.get(f"closed.{index}")),
        release=record.get("release") == str(index),
    )


async def _pages(shard: Shard, state: str | None) -> AsyncIterator[list[str]]:
    if state in FINISHED_STATES:
        async for names in _latest(shard):
            yield names
        return
    source, prefix = (state, "deletion:") if state in ("held", "waiting") else ("open", "")
    async for page in members(shard, source):
        yield [member.name.removeprefix(prefix) for member in page if member.name.startswith(prefix)]


async def _latest(shard: Shard) -> AsyncIterator[list[str]]:
    first = 0
    while True:
        command: tuple[Any, ...] = ("ZREVRANGE", f"{shard.stem}finished", first, first + PAGE - 1)
        (answer,) = await batch(shard.caller, [command])
        if not answer:
            return
        yield [text(member) for member in answer]
        first += PAGE


def _stamp(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0
