"""Overview of an installation: every lane with work, and the totals.
It counts the live sets instead of reading stored statistics, so that it is always exact."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from service.engine.batch_reads import (
    age,
    batch,
    chunks,
    members,
    number,
    server_ms,
    text,
    texts,
    to_datetime,
)
from service.engine.installation import Installation
from service.engine.lease_counters import LeaseCounterStore
from service.engine.shard import Shard
from service.engine.views.limits import LimitUsage, limit_states

LANES_AT_ONCE = 100
MOST_HELD_SORTED = 10_000
"""How many held items are counted by kind, which bounds the time of the query."""

GROUP = "planners"
_SO_FAR = ("done", "throttled", "abandoned", "lost", "planner_deaths")


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """One lane over all shards. `oldest` is how long its first due job has been due."""

    lane: str
    due: int
    queued: int
    leased: int
    oldest: timedelta | None
    paused: bool
    dry_until: datetime | None


class PauseView(msgspec.Struct, frozen=True, kw_only=True):
    """A pause set by an operator; lane `*` stands for all lanes."""

    lane: str
    who: str
    since: datetime | None


class Relist(msgspec.Struct, frozen=True, kw_only=True):
    shard: int
    asked: datetime | None
    why: str


class RestoredCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that seems to be restored from a backup; named by its uid where no name is known."""

    cluster: str
    since: datetime | None
    why: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """`lag` is the number of undelivered events; `held` items need an operator, `waiting` ones do not. `done`,
    `throttled`, `abandoned`, `lost` and `planner_deaths` (planners that died while planning an event alone) are
    counters since the beginning."""

    events: int
    lag: int
    planning: int
    open: int
    due: int
    queued: int
    leased: int
    alone: int
    opening: int
    waiting: int
    waiting_deletions: int
    waiting_jobs: int
    held: int
    held_events: int
    held_deletions: int
    held_jobs: int
    dead: int
    newer: int
    done: int
    throttled: int
    abandoned: int
    lost: int
    planner_deaths: int
    workers: int
    shards: int
    oldest: timedelta | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    totals: Totals
    lanes: list[LaneView]
    budgets: list[LimitUsage]
    paused: list[PauseView]
    relists: list[Relist]
    restored: list[RestoredCluster]


class _ShardOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one shard."""

    now: int
    counts: dict[str, int]
    lag: int
    lanes: dict[str, tuple[int, int, int, float | None]]
    dry: dict[str, float]
    paused: list[PauseView]
    relist: Relist | None
    held: "Counter[str]"
    waiting: "Counter[str]"


async def overview(installation: Installation) -> Overview:
    silence = installation.settings.worker.lease * 2
    parts = [await _look(shard, silence) for shard in installation.shards]
    now = max(part.now for part in parts)
    paused = list({pause.lane: pause for part in reversed(parts) for pause in part.paused}.values())
    stopped = {pause.lane for pause in paused}
    names = sorted({lane for part in parts for lane in part.lanes})
    found = [_lane(name, parts, now, stopped) for name in names]
    lanes = [lane for lane in found if lane.queued or lane.leased or lane.lane in stopped]
    lanes.sort(key=lambda lane: (-lane.due, -lane.leased, -lane.queued, lane.lane))
    return Overview(
        at=to_datetime(now) or datetime.min,
        totals=_totals(parts, lanes, len(parts)),
        lanes=lanes,
        budgets=await limit_states(installation, names, now),
        paused=sorted(paused, key=lambda pause: pause.lane),
        relists=[part.relist for part in parts if part.relist],
        restored=await _restored(installation),
    )


async def _restored(installation: Installation) -> list[RestoredCluster]:
    found = await LeaseCounterStore(installation).restored_clusters()
    names = texts(await installation.caller.command("HGETALL", installation.keys.of(0, "clusters"))) if found else {}
    known = {uid: name for name, uid in names.items()}
    return [
        RestoredCluster(cluster=known.get(uid, uid), since=to_datetime(one.at), why=one.why)
        for uid, one in found.items()
    ]


async def pauses(shard: Shard) -> list[PauseView]:
    """The pauses that operators set on one shard."""
    (answer,) = await batch(shard.caller, [("HGETALL", shard.stem + "paused")])
    return _pauses(answer)


async def lane_names(shard: Shard) -> list[str]:
    """Lanes with work, with a pause, or waiting for a budget."""
    stem = shard.stem
    scored, leased, dry, paused = await batch(
        shard.caller,
        [("ZRANGE", stem + "lanes", 0, -1), ("ZRANGE", stem + "batches", 0, -1), ("HKEYS", stem + "dry"),
         ("HKEYS", stem + "paused")],
    )  # fmt: skip
    held = [text(batch_name).split(" ")[1] for batch_name in leased]
    return sorted({*held, *(text(lane) for lane in [*scored, *dry, *paused])} - {"*"})


async def _look(shard: Shard, silence: timedelta) -> _ShardOverview:
    stem, now = shard.stem, await server_ms(shard)
    heard = now - int(silence / timedelta(milliseconds=1))
    sets = ("open", "alone", "opening", "held", "waiting", "dead", "newer")
    commands: list[tuple[Any, ...]] = [("ZCARD", stem + name) for name in sets]
    commands += [
        ("XLEN", stem + "events"),
        ("ZCOUNT", stem + "workers", heard, "+inf"),
        ("HMGET", stem + "stats", *_SO_FAR),
        ("HMGET", stem + "meta", "relist", "relist_why"),
        ("HGETALL", stem + "paused"),
        ("HGETALL", stem + "dry"),
        ("XINFO GROUPS", stem + "events"),
    ]
    answers = await batch(shard.caller, commands)
    events, workers, kept, relist, paused, dry, groups = answers[len(sets) :]
    counts = dict(zip(sets, answers, strict=False))
    counts |= {"events": events, "workers": workers}
    counts |= {name: int(number(value)) for name, value in zip(_SO_FAR, kept, strict=True)}
    lag, counts["planning"] = _group(groups, events)
    return _ShardOverview(
        now=now,
        counts=counts,
        lag=lag,
        lanes=await _lanes(shard, now),
        dry={lane: number(until) for lane, until in texts(dry).items()},
        paused=_pauses(paused),
        relist=Relist(shard=shard.number, asked=to_datetime(relist[0]), why=text(relist[1] or b""))
        if relist[0]
        else None,
        held=await _kinds(shard, "held"),
        waiting=await _kinds(shard, "waiting"),
    )


def _group(groups: list[dict[str, Any]] | None, events: int) -> tuple[int, int]:
    """The numbers of undelivered and of pending entries. Without a group nothing was delivered."""
    for group in groups or ():
        if group["name"] == GROUP.encode():
            lag, pending = group.get("lag"), int(group["pending"])
            # The server stops counting once an entry ahead of the group was deleted. Planned entries are deleted, too,
            # so that all others are undelivered.
            return (max(0, events - pending) if lag is None else int(lag)), pending
    return events, 0


async def _lanes(shard: Shard, now: int) -> dict[str, tuple[int, int, int, float | None]]:
    """For each lane: due, queued, leased, and when its first job was due."""
    found: dict[str, tuple[int, int, int, float | None]] = {}
    for part in chunks(await lane_names(shard), LANES_AT_ONCE):
        answers = await batch(shard.caller, [command for lane in part for command in _lane_reads(shard, lane, now)])
        for lane, (*sides, leased) in zip(part, chunks(answers, 7), strict=True):
            firsts = [first[0][1] for first in (sides[2], sides[5]) if first]
            found[lane] = (sides[0] + sides[3], sides[1] + sides[4], leased, min(firsts, default=None))
    return found


def _lane_reads(shard: Shard, lane: str, now: int) -> list[tuple[Any, ...]]:
    reads: list[tuple[Any, ...]] = []
    for key in (f"{shard.stem}lane:{lane}", f"{shard.stem}lane:{lane}:urgent"):
        reads += [("ZCOUNT", key, "-inf", now), ("ZCARD", key), ("ZRANGE", key, 0, 0, "WITHSCORES")]
    return [*reads, ("ZCARD", f"{shard.stem}leases:{lane}")]


async def _kinds(shard: Shard, index: str) -> "Counter[str]":
    kinds: Counter[str] = Counter()
    async for page in members(shard, index, page=1000):
        kinds.update(member.name.partition(":")[0] for member in page)
        if kinds.total() >= MOST_HELD_SORTED:
            break
    return kinds


def _pauses(raw: dict[Any, Any] | None) -> list[PauseView]:
    found = []
    for lane, words in texts(raw).items():
        said = re.fullmatch(r"by (.*) at (\d+)", words)
        who, since = (said[1], to_datetime(said[2])) if said else (words, None)
        found.append(PauseView(lane=lane, who=who, since=since))
    return found


def _lane(name: str, parts: Sequence[_ShardOverview], now: int, stopped: set[str]) -> LaneView:
    rows = [part.lanes[name] for part in parts if name in part.lanes]
    firsts = [first for *_, first in rows if first is not None and first <= now]
    # Where shards have different times, the later one was written last.
    dry = max((part.dry.get(name, 0.0) for part in parts), default=0.0)
    return LaneView(
        lane=name,
        due=sum(row[0] for row in rows),
        queued=sum(row[1] for row in rows),
        leased=sum(row[2] for row in rows),
        oldest=age(min(firsts), now) if firsts else None,
        paused=name in stopped or "*" in stopped,
        dry_until=to_datetime(dry) if now < dry < math.inf else None,
    )


def _totals(parts: Sequence[_ShardOverview], lanes: Sequence[LaneView], shards: int) -> Totals:
    def of(name: str) -> int:
        return sum(part.counts[name] for part in parts)

    held: Counter[str] = sum((part.held for part in parts), Counter())
    waiting: Counter[str] = sum((part.waiting for part in parts), Counter())
    return Totals(
        events=of("events"),
        lag=sum(part.lag for part in parts),
        planning=of("planning"),
        open=of("open"),
        due=sum(lane.due for lane in lanes),
        queued=sum(lane.queued for lane in lanes),
        leased=sum(lane.leased for lane in lanes),
        alone=of("alone"),
        opening=of("opening"),
        waiting=of("waiting"),
        waiting_deletions=waiting["deletion"],
        waiting_jobs=waiting["job"],
        held=of("held"),
        held_events=held["event"],
        held_deletions=held["deletion"],
        held_jobs=held["job"],
        dead=of("dead"),
        newer=of("newer"),
        done=of("done"),
        throttled=of("throttled"),
        abandoned=of("abandoned"),
        lost=of("lost"),
        planner_deaths=of("planner_deaths"),
        # A worker serves every shard, and is counted once.
        workers=max(part.counts["workers"] for part in parts),
        shards=shards,
        oldest=max((lane.oldest for lane in lanes if lane.oldest is not None), default=None),
    )
