"""Hash slots: every key has its shard's or its budget's hash tag, and no script uses a key of another slot."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.resources import files

import pytest
import redis.asyncio as redis

from service.contract import FINALLY, Draw, Gone, Limit
from service.engine.budgets import LimitFeedback, ReservationRequest
from service.engine.guard import DeletedObject, Guard
from service.engine.lease_counters import LeaseCounterStore
from service.engine.script_arguments import UnplannedEvent, event_fields
from service.settings import GuardSettings
from standins.redis_servers import LocalRedis, LocalRedisCluster, LocalRedisSentinel
from tests.engine.engine_under_test import LEASE, EngineUnderTest, _tap
from tests.engine.scripted_provider import LANE, event, thing

RESHARDING = {"import_units", "remove_units", "finish_reshard"}
KEYLESS = {"INFO", "TIME"}
KEY_SECOND = {"XINFO", "XGROUP", "OBJECT", "MEMORY"}


def masters(engine: EngineUnderTest) -> Sequence[LocalRedis]:
    server = engine.server
    if isinstance(server, LocalRedisCluster):
        return server.masters
    return [server.master if isinstance(server, LocalRedisSentinel) else server]


@asynccontextmanager
async def watched(server: LocalRedis, seen: list[list[str]]) -> AsyncIterator[None]:
    """Every command that the server runs, those inside scripts included."""
    client = redis.Redis(host=server.host, port=server.port, decode_responses=True)

    async def read() -> None:
        async with client.monitor() as monitor:
            ready.set()
            while True:
                line = await monitor.next_command()
                seen.append([line["client_type"], *line["command"].split(" ")])

    ready = asyncio.Event()
    task = asyncio.create_task(read())
    await ready.wait()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.aclose()


async def every_move(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 10, 1)
    budgets, one = engine.installation.budgets, event("a")
    shard = engine.shard(one)
    other = engine.beside(one, "b")
    reserved = await budgets.reserve("sim/acct", 0.1, [ReservationRequest(LANE, 2, 2, 0, (Draw(limit),))])
    await budgets.return_unused("sim/acct", reserved.corrections, [(limit, 1)])
    await budgets.correct("sim/acct", [LimitFeedback(limit, 1, 5), LimitFeedback(limit, 1, pause=50)])
    jobs = await engine.lay(one, [thing("one"), thing("two"), thing("three", stage=1)])
    await shard.due_lanes(10, alone=True)
    taken = await engine.take(one, "hand", LANE, 1)
    await shard.renew("hand", LEASE, [(LANE, taken.lanes[0].fence)], patience=timedelta(seconds=1))
    await engine.settle(taken, "hand", OSError("no"))
    await shard.retry(jobs["one"], "ann")
    await shard.abandon(jobs["two"], "ann")
    taken = await engine.take(one, "hand", LANE)
    await engine.jump(2 * LEASE)
    await shard.reclaim(silence=LEASE / 2)
    await shard.due_lanes(10, alone=True)
    taken = await engine.take(one, "other", LANE, alone=jobs["one"])
    await engine.settle(taken, "other", Gone())
    entry = await engine.deliver(other)
    await shard.claim("hand", silent=timedelta(0), silence=LEASE)
    await shard.hold([UnplannedEvent(entry, "held", "why", other.deletion, list(event_fields(other)))])
    await shard.recheck([(one.deletion, 0)], "why")
    await shard.unhold(f"deletion:{other.deletion}", replay=True, who="ann", event=list(event_fields(other)))
    await shard.pause(LANE, stop=True, who="ann")
    await shard.pause(LANE, stop=False, who="ann")
    await shard.wake_lanes("sim/acct")
    await shard.read_deletions([one.deletion], ["state"])
    await shard.withdraw(one.deletion, "why")
    looking = engine.beside(one, "c")
    await engine.lay(looking, [thing("four", chain=FINALLY)])
    late = engine.finding(await engine.take(looking, "hand", LANE, 1), [thing("five", chain=FINALLY)])
    assert (await shard.append_all("hand", late)).state == "added"
    guard = Guard(engine.installation)
    await guard.admit("things", [DeletedObject("u1", 0), DeletedObject("u2", 0)], GuardSettings(most=1))
    await guard.release("things", "ann")
    witnesses = LeaseCounterStore(engine.installation)
    await witnesses.save("c1", "default/lease", "u1", 7)
    await witnesses.mark_restored("c1", "", "why")
    await engine.installation.shards[0].save_keep_decision("aws/1/eu-west-1/prod", "u1", "{}")
    await shard.register_cluster("here", "u1", ["there"], pinned=True)
    await engine.arrive()
    await engine.tidy()


@pytest.mark.every_server
async def test_no_script_touches_a_key_outside_its_slot(engine: EngineUnderTest) -> None:
    moves, _ = _tap(engine.installation)
    seen: dict[int, list[list[str]]] = {}
    async with _all_watched(masters(engine), seen):
        await every_move(engine)
        await engine.client.ping()
    known = {path.name.removesuffix(".lua") for path in (files("service.engine") / "scripts").iterdir()}
    assert set(moves) == {name for name in known if not name.startswith("_")} - RESHARDING

    checked, prefix = 0, engine.settings.redis.prefix
    for lines in seen.values():
        tag = None
        for kind, command, *words in lines:
            name = command.upper()
            if kind != "lua":
                # The text of a script may stand in front of its key.
                routed = (_tag(word) for word in words if word.startswith(prefix))
                tag = next(routed, None) if name in ("EVALSHA", "EVAL") else None
            elif name not in KEYLESS:
                assert tag is not None
                key = words[1] if name in KEY_SECOND else words[0]
                assert _tag(key) == tag, f"{name} {key} in a script for {tag}"
                checked += 1
    assert checked > 200


@pytest.mark.every_server
async def test_every_key_carries_a_hash_tag_of_its_shard_or_its_budget(engine: EngineUnderTest) -> None:
    await every_move(engine)
    prefix = engine.settings.redis.prefix
    shards = len(engine.installation.shards)
    named = re.compile(rf"{prefix}:(\{{(\d+)\}}:.+|budget:\{{[^{{}}]+\}}(:answer:.+)?)")
    keys = [key.decode() async for key in engine.client.scan_iter(match=f"{prefix}*", count=1000)]
    assert len(keys) > 10
    for key in keys:
        match = named.fullmatch(key)
        assert match, key
        assert match[2] is None or int(match[2]) < shards


def _tag(key: str) -> str | None:
    match = re.search(r"\{([^}]+)\}", key)
    return match[1] if match else None


@asynccontextmanager
async def _all_watched(servers: Sequence[LocalRedis], seen: dict[int, list[list[str]]]) -> AsyncIterator[None]:
    if not servers:
        yield
        return
    first, *rest = servers
    async with watched(first, seen.setdefault(first.port, [])), _all_watched(rest, seen):
        yield
