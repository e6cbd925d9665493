"""Slots: every key carries its shard's or its budget's hash tag, and no script leaves the slot it was sent to."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.resources import files

import pytest
import redis.asyncio as redis

from service.contract import Draw, Gone, Limit
from service.engine.budgets import Ask, Said
from service.engine.guard import Going, Guard
from service.engine.rows import Kept, flat
from service.engine.witnesses import Witnesses
from service.settings import GuardSettings
from standins.servers import Cluster, Sentinels, Server
from tests.engine.outside import LANE, event, thing
from tests.engine.world import LEASE, World, _tap

RESHARDING = {"adopt", "leave", "resharded"}
KEYLESS = {"INFO", "TIME"}
KEY_SECOND = {"XINFO", "XGROUP", "OBJECT", "MEMORY"}


def masters(world: World) -> Sequence[Server]:
    server = world.server
    if isinstance(server, Cluster):
        return server.masters
    return [server.master if isinstance(server, Sentinels) else server]


@asynccontextmanager
async def watched(server: Server, seen: list[list[str]]) -> AsyncIterator[None]:
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


async def every_move(world: World) -> None:
    limit = Limit.bucket("calls", 10, 1)
    budgets, one = world.installation.budgets, event("a")
    shard = world.shard(one)
    other = world.beside(one, "b")
    reserved = await budgets.reserve("sim/acct", 0.1, [Ask(LANE, 2, 2, 0, (Draw(limit),))])
    await budgets.give_back("sim/acct", reserved.corrections, [(limit, 1)])
    await budgets.correct("sim/acct", [Said(limit, 1, 5), Said(limit, 1, pause=50)])
    jobs = await world.lay(one, [thing("one"), thing("two"), thing("three", stage=1)])
    await shard.look(10, alone=True)
    taken = await world.take(one, "hand", LANE, 1)
    await shard.renew("hand", LEASE, [(LANE, taken.lanes[0].fence)], patience=timedelta(seconds=1))
    await world.settle(taken, "hand", OSError("no"))
    await shard.retry(jobs["one"], "ann")
    await shard.abandon(jobs["two"], "ann")
    taken = await world.take(one, "hand", LANE)
    await world.jump(2 * LEASE)
    await shard.reclaim(silence=LEASE / 2)
    await shard.look(10, alone=True)
    taken = await world.take(one, "other", LANE, alone=jobs["one"])
    await world.settle(taken, "other", Gone())
    entry = await world.deliver(other)
    await shard.claim("hand", silent=timedelta(0), silence=LEASE)
    await shard.hold([Kept(entry, "held", "why", other.deletion, list(flat(other)))])
    await shard.reconsider([(one.deletion, 0)], "why")
    await shard.unhold(f"deletion:{other.deletion}", replay=True, who="ann", event=list(flat(other)))
    await shard.pause(LANE, stop=True, who="ann")
    await shard.pause(LANE, stop=False, who="ann")
    await shard.wake("sim/acct")
    await shard.recall([one.deletion], ["state"])
    await shard.withdraw(one.deletion, "why")
    guard = Guard(world.installation)
    await guard.admit("things", [Going("u1", 0), Going("u2", 0)], GuardSettings(most=1))
    await guard.release("things", "ann")
    witnesses = Witnesses(world.installation)
    await witnesses.note("c1", "default/lease", "u1", 7)
    await witnesses.suspect("c1", "", "why")
    await world.installation.shards[0].decide("aws/1/eu-west-1/prod", "u1", "{}")
    await shard.name_cluster("here", "u1", ["there"], pinned=True)
    await world.arrive()
    await world.tidy()


@pytest.mark.every_server
async def test_no_script_touches_a_key_outside_its_slot(world: World) -> None:
    moves, _ = _tap(world.installation)
    seen: dict[int, list[list[str]]] = {}
    async with _all_watched(masters(world), seen):
        await every_move(world)
        await world.client.ping()
    known = {path.name.removesuffix(".lua") for path in (files("service.engine") / "lua").iterdir()}
    assert set(moves) == {name for name in known if not name.startswith("_")} - RESHARDING

    checked, prefix = 0, world.settings.redis.prefix
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
async def test_every_key_carries_a_hash_tag_of_its_shard_or_its_budget(world: World) -> None:
    await every_move(world)
    prefix = world.settings.redis.prefix
    shards = len(world.installation.shards)
    named = re.compile(rf"{prefix}:(\{{(\d+)\}}:.+|budget:\{{[^{{}}]+\}}(:answer:.+)?)")
    keys = [key.decode() async for key in world.client.scan_iter(match=f"{prefix}*", count=1000)]
    assert len(keys) > 10
    for key in keys:
        match = named.fullmatch(key)
        assert match, key
        assert match[2] is None or int(match[2]) < shards


def _tag(key: str) -> str | None:
    match = re.search(r"\{([^}]+)\}", key)
    return match[1] if match else None


@asynccontextmanager
async def _all_watched(servers: Sequence[Server], seen: dict[int, list[list[str]]]) -> AsyncIterator[None]:
    if not servers:
        yield
        return
    first, *rest = servers
    async with watched(first, seen.setdefault(first.port, [])), _all_watched(rest, seen):
        yield
