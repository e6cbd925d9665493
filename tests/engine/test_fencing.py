"""Fencing tokens: only the holder of a job under its token settles, clears or renews it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Event, Gone, Job, Pending, Target, Verdict, decode_job_record
from service.engine.script_replies import Taken
from tests.engine.engine_under_test import LEASE, EngineUnderTest
from tests.engine.scripted_provider import LANE, event, thing
from tests.engine.waiting import at_once
from workers.handlers.protocol import Batch, NotCleared
from workers.runtime.clearance import Clearance
from workers.runtime.server_clock import ServerClock

SECOND = timedelta(seconds=1)


@pytest.mark.every_server
@pytest.mark.invariant(13)
async def test_a_zombie_that_settles_late_changes_nothing(engine: EngineUnderTest) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    zombie = await engine.take(one, "zombie", LANE)
    await engine.jump(LEASE + SECOND)
    assert await engine.reclaim(one) == [job]
    taken = await engine.take(one, "heir", LANE, alone=job)
    before = await engine.job(job)

    assert await engine.settle(zombie, "zombie", Gone()) == [False]
    assert await engine.settle(zombie, "zombie", OSError("late")) == [False]
    assert await engine.job(job) == before
    assert await engine.state(one) == "running"
    assert await engine.holders(LANE) == {job: "heir"}
    # Nor may it act in the other's name, or the other with an old token.
    assert await engine.settle(zombie, "heir", Gone()) == [False]

    assert await engine.settle(taken, "heir", Gone()) == [True]
    assert (await engine.job(job))["state"] == "gone"
    assert await engine.settle(taken, "heir", OSError("again")) == [False]
    assert (await engine.job(job))["state"] == "gone"


async def test_a_job_that_returned_to_its_lane_is_not_settled_by_the_worker_that_lost_it(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    zombie = await engine.take(one, "zombie", LANE)
    await engine.jump(LEASE + SECOND)
    await engine.reclaim(one)
    assert await engine.settle(zombie, "zombie", Gone()) == [False]
    assert "state" not in await engine.job(job)
    assert list(await engine.members("alone")) == [job]


async def given_again(engine: EngineUnderTest, one: Event, to: str) -> tuple[Taken, str]:
    """What `first` took and the server then forgot; it made the same token again, for the other job."""
    jobs = await engine.lay(one, [thing("one"), thing("two")])
    first = await engine.take(one, "first", LANE, count=1)
    token = first.lanes[0].fence
    (other,) = {jobs["one"], jobs["two"]} - set(first.lanes[0].jobs)
    stem = engine.shard(one).stem
    await engine.client.zrem(f"{stem}leases:{LANE}", *first.lanes[0].jobs)
    await engine.client.zadd(f"{stem}leases:{LANE}", {other: token})
    await engine.client.delete(f"{stem}batches")
    await engine.client.zadd(f"{stem}batches", {f"{token} {LANE} {to}": await engine.now() + 30_000})
    return first, other


@pytest.mark.parametrize("to", ["first", "second"])
async def test_a_token_that_a_server_set_back_gave_again_frees_nothing_of_its_new_jobs(
    engine: EngineUnderTest, to: str
) -> None:
    one = event("a")
    first, other = await given_again(engine, one, to)
    assert await engine.settle(first, "first", Gone()) == [False]
    assert await engine.holders(LANE) == {other: to}


@pytest.mark.invariant(13)
async def test_a_token_that_a_server_set_back_gave_again_clears_nothing_of_before(engine: EngineUnderTest) -> None:
    one = event("a")
    first, other = await given_again(engine, one, "second")
    (lane,) = first.lanes
    installation = engine.installation
    before = Job(lane.jobs[0], lane.fence, decode_job_record(lane.records[0]))
    for worker in ("first", "second"):
        gate = Clearance(installation.caller, installation.keys, engine.shard(one).number, worker, ServerClock())
        with pytest.raises(NotCleared, match="taken back"):
            await gate.check(LANE, (), [before], 1)
    gate = Clearance(installation.caller, installation.keys, engine.shard(one).number, "second", ServerClock())
    await gate.check(LANE, (), [Job(other, lane.fence, before.record)], 1)


@pytest.mark.invariant(13)
@pytest.mark.parametrize("verdict", [Gone(), Pending(SECOND), OSError("no")], ids=["gone", "pending", "failed"])
@pytest.mark.parametrize("count", [1, 2], ids=["part", "whole"])
async def test_a_token_settles_nothing_for_another_worker_than_the_one_that_took_it(
    engine: EngineUnderTest, verdict: Verdict | Exception, count: int
) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("one"), thing("two")])
    taken = await engine.take(one, "holder", LANE)
    (lane,) = taken.lanes
    sent = taken._replace(lanes=[lane._replace(jobs=lane.jobs[:count], records=lane.records[:count])])
    before = (
        [await engine.job(job) for job in jobs.values()],
        await engine.deletion(one),
        await engine.members("batches"),
    )
    assert await engine.settle(sent, "other", verdict) == [False] * count
    after = (
        [await engine.job(job) for job in jobs.values()],
        await engine.deletion(one),
        await engine.members("batches"),
    )
    assert after == before
    assert await engine.holders(LANE) == dict.fromkeys(lane.jobs, "holder")
    assert not await engine.queue(LANE)
    assert not await engine.audit("outcome")
    assert await engine.settle(taken, "holder", Gone()) == [True, True]


@pytest.mark.invariant(13)
@pytest.mark.parametrize("verdict", [Gone(), OSError("no")], ids=["gone", "failed"])
async def test_a_job_that_was_taken_again_since_is_not_settled_by_its_old_token(
    engine: EngineUnderTest, verdict: Verdict | Exception
) -> None:
    one = event("a")
    await engine.lay(one, [thing("one"), thing("two")])
    taken = await engine.take(one, "first", LANE)
    (lane,) = taken.lanes
    back = taken._replace(lanes=[lane._replace(jobs=lane.jobs[:1], records=lane.records[:1])])
    assert await engine.settle(back, "first", Pending(timedelta(0))) == [True]
    again = await engine.take(one, "second", LANE)
    assert again.lanes[0].jobs == lane.jobs[:1]
    # The rest of its batch is still in the hands of the first, and so its old token still counts for that.
    assert await engine.settle(taken, "first", verdict) == [False, True]
    assert (await engine.holders(LANE))[lane.jobs[0]] == "second"
    assert await engine.settle(again, "second", Gone()) == [True]


@pytest.mark.invariant(13)
async def test_a_token_neither_clears_nor_keeps_anything_for_another_worker_than_the_one_that_took_it(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    await engine.lay(one, [thing("one"), thing("two")])
    (lane,) = (await engine.take(one, "holder", LANE)).lanes
    jobs = [Job(job, lane.fence, decode_job_record(text)) for job, text in zip(lane.jobs, lane.records, strict=True)]
    installation, shard, ends = engine.installation, engine.shard(one), await engine.members("batches")
    gates = {
        worker: Clearance(installation.caller, installation.keys, shard.number, worker, ServerClock())
        for worker in ("holder", "other")
    }
    for part in (jobs, jobs[:1]):
        with pytest.raises(NotCleared, match="taken back"):
            await gates["other"].check(LANE, (), part, 2)
        await gates["holder"].check(LANE, (), part, 2)
    _, strangers = await shard.renew("other", LEASE * 9, [(LANE, lane.fence)], patience=SECOND)
    assert strangers == [lane.fence]
    assert await engine.members("batches") == ends


@pytest.mark.invariant(13)
async def test_a_batch_that_another_worker_has_is_not_cleared_together_with_an_own_one(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [thing("one"), thing("two")])
    lanes = [(await engine.take(one, "holder", LANE, 1)).lanes[0] for _ in range(2)]
    own, others = (Job(lane.jobs[0], lane.fence, decode_job_record(lane.records[0])) for lane in lanes)
    installation, shard = engine.installation, engine.shard(one)
    # As on a server that was set back, and gave the token to another worker.
    batches, named = f"{shard.stem}batches", f"{others.fence} {LANE}"
    assert await engine.client.zrem(batches, f"{named} holder") == 1
    await engine.client.zadd(batches, {f"{named} other": 2**50})
    gate = Clearance(installation.caller, installation.keys, shard.number, "holder", ServerClock())
    # Both ask at the same moment, and share one read.
    found = await asyncio.gather(
        *(gate.check(LANE, (), [job], 1) for job in (own, others)), return_exceptions=True
    )  # fmt: skip
    assert found[0] is None
    assert isinstance(found[1], NotCleared)
    await gate.aclose()


async def test_an_abandoned_job_is_not_brought_back_by_its_holder(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("one"), thing("two")])
    taken = await engine.take(one, "holder", LANE)
    assert await engine.shard(one).abandon(jobs["one"], "tests") == "abandoned"
    accepted = await engine.settle(taken, "holder", OSError("later"))
    assert sorted(accepted) == [False, True]
    assert (await engine.job(jobs["one"]))["state"] == "abandoned"
    assert list(await engine.queue(LANE)) == [jobs["two"]]


async def test_a_batch_of_which_one_job_was_abandoned_meanwhile_is_not_cleared_whole(engine: EngineUnderTest) -> None:
    began, free = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    class BatchHandler:
        kind = "together"

        def draws(self, lane: str) -> Sequence[Draw] | None:
            return () if lane == LANE else None

        async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
            began.set()
            await free.wait()
            try:
                await batch.clear(*batch.jobs)
            except NotCleared as error:
                told.append(str(error))
                raise
            for job in batch.jobs:
                yield job, Gone()

    one = event("a")
    jobs = await engine.lay(one, [Target(kind="together", id=name, lane=LANE) for name in ("one", "two")])
    await engine.start(others=[BatchHandler()])
    await engine.until("both are in hand", lambda: at_once(began.is_set()))
    assert await engine.shard(one).abandon(jobs["one"], "tests") == "abandoned"
    free.set()
    await engine.until_done(one)
    assert told == ["the job was taken back"]
    assert (await engine.job(jobs["one"]))["state"] == "abandoned"
    assert (await engine.job(jobs["two"]))["state"] == "gone"
