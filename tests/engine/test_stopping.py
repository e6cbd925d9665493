"""An orderly end: nothing new is taken, what is in hand is finished or handed back, and others have it at once."""

import asyncio
from datetime import timedelta

import pytest
from redis.exceptions import ResponseError

from service.contract import Event, Gone, Job, Plan, Verdict
from service.local.servers import Server
from service.stream.scripts import Scripts
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.waiting import PATIENCE
from tests.engine.world import LEASE, World
from workers.handlers.protocol import Batch
from workers.runtime.attempts import LONGEST_SLEEP

SECOND = timedelta(seconds=1)


class Slow(Outside):
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


async def test_a_stopping_worker_takes_nothing_new_and_finishes_what_it_has(world: World) -> None:
    outside = Slow()
    arrived, free = outside.hold()
    one, later = event("a"), event("later")
    job = (await world.lay(one, [thing("one"), thing("more", stage=1)]))["one"]
    soon = timedelta(milliseconds=200)
    running = await world.start(outside, plan_claim=soon)
    await arrived.wait()
    running.worker.stop()
    await world.publish(later)

    async def waits() -> bool:
        return not running.task.done() and outside.called == ["one"] and not outside.planned

    await world.stays("it waits for its job and takes nothing", waits, timedelta(milliseconds=400))
    free.set()
    await running.stop()
    assert (await world.job(job))["state"] == "gone"
    assert outside.called == ["one"]
    assert not await world.leases(LANE)
    assert running.name not in await world.members("workers")
    await world.start(outside, plan_claim=soon)
    await world.until_done(one, later)


async def test_an_idle_worker_ends_before_its_sleep_is_over(world: World) -> None:
    running = await world.start()
    await running.stop(within=timedelta(seconds=LONGEST_SLEEP - 5))


async def test_what_is_not_done_after_the_grace_period_is_handed_back_and_taken_by_another(
    world: World,
) -> None:
    outside = Slow()
    arrived, _ = outside.hold()
    one = event("a")
    jobs = await world.lay(one, [thing(f"t{number}") for number in range(5)])
    running = await world.start(outside, grace=timedelta(milliseconds=200), lease=timedelta(minutes=10))
    await arrived.wait()
    await running.stop()
    assert not await world.leases(LANE)
    assert not await world.members("batches")
    for job in jobs.values():
        record = await world.job(job)
        assert record.get("attempts", "0") == "0"
        assert "first_error" not in record
    outside.always = None
    await world.start(outside)
    await world.until_done(one)
    # Not as suspects: nobody died.
    assert not await world.decisions("set aside")
    assert any(len(targets) == 5 for _, targets in outside.batches[1:])


async def test_a_suspect_that_is_handed_back_stays_under_suspicion_and_is_charged_nothing(world: World) -> None:
    outside = Slow()
    arrived, _ = outside.hold()
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    await world.take(one, "victim", LANE)
    await world.jump(LEASE + SECOND)
    await world.shard(one).reclaim(silence=LEASE / 2)
    running = await world.start(outside, grace=timedelta(0))
    await arrived.wait()
    await running.stop()
    assert list(await world.members("alone")) == [job]
    record = await world.job(job)
    assert record["alone"] == "1"
    assert record.get("kills", "0") == "0"
    outside.always = None
    await world.start(outside)
    await world.until_done(one)


async def test_entries_that_are_not_planned_after_the_grace_period_are_handed_back(world: World) -> None:
    outside, one = Outside(), event("a")
    planning = asyncio.Event()

    async def hang(event: Event) -> Plan:
        planning.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    outside.plans["a"] = hang
    wait = timedelta(seconds=4)
    await world.publish(one)
    for _ in range(6):
        planning.clear()
        running = await world.start(outside, grace=timedelta(milliseconds=100), plan_claim=wait)
        await planning.wait()
        await running.stop()
        (entry,) = await world.client.xpending_range(
            world.shard(one).stem + "events", "planners", min="-", max="+", count=1
        )
        # It can be claimed without waiting, and an orderly end is no death that it is charged with.
        assert entry["time_since_delivered"] >= wait / timedelta(milliseconds=1)
        wait = timedelta(milliseconds=400)
    outside.plans["a"] = Plan([thing("one")])
    await world.start(outside, plan_claim=wait)
    await world.until_done(one)
    assert not await world.decisions("held")


@pytest.mark.long
async def test_a_worker_stops_also_while_the_server_is_away(own_world: World) -> None:
    world, outside = own_world, Slow()
    arrived, free = outside.hold()
    await world.lay(event("a"), [thing("one")])
    running = await world.start(outside, grace=timedelta(milliseconds=200))
    await arrived.wait()
    assert isinstance(world.server, Server)
    world.server.kill()
    free.set()
    await running.stop()
    await world.server.revive()
    # Nothing could be written: the lease runs out, and the job is tried again.
    assert (await world.holders(LANE)).popitem()[1] == running.name


async def test_a_worker_stops_also_before_it_has_ever_seen_the_server(own_world: World) -> None:
    world = own_world
    assert isinstance(world.server, Server)
    world.server.kill()
    running = await world.start(ready=False)
    caller = running.installation.caller

    async def trying() -> bool:
        return caller.away_since is not None

    await world.until("it tries to reach the server", trying)
    await running.stop()
    await world.server.revive()


async def test_a_loop_that_fails_ends_the_worker_with_its_fault(world: World) -> None:
    running = await world.start(ready=False, scripts=Scripts(changed={"survey": "error('a fault in a script')"}))
    with pytest.raises(BaseExceptionGroup) as fault:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            await running.task
    assert fault.group_contains(ResponseError, match="a fault in a script")
    world.running.remove(running)
    await running.installation.aclose()
