"""Loss, partial or whole: it is noticed, said, and a relist is asked for; workers go on with what is there."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import structlog
from structlog.testing import capture_logs

from service.contract import Blocked, Event, Gone, Job, Verdict
from service.engine.attendance import Attendance, WrongShards
from standins.servers import Cluster, Sentinels, Server
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from tests.servers import kinds
from workers.handlers.protocol import Batch

MINUTE = timedelta(minutes=1)


def own(world: World) -> Server:
    assert isinstance(world.server, Server)
    return world.server


async def relist(world: World, shard: int = 0) -> str | None:
    return (await world.meta(shard)).get("relist_why")


async def asked(world: World) -> bool:
    return await relist(world) is not None


@pytest.mark.invariant(5)
async def test_an_emptied_server_is_noticed_and_a_relist_is_asked_for(own_world: World) -> None:
    world, outside = own_world, Outside()
    await world.start(outside)
    one = event("a")
    await world.publish(one)
    await world.until_done(one)
    before = (await world.meta())["epoch"]
    assert not await asked(world)
    with own(world).admin() as admin:
        admin.flushall()
    await world.until("a relist is asked for", lambda: asked(world))
    meta = await world.meta()
    assert meta["epoch"] != before
    assert "empty" in meta["relist_why"]
    assert len(await world.decisions("relist")) == 1
    # The worker goes on, and what the relist finds is carried out again.
    await world.publish(one)
    await world.until_done(one)
    assert outside.called == ["a", "a"]


async def test_an_emptied_server_is_noticed_also_if_a_newcomer_was_there_first(own_world: World) -> None:
    world = own_world
    old = Attendance(world.installation.shards)
    await old.attend()
    with own(world).admin() as admin:
        admin.flushall()
    newcomer = Attendance(world.install().shards)
    assert await newcomer.attend() is False
    assert not await asked(world)
    assert await old.attend() is True
    assert await asked(world)
    assert await old.attend() is False


async def test_a_restart_of_the_server_is_noticed_and_a_relist_is_asked_for(own_world: World) -> None:
    world, outside = own_world, Outside()
    await world.start(outside)
    one = event("a")
    await world.publish(one)
    await world.until_done(one)
    assert not await asked(world)
    await own(world).revive()
    await world.until("a relist is asked for", lambda: asked(world))
    assert "replication id changed" in str(await relist(world))
    other = event("b")
    await world.publish(other)
    await world.until_done(other)
    assert await world.state(one) == "done"


async def test_loss_is_said_in_the_log(own_world: World) -> None:
    world = own_world
    attendance = Attendance(world.installation.shards)
    await attendance.attend()
    await own(world).revive()
    structlog.reset_defaults()
    with capture_logs() as logs:
        assert await attendance.attend() is True
    assert any("writes may be lost" in entry["event"] and entry["shard"] == 0 for entry in logs)


async def test_only_the_shard_that_lost_something_asks_for_a_relist(world: World) -> None:
    if len(world.installation.shards) == 1:
        world.change("redis", shards=3)
        # Another prefix: the count is stored with the data.
        world.change("redis", prefix=world.settings.redis.prefix + "s")
        world.installation = world.install()
    attendance = Attendance(world.installation.shards)
    await attendance.attend()
    lost = world.installation.shards[1].stem
    async for key in world.client.scan_iter(match=lost.replace("{", "\\{") + "*"):
        await world.client.delete(key)
    assert await attendance.attend() is True
    found = {shard.number for shard in world.installation.shards if await relist(world, shard.number)}
    assert found == {1}


@pytest.mark.invariant(6)
async def test_a_wait_of_180_seconds_survives_a_restart_of_server_and_worker(own_world: World) -> None:
    world, outside = own_world, Outside()
    outside.answers["one"] = [Blocked("NicReservedForAnotherVm", timedelta(seconds=180))]
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    running = await world.start(outside)

    async def blocked() -> bool:
        return (await world.job(job)).get("verdict") == "blocked"

    await world.until("it waits", blocked)
    due = int((await world.job(job))["due"])
    await running.crash()
    await own(world).revive()
    await world.start(outside)
    await world.tidy()
    assert (await world.queue(LANE))[job] == due
    await world.jump(timedelta(milliseconds=due - await world.now() - 400))

    async def not_early() -> bool:
        return len(outside.calls) == 1 or await world.now() >= due

    await world.stays("it is not tried early", not_early, timedelta(milliseconds=350))
    await world.until_done(one)
    assert len(outside.calls) == 2


async def test_a_worker_that_loses_the_server_says_so_and_goes_on_where_it_was(own_world: World) -> None:
    world, outside = own_world, Outside()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        await asyncio.sleep(0.02)
        return Gone()

    outside.always = slow
    events = [outside.has(f"e{number}", [thing(f"{number}-{i}") for i in range(20)]) for number in range(20)]
    await world.publish(*events)
    structlog.reset_defaults()
    with capture_logs() as logs:
        running = await world.start(outside, concurrency=20)

        async def halfway() -> bool:
            return len(outside.calls) > 100

        await world.until("it is at work", halfway)
        own(world).kill()
        away = running.installation.caller

        async def noticed() -> bool:
            return away.away_since is not None

        await world.until("it has noticed", noticed)
        assert running.worker.ready
        await own(world).revive()
        await world.until_done(*events)
    words = [entry["event"] for entry in logs]
    assert "server away, trying on" in words
    assert "server back" in words
    # Only what was in its hands when the server went may have been called twice.
    twice = [name for name, times in Counter(outside.called).items() if times > 1]
    assert len(set(outside.called)) == 400
    assert len(twice) <= 20


@pytest.mark.parametrize("configured", [1, 5])
async def test_another_shard_count_refuses_to_start_and_says_how_to_migrate(world: World, configured: int) -> None:
    stored = 3
    world.change("redis", prefix=world.settings.redis.prefix + "s", shards=stored)
    await Attendance(world.install().shards).attend()
    world.change("redis", shards=configured)
    with pytest.raises(WrongShards) as refusal:
        await Attendance(world.install().shards).attend()
    assert f"kept in {stored} shards" in str(refusal.value)
    assert f"redis.shards says {configured}" in str(refusal.value)
    assert f"knell reshard --to {configured}" in str(refusal.value)
    running = await world.start(ready=False)
    with pytest.raises(WrongShards):
        await running.task
    world.running.remove(running)


@pytest.mark.every_server
async def test_a_flushed_script_cache_heals_itself(world: World) -> None:
    outside = Outside()
    events = [outside.has(f"e{number}", [thing(f"{number}-{i}") for i in range(10)]) for number in range(30)]

    async def slow(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        await asyncio.sleep(0.01)
        return Gone()

    outside.always = slow
    await world.publish(*events)
    await world.start(outside, concurrency=10)
    for at in (50, 100, 150, 200):

        async def reached(at: int = at) -> bool:
            return len(outside.calls) > at

        await world.until(f"{at} calls were made", reached)
        await world.client.script_flush()
    await world.until_done(*events)
    assert len(outside.calls) == 300


# ---- failover


@pytest.fixture
async def sentinel_world() -> AsyncIterator[World]:
    with Sentinels(replicas=1) as servers:
        made = World(servers, servers.settings())
        await made.arrive()
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
async def cluster_world() -> AsyncIterator[World]:
    with Cluster(replicas=1) as servers:
        made = World(servers, servers.settings())
        await made.arrive()
        try:
            yield made
        finally:
            await made.close()


async def draining(world: World, outside: Outside) -> list[Event]:
    """Two workers in the middle of 60 deletions with 10 jobs each, over three stages."""

    async def slow(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        await asyncio.sleep(0.05)
        return Gone()

    outside.always = slow
    events = [
        outside.has(f"e{number}", [thing(f"{number}-{i}", f"sim/acct/op{i % 4}", stage=i // 4) for i in range(10)])
        for number in range(60)
    ]
    world.change("redis", call_timeout=timedelta(seconds=1), connect_timeout=timedelta(seconds=1))
    world.change("worker", concurrency=15, lease=timedelta(seconds=4), attempt_timeout=timedelta(seconds=3))
    world.installation = world.install()
    await world.publish(*events)
    for _ in range(2):
        await world.start(outside)

    async def underway() -> bool:
        return len(outside.calls) > 100

    await world.until("the work is under way", underway)
    assert len(outside.calls) < 500
    return events


async def relisted(world: World, events: list[Event]) -> None:
    """What the control side does when it is asked: everything that is still going is published again."""
    await world.installation.publish(events)


@pytest.mark.long
@pytest.mark.skipif("sentinel" not in kinds(), reason="not among the kinds that are demanded")
async def test_a_sentinel_failover_while_workers_drain_loses_nothing(sentinel_world: World) -> None:
    world, outside = sentinel_world, Outside()
    servers = world.server
    assert isinstance(servers, Sentinels)
    events = await draining(world, outside)
    await servers.until_promoted(servers.kill_master())
    await relisted(world, events)
    await world.until_done(*events, within=MINUTE)
    await world.until("a relist is asked for", lambda: asked(world))
    assert len(set(outside.called)) == 600


@pytest.mark.long
@pytest.mark.skipif("cluster" not in kinds(), reason="not among the kinds that are demanded")
async def test_a_killed_master_of_a_cluster_whose_masters_all_hold_jobs_loses_nothing(cluster_world: World) -> None:
    world, outside = cluster_world, Outside()
    servers = world.server
    assert isinstance(servers, Cluster)
    await world.start(outside)
    for running in world.running:
        await running.stop()
    owners = {shard.number: servers.owner_of(shard.stem + "meta").port for shard in world.installation.shards}
    assert set(owners.values()) == {master.port for master in servers.masters}

    events = await draining(world, outside)
    holding = {owners[world.shard(one).number] for one in events if await world.state(one) == "running"}
    assert holding == set(owners.values())
    victim = servers.owner_of(world.shard(events[-1]).stem + "meta")
    lost = {number for number, port in owners.items() if port == victim.port}
    victim.kill()
    await servers.until_whole()
    await relisted(world, events)
    await world.until_done(*events, within=MINUTE)
    for number in lost:

        async def noticed(number: int = number) -> bool:
            return bool(await relist(world, number))

        await world.until("a relist is asked for", noticed)
    assert len(set(outside.called)) == 600
