"""Leases: renewed as long as an attempt takes; a worker that can't renew stops before its lease ends."""

import asyncio
import contextlib
import time
from datetime import timedelta

import pytest

from service.contract import Gone, Job, Verdict, decode_job_record
from standins.redis_servers import LocalRedis
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.engine.waiting import at_once
from workers.handlers.protocol import Batch, NotCleared
from workers.runtime.budget_feedback import BudgetFeedback
from workers.runtime.clearance import Clearance
from workers.runtime.leased_batch import LeasedBatch
from workers.runtime.server_clock import ServerClock

SECOND = timedelta(seconds=1)


@pytest.mark.invariant(5)
async def test_jobs_whose_lease_lost_its_end_are_done_by_the_next_worker(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = provider.has("a", [thing("one"), thing("two")])
    await engine.lay(one, [thing("one"), thing("two")])
    taken = await engine.take(one, "holder", LANE)
    await engine.client.delete(engine.shard(one).stem + "batches")
    # Their holder is unknown now, even to the worker that took them.
    assert await engine.settle(taken, "holder", Gone()) == [False, False]
    await engine.jump(timedelta(minutes=1))
    await engine.tidy()
    assert sorted(await engine.queue(LANE)) == sorted(taken.lanes[0].jobs)
    await engine.start(provider)
    await engine.until_done(one)
    assert sorted(provider.called) == ["one", "two"]


@pytest.mark.invariant(13)
async def test_a_lease_that_ends_while_the_objects_are_looked_at_clears_nothing(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [thing("one")])
    (lane,) = (await engine.take(one, "holder", LANE)).lanes
    job = Job(lane.jobs[0], lane.fence, decode_job_record(lane.records[0]))
    ends = time.monotonic() + 60

    class SlowCluster:
        async def objection(self, deletion: str) -> Exception | None:
            flight.lease_end = time.monotonic()
            return None

    async def nobody(place: str) -> None: ...

    installation = engine.installation
    gate = Clearance(
        installation.caller, installation.keys, engine.shard(one).number, "holder", ServerClock(), SlowCluster()
    )
    flight = LeasedBatch(LANE, [job], (), ends, gate, BudgetFeedback(installation.budgets, nobody), 1)
    with pytest.raises(NotCleared, match="the lease is over"):
        await flight.clear(job)
    assert not flight.called


@pytest.mark.long
async def test_a_long_attempt_keeps_its_lease_and_no_other_worker_takes_the_job(engine: EngineUnderTest) -> None:
    provider, free = ScriptedProvider(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        await free.wait()
        return Gone()

    provider.always = slow
    one = event("a")
    await engine.lay(one, [thing("one")])
    lease = timedelta(seconds=5)
    engine.change("worker", lease=lease, attempt_timeout=timedelta(minutes=1))
    workers = [await engine.start(provider) for _ in range(2)]

    async def once() -> bool:
        return len(provider.calls) <= 1

    await engine.stays("no other worker tries it", once, lease + SECOND)
    assert len(provider.calls) == 1
    free.set()
    await engine.until_done(one)
    assert sum(running.moves["renew"] for running in workers) >= 1
    assert len(provider.calls) == 1


def after_so_long(span: timedelta) -> asyncio.Event:
    """Set once the span is over, and all that was due before has been carried through."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def turn(left: int) -> None:
        if left:
            loop.call_soon(turn, left - 1)
        else:
            over.set()

    loop.call_later(span.total_seconds(), turn, 20)
    return over


async def test_a_worker_that_can_not_renew_stops_its_attempt_before_the_lease_ends(own_engine: EngineUnderTest) -> None:
    engine, provider = own_engine, ScriptedProvider()
    lease = timedelta(seconds=2)
    engine.change("redis", call_timeout=timedelta(milliseconds=400))
    stopped, called = asyncio.Event(), asyncio.Event()

    async def calling(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return Gone()

    provider.answers["one"] = [calling]
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    running = await engine.start(provider, lease=lease, attempt_timeout=timedelta(minutes=1))
    await called.wait()
    assert not stopped.is_set()
    server = engine.server
    assert isinstance(server, LocalRedis)
    server.freeze()
    # No renewal gets through any more: the attempt must be over while the lease still holds. What is due first is done
    # first, also where the process was held up.
    over = after_so_long(lease)
    await engine.until("the attempt has stopped", lambda: at_once(stopped.is_set()))
    assert not over.is_set()
    server.thaw()
    await engine.until_done(one)
    assert running.task.done() is False
    assert (await engine.job(job)).get("attempts", "0") == "0"
    assert len(provider.calls) == 2


async def test_nothing_is_called_once_the_job_is_anothers(engine: EngineUnderTest) -> None:
    """A handler that was held up, deaf to its cancellation, asks too late."""
    provider, refused, arrived, free = ScriptedProvider(), list[str](), asyncio.Event(), asyncio.Event()

    async def deaf(job: Job, batch: Batch) -> Verdict:
        arrived.set()
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()
        try:
            await provider.call(job, batch)
        except Exception as error:
            refused.append(str(error))
            raise
        return Gone()

    provider.answers["one"] = [deaf]
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    lease = SECOND
    running = await engine.start(provider, concurrency=1, lease=lease, attempt_timeout=30 * SECOND)
    await arrived.wait()

    async def another_has_it() -> bool:
        await engine.jump(2 * lease)
        await engine.reclaim(one)
        for alone in ("", job):
            await engine.take(one, "heir", LANE, alone=alone)
        return (await engine.holders(LANE)).get(job) == "heir"

    await engine.until("another worker has it", another_has_it)
    renewals = running.moves["renew"]

    async def renewed() -> bool:
        return running.moves["renew"] >= renewals + 3 * len(engine.installation.shards)

    await engine.until("it could have heard of it", renewed)
    free.set()
    await engine.until("it has asked", lambda: at_once(bool(refused)))
    assert not provider.calls
    # On a busy machine its own clock may tell it first.
    assert refused in (["the job was taken back"], ["the lease is over"])
    assert (await engine.holders(LANE)).get(job) == "heir"
