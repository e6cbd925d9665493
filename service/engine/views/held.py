"""Queries of held and waiting items: undecodable events, deletions that can't be planned, jobs that are stuck.
Each is named `event:ID`, `deletion:ID` or `job:ID` and has a time and a reason."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from service.engine.batch_reads import Member, batch, members, records, server_ms, to_datetime
from service.engine.installation import Installation
from service.engine.shard import Shard
from service.engine.views.jobs import job_views

KINDS: Final = ("event", "deletion", "job")
INDEXES: Final = ("held", "waiting")
"""Items that need an operator, and items that continue without one."""


class HeldView(msgspec.Struct, frozen=True, kw_only=True):
    """`again` is when a deletion is planned again automatically; `fields` are those of an event, as text."""

    name: str
    kind: str
    shard: int
    since: datetime | None
    why: str
    again: datetime | None
    about: str
    fields: dict[str, str]


class HeldList(msgspec.Struct, frozen=True, kw_only=True):
    """`more` is true where the limit cut the list; `waiting` is the number of items that need no operator."""

    at: datetime | None
    held: list[HeldView]
    more: bool
    waiting: int = 0


async def list_held(
    installation: Installation, *, kind: str | None = None, limit: int = 50, waiting: bool = False
) -> HeldList:
    """The items that need an operator, or with `waiting` those that do not; the oldest first."""
    found: list[HeldView] = []
    for shard in installation.shards:
        part: list[Member] = []
        async for page in held_members(shard, kind, "waiting" if waiting else "held"):
            part += page
            if len(part) > limit:
                break
        found += await _views(shard, part[: limit + 1])
    found.sort(key=lambda view: view.since.timestamp() if view.since else 0.0)
    at = to_datetime(await server_ms(installation.shards[0]))
    counts = [(await batch(shard.caller, [("ZCARD", shard.stem + "waiting")]))[0] for shard in installation.shards]
    return HeldList(at=at, held=found[:limit], more=len(found) > limit, waiting=sum(counts))


async def held_members(shard: Shard, kind: str | None = None, index: str = "held") -> AsyncIterator[list[Member]]:
    """The members of one shard's index, in pages."""
    async for page in members(shard, index):
        yield [member for member in page if kind is None or member.name.startswith(f"{kind}:")]


async def shards_holding(installation: Installation, name: str) -> list[int]:
    """The shards in which an item of this name is held or waiting; two shards may have events with the same entry id. A
    deletion that was held counts until it is planned, also while it is being planned again."""
    found = []
    for shard in installation.shards:
        scores = await batch(shard.caller, [("ZSCORE", shard.stem + index, name) for index in INDEXES])
        if any(score is not None for score in scores):
            found.append(shard.number)
    kind, _, identity = name.partition(":")
    if found or kind != "deletion":
        return found
    shard = installation.shard_of(identity)
    ((state, held),) = await shard.read_deletions([identity], ("state", "held_at"))
    return [shard.number] if state == "published" and held else []


async def _views(shard: Shard, found: Sequence[Member]) -> list[HeldView]:
    views = [*await _events(shard, found), *await _deletions(shard, found), *await _jobs(shard, found)]
    return sorted(views, key=lambda view: view.since.timestamp() if view.since else 0.0)


def _of(found: Sequence[Member], kind: str) -> list[tuple[Member, str]]:
    return [(one, one.name.partition(":")[2]) for one in found if one.name.startswith(f"{kind}:")]


async def _events(shard: Shard, found: Sequence[Member]) -> list[HeldView]:
    rows = _of(found, "event")
    kept = await records(shard.caller, [f"{shard.stem}kept:{entry}" for _, entry in rows])
    whys = await records(shard.caller, [f"{shard.stem}why:{entry}" for _, entry in rows])
    return [
        _view(
            shard,
            one,
            why.get("why", ""),
            " ".join(f"{field}={value}" for field, value in fields.items()),
            fields,
        )
        for (one, _), fields, why in zip(rows, kept, whys, strict=True)
    ]


async def _deletions(shard: Shard, found: Sequence[Member]) -> list[HeldView]:
    rows = _of(found, "deletion")
    kept = await records(shard.caller, [f"{shard.stem}deletion:{deletion}" for _, deletion in rows])
    return [
        _view(
            shard,
            one,
            record.get("held", ""),
            f"{record.get('resource', '')} {record.get('name', '')}".strip(),
            again=record.get("again_at"),
        )
        for (one, _), record in zip(rows, kept, strict=True)
    ]


async def _jobs(shard: Shard, found: Sequence[Member]) -> list[HeldView]:
    rows = _of(found, "job")
    jobs = await job_views(shard, [job for _, job in rows], await server_ms(shard)) if rows else []
    return [
        _view(shard, one, _why(job.verdict, job.reason, job.attempts), f"{job.kind} {job.target}")
        for (one, _), job in zip(rows, jobs, strict=True)
    ]


def _why(verdict: str, reason: str, attempts: int) -> str:
    return f"failed {attempts} times, lastly: {reason}" if verdict == "retry" else f"{verdict}: {reason}"


def _view(
    shard: Shard, one: Member, why: str, about: str, fields: dict[str, str] | None = None, again: str | None = None
) -> HeldView:
    kind = one.name.partition(":")[0]
    return HeldView(
        name=one.name,
        kind=kind,
        shard=shard.number,
        since=to_datetime(one.score),
        why=why,
        again=to_datetime(again) if again else None,
        about=about,
        fields=fields or {},
    )
