"""Orderly shutdown: nothing new is taken, running jobs are finished or returned, and other workers get them at once."""

import asyncio
from datetime import timedelta

import pytest
from redis.exceptions import ResponseError

from service.contract import Event, Gone, Job, Plan, Verdict
from service.engine.script_loading import Scripts
from standins.redis_servers import LocalRedis
from tests.engine.engine_under_test import LEASE, EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.engine.waiting import PATIENCE
from workers.handlers.protocol import Batch
from workers.runtime.attempt_loop import LONGEST_SLEEP

SECOND = timedelta(seconds=1)


class AttemptsAfterCall(ScriptedProvider):
    """Attempts that have made their call and wait for its answer."""

    def hold(self) -> tuple[asyncio.Event, asyncio.Event]:
        arrived, free = asyncio.Event(), asyncio.Event()

        async def wait(job: Job, batch: Batch) -> Verdict:
            await self.call(job, batch)
            arrived.set()
            await free.wait()
            return Gone()

        self.always = wait
        return arrived, free


async def test_a_stopping_worker_takes_nothing_new_and_finishes_what_it_has(engine: EngineUnderTest) -> None:
    provider = AttemptsAfterCall()
    arrived, free = provider.hold()
    one, later = event("a"), event("later")
    job = (await engine.lay(one, [thing("one"), thing("more", stage=1)]))["one"]
    soon = timedelta(milliseconds=200)
    running = await engine.start(provider, plan_claim=soon)
    await arrived.wait()
    running.worker.stop()
    await engine.publish(later)

    async def waits() -> bool:
        return not running.task.done() and provider.called == ["one"] and not provider.planned

    await engine.stays("it waits for its job and takes nothing", waits, timedelta(milliseconds=400))
    free.set()
    await running.stop()
    assert (await engine.job(job))["state"] == "gone"
    assert provider.called == ["one"]
    assert not await engine.leases(LANE)
    assert running.name not in await engine.members("workers")
    await engine.start(provider, plan_claim=soon)
    await engine.until_done(one, later)


async def test_an_idle_worker_ends_before_its_sleep_is_over(engine: EngineUnderTest) -> None:
    running = await engine.start()
    await running.stop(within=timedelta(seconds=LONGEST_SLEEP - 5))


async def test_what_is_not_done_after_the_grace_period_is_handed_back_and_taken_by_another(
    engine: EngineUnderTest,
) -> None:
    provider = AttemptsAfterCall()
    arrived, _ = provider.hold()
    one = event("a")
    jobs = await engine.lay(one, [thing(f"t{number}") for number in range(5)])
    running = await engine.start(provider, grace=timedelta(milliseconds=200), lease=timedelta(minutes=10))
    await arrived.wait()
    await running.stop()
    assert not await engine.leases(LANE)
    assert not await engine.members("batches")
    for job in jobs.values():
        record = await engine.job(job)
        assert record.get("attempts", "0") == "0"
        assert "first_error" not in record
    provider.always = None
    await engine.start(provider)
    await engine.until_done(one)
    # Not as suspects: no worker died.
    assert not await engine.decisions("set aside")
    assert any(len(targets) == 5 for _, targets in provider.batches[1:])


async def test_a_suspect_that_is_handed_back_stays_under_suspicion_and_is_charged_nothing(
    engine: EngineUnderTest,
) -> None:
    provider = AttemptsAfterCall()
    arrived, _ = provider.hold()
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    await engine.take(one, "victim", LANE)
    await engine.jump(LEASE + SECOND)
    await engine.shard(one).reclaim(silence=LEASE / 2)
    running = await engine.start(provider, grace=timedelta(0))
    await arrived.wait()
    await running.stop()
    assert list(await engine.members("alone")) == [job]
    record = await engine.job(job)
    assert record["alone"] == "1"
    assert record.get("kills", "0") == "0"
    provider.always = None
    await engine.start(provider)
    await engine.until_done(one)


async def test_entries_that_are_not_planned_after_the_grace_period_are_handed_back(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    planning = asyncio.Event()

    async def hang(event: Event) -> Plan:
        planning.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    provider.plans["a"] = hang
    wait = timedelta(seconds=4)
    await engine.publish(one)
    for _ in range(6):
        planning.clear()
        running = await engine.start(provider, grace=timedelta(milliseconds=100), plan_claim=wait)
        await planning.wait()
        await running.stop()
        (entry,) = await engine.client.xpending_range(
            engine.shard(one).stem + "events", "planners", min="-", max="+", count=1
        )
        # It can be claimed without waiting, and an orderly end is no death that it is charged with.
        assert entry["time_since_delivered"] >= wait / timedelta(milliseconds=1)
        wait = timedelta(milliseconds=400)
    provider.plans["a"] = Plan([thing("one")])
    await engine.start(provider, plan_claim=wait)
    await engine.until_done(one)
    assert not await engine.decisions("held")


@pytest.mark.long
async def test_a_worker_stops_also_while_the_server_is_away(own_engine: EngineUnderTest) -> None:
    engine, provider = own_engine, AttemptsAfterCall()
    arrived, free = provider.hold()
    await engine.lay(event("a"), [thing("one")])
    running = await engine.start(provider, grace=timedelta(milliseconds=200))
    await arrived.wait()
    assert isinstance(engine.server, LocalRedis)
    engine.server.kill()
    free.set()
    await running.stop()
    await engine.server.revive()
    # Nothing could be written: the lease runs out, and the job is tried again.
    assert (await engine.holders(LANE)).popitem()[1] == running.name


async def test_a_worker_stops_also_before_it_has_ever_seen_the_server(own_engine: EngineUnderTest) -> None:
    engine = own_engine
    assert isinstance(engine.server, LocalRedis)
    engine.server.kill()
    running = await engine.start(ready=False)
    caller = running.installation.caller

    async def trying() -> bool:
        return caller.unavailable_since is not None

    await engine.until("it tries to reach the server", trying)
    await running.stop()
    await engine.server.revive()


async def test_a_loop_that_fails_ends_the_worker_with_its_fault(engine: EngineUnderTest) -> None:
    running = await engine.start(
        ready=False, scripts=Scripts(changed={"refresh_stats": "error('a fault in a script')"})
    )
    with pytest.raises(BaseExceptionGroup) as fault:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            await running.task
    assert fault.group_contains(ResponseError, match="a fault in a script")
    engine.running.remove(running)
    await running.installation.aclose()
