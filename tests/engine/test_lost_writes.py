"""Lost writes, in part or all: detected, logged, and followed by a relist; workers continue with what is there."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import structlog
from structlog.testing import capture_logs

from service.contract import Blocked, Event, Gone, Job, Verdict
from service.engine.epoch import EpochTracker, ShardCountMismatch
from standins.redis_servers import LocalRedis, LocalRedisCluster, LocalRedisSentinel
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.redis_servers import kinds
from workers.handlers.protocol import Batch

MINUTE = timedelta(minutes=1)


def own(engine: EngineUnderTest) -> LocalRedis:
    assert isinstance(engine.server, LocalRedis)
    return engine.server


async def relist(engine: EngineUnderTest, shard: int = 0) -> str | None:
    return (await engine.meta(shard)).get("relist_why")


async def asked(engine: EngineUnderTest) -> bool:
    return await relist(engine) is not None


@pytest.mark.invariant(5)
async def test_an_emptied_server_is_noticed_and_a_relist_is_asked_for(own_engine: EngineUnderTest) -> None:
    engine, provider = own_engine, ScriptedProvider()
    await engine.start(provider)
    one = event("a")
    await engine.publish(one)
    await engine.until_done(one)
    before = (await engine.meta())["epoch"]
    assert not await asked(engine)
    with own(engine).admin() as admin:
        admin.flushall()
    await engine.until("a relist is requested", lambda: asked(engine))
    meta = await engine.meta()
    assert meta["epoch"] != before
    assert "empty" in meta["relist_why"]
    assert len(await engine.decisions("relist")) == 1
    # The worker goes on, and what the relist finds is carried out again.
    await engine.publish(one)
    await engine.until_done(one)
    assert provider.called == ["a", "a"]


async def test_an_emptied_server_is_noticed_also_if_a_newcomer_was_there_first(own_engine: EngineUnderTest) -> None:
    engine = own_engine
    old = EpochTracker(engine.installation.shards)
    await old.check()
    with own(engine).admin() as admin:
        admin.flushall()
    newcomer = EpochTracker(engine.install().shards)
    assert await newcomer.check() is False
    assert not await asked(engine)
    assert await old.check() is True
    assert await asked(engine)
    assert await old.check() is False


async def test_a_restart_of_the_server_is_noticed_and_a_relist_is_asked_for(own_engine: EngineUnderTest) -> None:
    engine, provider = own_engine, ScriptedProvider()
    await engine.start(provider)
    one = event("a")
    await engine.publish(one)
    await engine.until_done(one)
    assert not await asked(engine)
    await own(engine).revive()
    await engine.until("a relist is requested", lambda: asked(engine))
    assert "replication id changed" in str(await relist(engine))
    other = event("b")
    await engine.publish(other)
    await engine.until_done(other)
    assert await engine.state(one) == "done"


async def test_loss_is_said_in_the_log(own_engine: EngineUnderTest) -> None:
    engine = own_engine
    epochs = EpochTracker(engine.installation.shards)
    await epochs.check()
    await own(engine).revive()
    structlog.reset_defaults()
    with capture_logs() as logs:
        assert await epochs.check() is True
    assert any("writes may be lost" in entry["event"] and entry["shard"] == 0 for entry in logs)


async def test_only_the_shard_that_lost_something_asks_for_a_relist(engine: EngineUnderTest) -> None:
    if len(engine.installation.shards) == 1:
        engine.change("redis", shards=3)
        # Another prefix: the count is stored with the data.
        engine.change("redis", prefix=engine.settings.redis.prefix + "s")
        engine.installation = engine.install()
    epochs = EpochTracker(engine.installation.shards)
    await epochs.check()
    lost = engine.installation.shards[1].stem
    async for key in engine.client.scan_iter(match=lost.replace("{", "\\{") + "*"):
        await engine.client.delete(key)
    assert await epochs.check() is True
    found = {shard.number for shard in engine.installation.shards if await relist(engine, shard.number)}
    assert found == {1}


@pytest.mark.invariant(6)
async def test_a_wait_of_180_seconds_survives_a_restart_of_server_and_worker(own_engine: EngineUnderTest) -> None:
    engine, provider = own_engine, ScriptedProvider()
    provider.answers["one"] = [Blocked("NicReservedForAnotherVm", timedelta(seconds=180))]
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    running = await engine.start(provider)

    async def blocked() -> bool:
        return (await engine.job(job)).get("verdict") == "blocked"

    await engine.until("it waits", blocked)
    due = int((await engine.job(job))["due"])
    await running.crash()
    await own(engine).revive()
    await engine.start(provider)
    await engine.tidy()
    assert (await engine.queue(LANE))[job] == due
    await engine.jump(timedelta(milliseconds=due - await engine.now() - 400))

    async def not_early() -> bool:
        return len(provider.calls) == 1 or await engine.now() >= due

    await engine.stays("it is not tried early", not_early, timedelta(milliseconds=350))
    await engine.until_done(one)
    assert len(provider.calls) == 2


async def test_a_worker_that_loses_the_server_says_so_and_goes_on_where_it_was(own_engine: EngineUnderTest) -> None:
    engine, provider = own_engine, ScriptedProvider()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        await asyncio.sleep(0.02)
        return Gone()

    provider.always = slow
    events = [provider.has(f"e{number}", [thing(f"{number}-{i}") for i in range(20)]) for number in range(20)]
    await engine.publish(*events)
    structlog.reset_defaults()
    with capture_logs() as logs:
        running = await engine.start(provider, concurrency=20)

        async def halfway() -> bool:
            return len(provider.calls) > 100

        await engine.until("it is at work", halfway)
        own(engine).kill()
        away = running.installation.caller

        async def noticed() -> bool:
            return away.unavailable_since is not None

        await engine.until("it has noticed", noticed)
        assert running.worker.ready
        await own(engine).revive()
        await engine.until_done(*events)
    words = [entry["event"] for entry in logs]
    assert "server unavailable, retrying" in words
    assert "server available again" in words
    # Only what was in its hands when the server went may have been called twice.
    twice = [name for name, times in Counter(provider.called).items() if times > 1]
    assert len(set(provider.called)) == 400
    assert len(twice) <= 20


@pytest.mark.parametrize("configured", [1, 5])
async def test_another_shard_count_refuses_to_start_and_says_how_to_migrate(
    engine: EngineUnderTest, configured: int
) -> None:
    stored = 3
    engine.change("redis", prefix=engine.settings.redis.prefix + "s", shards=stored)
    await EpochTracker(engine.install().shards).check()
    engine.change("redis", shards=configured)
    with pytest.raises(ShardCountMismatch) as refusal:
        await EpochTracker(engine.install().shards).check()
    assert f"kept in {stored} shards" in str(refusal.value)
    assert f"redis.shards says {configured}" in str(refusal.value)
    assert f"knell reshard --to {configured}" in str(refusal.value)
    running = await engine.start(ready=False)
    with pytest.raises(ShardCountMismatch):
        await running.task
    engine.running.remove(running)


@pytest.mark.every_server
async def test_a_flushed_script_cache_heals_itself(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    events = [provider.has(f"e{number}", [thing(f"{number}-{i}") for i in range(10)]) for number in range(30)]

    async def slow(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        await asyncio.sleep(0.01)
        return Gone()

    provider.always = slow
    await engine.publish(*events)
    await engine.start(provider, concurrency=10)
    for at in (50, 100, 150, 200):

        async def reached(at: int = at) -> bool:
            return len(provider.calls) > at

        await engine.until(f"{at} calls were made", reached)
        await engine.client.script_flush()
    await engine.until_done(*events)
    assert len(provider.calls) == 300


# ---- failover


@pytest.fixture
async def sentinel_engine() -> AsyncIterator[EngineUnderTest]:
    with LocalRedisSentinel(replicas=1) as servers:
        made = EngineUnderTest(servers, servers.settings())
        await made.arrive()
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
async def cluster_engine() -> AsyncIterator[EngineUnderTest]:
    with LocalRedisCluster(replicas=1) as servers:
        made = EngineUnderTest(servers, servers.settings())
        await made.arrive()
        try:
            yield made
        finally:
            await made.close()


async def draining(engine: EngineUnderTest, provider: ScriptedProvider) -> list[Event]:
    """Two workers in the middle of 60 deletions with 10 jobs each, over three stages."""

    async def slow(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        await asyncio.sleep(0.05)
        return Gone()

    provider.always = slow
    events = [
        provider.has(f"e{number}", [thing(f"{number}-{i}", f"sim/acct/op{i % 4}", stage=i // 4) for i in range(10)])
        for number in range(60)
    ]
    engine.change("redis", call_timeout=timedelta(seconds=1), connect_timeout=timedelta(seconds=1))
    engine.change("worker", concurrency=15, lease=timedelta(seconds=4), attempt_timeout=timedelta(seconds=3))
    engine.installation = engine.install()
    await engine.publish(*events)
    for _ in range(2):
        await engine.start(provider)

    async def underway() -> bool:
        return len(provider.calls) > 100

    await engine.until("the work is under way", underway)
    assert len(provider.calls) < 500
    return events


async def relisted(engine: EngineUnderTest, events: list[Event]) -> None:
    """What the control side does when it is asked: everything that is still going is published again."""
    await engine.installation.publish(events)


@pytest.mark.long
@pytest.mark.skipif("sentinel" not in kinds(), reason="not among the kinds that are demanded")
async def test_a_sentinel_failover_while_workers_drain_loses_nothing(sentinel_engine: EngineUnderTest) -> None:
    engine, provider = sentinel_engine, ScriptedProvider()
    servers = engine.server
    assert isinstance(servers, LocalRedisSentinel)
    events = await draining(engine, provider)
    await servers.until_promoted(servers.kill_master())
    await relisted(engine, events)
    await engine.until_done(*events, within=MINUTE)
    await engine.until("a relist is requested", lambda: asked(engine))
    assert len(set(provider.called)) == 600


@pytest.mark.long
@pytest.mark.skipif("cluster" not in kinds(), reason="not among the kinds that are demanded")
async def test_a_killed_master_of_a_cluster_whose_masters_all_hold_jobs_loses_nothing(
    cluster_engine: EngineUnderTest,
) -> None:
    engine, provider = cluster_engine, ScriptedProvider()
    servers = engine.server
    assert isinstance(servers, LocalRedisCluster)
    await engine.start(provider)
    for running in engine.running:
        await running.stop()
    owners = {shard.number: servers.owner_of(shard.stem + "meta").port for shard in engine.installation.shards}
    assert set(owners.values()) == {master.port for master in servers.masters}

    events = await draining(engine, provider)
    holding = {owners[engine.shard(one).number] for one in events if await engine.state(one) == "running"}
    assert holding == set(owners.values())
    victim = servers.owner_of(engine.shard(events[-1]).stem + "meta")
    lost = {number for number, port in owners.items() if port == victim.port}
    victim.kill()
    await servers.until_whole()
    await relisted(engine, events)
    await engine.until_done(*events, within=MINUTE)
    for number in lost:

        async def noticed(number: int = number) -> bool:
            return bool(await relist(engine, number))

        await engine.until("a relist is requested", noticed)
    assert len(set(provider.called)) == 600
