"""Leases: they are kept as long as an attempt takes, and who can't renew stops before his ends."""

import asyncio
import contextlib
import time
from datetime import timedelta

import pytest

from service.contract import Gone, Job, Verdict, decode_record
from service.local.servers import Server
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.waiting import at_once
from tests.engine.world import World
from workers.handlers.protocol import Batch, NotCleared
from workers.runtime.clock import ServerClock
from workers.runtime.feedback import Reports
from workers.runtime.flight import Flight
from workers.runtime.gate import Gate

SECOND = timedelta(seconds=1)


@pytest.mark.invariant(5)
async def test_jobs_whose_lease_lost_its_end_are_done_by_the_next_worker(world: World) -> None:
    outside = Outside()
    one = outside.has("a", [thing("one"), thing("two")])
    await world.lay(one, [thing("one"), thing("two")])
    taken = await world.take(one, "holder", LANE)
    await world.client.delete(world.shard(one).stem + "batches")
    # Nobody can tell any more whose they are, not even the one who took them.
    assert await world.settle(taken, "holder", Gone()) == [False, False]
    await world.jump(timedelta(minutes=1))
    await world.tidy()
    assert sorted(await world.queue(LANE)) == sorted(taken.lanes[0].jobs)
    await world.start(outside)
    await world.until_done(one)
    assert sorted(outside.called) == ["one", "two"]


@pytest.mark.invariant(13)
async def test_a_lease_that_ends_while_the_objects_are_looked_at_clears_nothing(world: World) -> None:
    one = event("a")
    await world.lay(one, [thing("one")])
    (lane,) = (await world.take(one, "holder", LANE)).lanes
    job = Job(lane.jobs[0], lane.fence, decode_record(lane.records[0]))
    ends = time.monotonic() + 60

    class SlowCluster:
        async def objection(self, deletion: str) -> Exception | None:
            flight.lease_end = time.monotonic()
            return None

    async def nobody(place: str) -> None: ...

    installation = world.installation
    gate = Gate(installation.caller, installation.keys, world.shard(one).number, "holder", ServerClock(), SlowCluster())
    flight = Flight(LANE, [job], (), ends, gate, Reports(installation.budgets, nobody), 1)
    with pytest.raises(NotCleared, match="the lease is over"):
        await flight.clear(job)
    assert not flight.called


@pytest.mark.long
async def test_a_long_attempt_keeps_its_lease_and_is_nobody_elses(world: World) -> None:
    outside, free = Outside(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        await free.wait()
        return Gone()

    outside.always = slow
    one = event("a")
    await world.lay(one, [thing("one")])
    lease = timedelta(seconds=5)
    world.change("worker", lease=lease, attempt_timeout=timedelta(minutes=1))
    workers = [await world.start(outside) for _ in range(2)]

    async def once() -> bool:
        return len(outside.calls) <= 1

    await world.stays("nobody else tries it", once, lease + SECOND)
    assert len(outside.calls) == 1
    free.set()
    await world.until_done(one)
    assert sum(running.moves["renew"] for running in workers) >= 1
    assert len(outside.calls) == 1


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


async def test_who_can_not_renew_stops_its_attempt_before_the_lease_ends(own_world: World) -> None:
    world, outside = own_world, Outside()
    lease = timedelta(seconds=2)
    world.change("redis", call_timeout=timedelta(milliseconds=400))
    stopped, called = asyncio.Event(), asyncio.Event()

    async def calling(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return Gone()

    outside.answers["one"] = [calling]
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    running = await world.start(outside, lease=lease, attempt_timeout=timedelta(minutes=1))
    await called.wait()
    assert not stopped.is_set()
    server = world.server
    assert isinstance(server, Server)
    server.freeze()
    # No renewal gets through any more: the attempt must be over while the lease still holds. What is due first is done
    # first, also where the process was held up.
    over = after_so_long(lease)
    await world.until("the attempt has stopped", lambda: at_once(stopped.is_set()))
    assert not over.is_set()
    server.thaw()
    await world.until_done(one)
    assert running.task.done() is False
    assert (await world.job(job)).get("attempts", "0") == "0"
    assert len(outside.calls) == 2


async def test_nothing_is_called_once_the_job_is_anothers(world: World) -> None:
    """A handler that was held up, deaf to its cancellation, asks too late."""
    outside, refused, arrived, free = Outside(), list[str](), asyncio.Event(), asyncio.Event()

    async def deaf(job: Job, batch: Batch) -> Verdict:
        arrived.set()
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()
        try:
            await outside.call(job, batch)
        except Exception as error:
            refused.append(str(error))
            raise
        return Gone()

    outside.answers["one"] = [deaf]
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    lease = SECOND
    running = await world.start(outside, concurrency=1, lease=lease, attempt_timeout=30 * SECOND)
    await arrived.wait()

    async def another_has_it() -> bool:
        await world.jump(2 * lease)
        await world.reclaim(one)
        for alone in ("", job):
            await world.take(one, "heir", LANE, alone=alone)
        return (await world.holders(LANE)).get(job) == "heir"

    await world.until("another worker has it", another_has_it)
    renewals = running.moves["renew"]

    async def renewed() -> bool:
        return running.moves["renew"] >= renewals + 3 * len(world.installation.shards)

    await world.until("it could have heard of it", renewed)
    free.set()
    await world.until("it has asked", lambda: at_once(bool(refused)))
    assert not outside.calls
    # On a busy machine its own clock may tell it first.
    assert refused in (["the job was taken back"], ["the lease is over"])
    assert (await world.holders(LANE)).get(job) == "heir"
