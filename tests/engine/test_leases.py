"""Leases: zombies change nothing, who can't renew stops in time, and deaths are charged to who caused them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Event, Gone, Job, Pending, Target, Verdict, decode_record
from service.local.servers import Server
from service.stream.replies import Taken
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import LEASE, World
from workers.handlers.protocol import Batch, NotCleared
from workers.runtime.clock import ServerClock
from workers.runtime.feedback import Reports
from workers.runtime.flight import Flight
from workers.runtime.gate import Gate

SECOND = timedelta(seconds=1)


async def reclaim(world: World, one: Event) -> list[str]:
    """What any worker's reclaimer does, now."""
    answer = await world.shard(one).reclaim(silence=LEASE / 2)
    return answer.given_back


@pytest.mark.every_server
@pytest.mark.invariant(13)
async def test_a_zombie_that_settles_late_changes_nothing(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    zombie = await world.take(one, "zombie", LANE)
    await world.jump(LEASE + SECOND)
    assert await reclaim(world, one) == [job]
    taken = await world.take(one, "heir", LANE, alone=job)
    before = await world.job(job)

    assert await world.settle(zombie, "zombie", Gone()) == [False]
    assert await world.settle(zombie, "zombie", OSError("late")) == [False]
    assert await world.job(job) == before
    assert await world.state(one) == "running"
    assert await world.holders(LANE) == {job: "heir"}
    # Nor may it act in the other's name, or the other with an old token.
    assert await world.settle(zombie, "heir", Gone()) == [False]

    assert await world.settle(taken, "heir", Gone()) == [True]
    assert (await world.job(job))["state"] == "gone"
    assert await world.settle(taken, "heir", OSError("again")) == [False]
    assert (await world.job(job))["state"] == "gone"


async def test_a_job_that_came_back_to_its_lane_is_not_settled_by_the_one_who_lost_it(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    zombie = await world.take(one, "zombie", LANE)
    await world.jump(LEASE + SECOND)
    await reclaim(world, one)
    assert await world.settle(zombie, "zombie", Gone()) == [False]
    assert "state" not in await world.job(job)
    assert list(await world.members("alone")) == [job]


async def given_again(world: World, one: Event, to: str) -> tuple[Taken, str]:
    """What `first` took and the server then forgot; it made the same token again, for the other job."""
    jobs = await world.lay(one, [thing("one"), thing("two")])
    first = await world.take(one, "first", LANE, count=1)
    token = first.lanes[0].fence
    (other,) = {jobs["one"], jobs["two"]} - set(first.lanes[0].jobs)
    stem = world.shard(one).stem
    await world.client.zrem(f"{stem}leases:{LANE}", *first.lanes[0].jobs)
    await world.client.zadd(f"{stem}leases:{LANE}", {other: token})
    await world.client.delete(f"{stem}batches")
    await world.client.zadd(f"{stem}batches", {f"{token} {LANE} {to}": await world.now() + 30_000})
    return first, other


@pytest.mark.parametrize("to", ["first", "second"])
async def test_a_token_that_a_server_set_back_gave_again_frees_nothing_of_its_new_jobs(world: World, to: str) -> None:
    one = event("a")
    first, other = await given_again(world, one, to)
    assert await world.settle(first, "first", Gone()) == [False]
    assert await world.holders(LANE) == {other: to}


@pytest.mark.invariant(13)
async def test_a_token_that_a_server_set_back_gave_again_clears_nothing_of_before(world: World) -> None:
    one = event("a")
    first, other = await given_again(world, one, "second")
    (lane,) = first.lanes
    installation = world.installation
    before = Job(lane.jobs[0], lane.fence, decode_record(lane.records[0]))
    for worker in ("first", "second"):
        gate = Gate(installation.caller, installation.keys, world.shard(one).number, worker, ServerClock())
        with pytest.raises(NotCleared, match="taken back"):
            await gate.check(LANE, (), [before], 1)
    gate = Gate(installation.caller, installation.keys, world.shard(one).number, "second", ServerClock())
    await gate.check(LANE, (), [Job(other, lane.fence, before.record)], 1)


@pytest.mark.invariant(13)
@pytest.mark.parametrize("verdict", [Gone(), Pending(SECOND), OSError("no")], ids=["gone", "pending", "failed"])
@pytest.mark.parametrize("count", [1, 2], ids=["part", "whole"])
async def test_a_token_settles_nothing_for_another_worker_than_the_one_that_took_it(
    world: World, verdict: Verdict | Exception, count: int
) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("one"), thing("two")])
    taken = await world.take(one, "holder", LANE)
    (lane,) = taken.lanes
    sent = taken._replace(lanes=[lane._replace(jobs=lane.jobs[:count], records=lane.records[:count])])
    before = [await world.job(job) for job in jobs.values()], await world.deletion(one), await world.members("batches")
    assert await world.settle(sent, "other", verdict) == [False] * count
    after = [await world.job(job) for job in jobs.values()], await world.deletion(one), await world.members("batches")
    assert after == before
    assert await world.holders(LANE) == dict.fromkeys(lane.jobs, "holder")
    assert not await world.queue(LANE)
    assert not await world.audit("outcome")
    assert await world.settle(taken, "holder", Gone()) == [True, True]


@pytest.mark.invariant(13)
@pytest.mark.parametrize("verdict", [Gone(), OSError("no")], ids=["gone", "failed"])
async def test_a_job_that_was_taken_again_since_is_not_settled_by_its_old_token(
    world: World, verdict: Verdict | Exception
) -> None:
    one = event("a")
    await world.lay(one, [thing("one"), thing("two")])
    taken = await world.take(one, "first", LANE)
    (lane,) = taken.lanes
    back = taken._replace(lanes=[lane._replace(jobs=lane.jobs[:1], records=lane.records[:1])])
    assert await world.settle(back, "first", Pending(timedelta(0))) == [True]
    again = await world.take(one, "second", LANE)
    assert again.lanes[0].jobs == lane.jobs[:1]
    # The rest of its batch is still in the hands of the first, and so its old token still counts for that.
    assert await world.settle(taken, "first", verdict) == [False, True]
    assert (await world.holders(LANE))[lane.jobs[0]] == "second"
    assert await world.settle(again, "second", Gone()) == [True]


@pytest.mark.invariant(13)
async def test_a_token_neither_clears_nor_keeps_anything_for_another_worker_than_the_one_that_took_it(
    world: World,
) -> None:
    one = event("a")
    await world.lay(one, [thing("one"), thing("two")])
    (lane,) = (await world.take(one, "holder", LANE)).lanes
    jobs = [Job(job, lane.fence, decode_record(text)) for job, text in zip(lane.jobs, lane.records, strict=True)]
    installation, shard, ends = world.installation, world.shard(one), await world.members("batches")
    gates = {
        worker: Gate(installation.caller, installation.keys, shard.number, worker, ServerClock())
        for worker in ("holder", "other")
    }
    for part in (jobs, jobs[:1]):
        with pytest.raises(NotCleared, match="taken back"):
            await gates["other"].check(LANE, (), part, 2)
        await gates["holder"].check(LANE, (), part, 2)
    _, strangers = await shard.renew("other", LEASE * 9, [(LANE, lane.fence)], patience=SECOND)
    assert strangers == [lane.fence]
    assert await world.members("batches") == ends


@pytest.mark.invariant(13)
async def test_a_lease_that_ends_while_the_objects_are_looked_at_clears_nothing(world: World) -> None:
    one = event("a")
    await world.lay(one, [thing("one")])
    (lane,) = (await world.take(one, "holder", LANE)).lanes
    job = Job(lane.jobs[0], lane.fence, decode_record(lane.records[0]))
    ends = time.monotonic() + 60

    class SlowCluster:
        async def objections(self, deletions: Collection[str]) -> Mapping[str, Exception]:
            flight.lease_end = time.monotonic()
            return {}

    async def nobody(place: str) -> None: ...

    installation = world.installation
    gate = Gate(installation.caller, installation.keys, world.shard(one).number, "holder", ServerClock(), SlowCluster())
    flight = Flight(LANE, [job], (), ends, gate, Reports(installation.budgets, nobody), 1)
    with pytest.raises(NotCleared, match="the lease is over"):
        await flight.clear(job)
    assert not flight.called


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


async def test_a_batch_of_which_one_job_was_abandoned_meanwhile_is_not_cleared_whole(world: World) -> None:
    began, free = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    class Together:
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
    jobs = await world.lay(one, [Target(kind="together", id=name, lane=LANE) for name in ("one", "two")])
    await world.start(others=[Together()])
    await world.until("both are in hand", lambda: _true(began.is_set()))
    assert await world.shard(one).abandon(jobs["one"], "tests") == "abandoned"
    free.set()
    await world.until_done(one)
    assert told == ["the job was taken back"]
    assert (await world.job(jobs["one"]))["state"] == "abandoned"
    assert (await world.job(jobs["two"]))["state"] == "gone"


async def test_an_abandoned_job_is_not_brought_back_by_its_holder(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("one"), thing("two")])
    taken = await world.take(one, "holder", LANE)
    assert await world.shard(one).abandon(jobs["one"], "tests") == "abandoned"
    accepted = await world.settle(taken, "holder", OSError("later"))
    assert sorted(accepted) == [False, True]
    assert (await world.job(jobs["one"]))["state"] == "abandoned"
    assert list(await world.queue(LANE)) == [jobs["two"]]


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
    # No renewal gets through any more: the attempt must be over while the lease still holds. What the loop has to do
    # until then it does in the order of its times, also where the process was held up: this comes last.
    await asyncio.sleep(lease.total_seconds())
    for _ in range(20):
        await asyncio.sleep(0)
    assert stopped.is_set()
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
        await reclaim(world, one)
        for alone in ("", job):
            await world.take(one, "heir", LANE, alone=alone)
        return (await world.holders(LANE)).get(job) == "heir"

    await world.until("another worker has it", another_has_it)
    renewals = running.moves["renew"]

    async def renewed() -> bool:
        return running.moves["renew"] >= renewals + 3 * len(world.installation.shards)

    await world.until("it could have heard of it", renewed)
    free.set()
    await world.until("it has asked", lambda: _true(bool(refused)))
    assert not outside.calls
    assert refused == ["the job was taken back"]
    assert (await world.holders(LANE)).get(job) == "heir"


async def kill(world: World, outside: Outside, victim: str) -> None:
    """A worker that dies of this target, and the time until its lease is over."""
    arrived = asyncio.Event()

    async def deadly(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        arrived.set()
        await asyncio.Event().wait()
        return Gone()

    outside.answers[victim] = [deadly]
    running = await world.start(outside)
    await world.until(f"{victim} is in its hands", lambda: _true(arrived.is_set()))
    await running.crash()
    await world.jump(2 * world.settings.worker.lease)
    for shard in world.installation.shards:
        await shard.reclaim(silence=world.settings.worker.lease / 2)
    # It is left alone for some seconds before it is tried again.
    await world.jump(timedelta(seconds=10))


async def _true(value: bool) -> bool:
    return value


@pytest.mark.every_server
async def test_a_job_whose_worker_died_is_tried_alone(world: World) -> None:
    outside, active, beside = Outside(), set[str](), dict[str, set[str]]()
    one = event("a")
    other = world.beside(one, "b")

    async def watched(job: Job, batch: Batch) -> Verdict:
        active.add(job.target)
        beside.setdefault(job.target, set()).update(active)
        for name in active:
            beside[name].add(job.target)
        await asyncio.sleep(0.02)
        active.discard(job.target)
        await outside.call(job, batch)
        return Gone()

    suspects = {"s0", "s1", "s2"}
    jobs = await world.lay(one, [thing(name) for name in sorted(suspects)])
    taken = await world.take(one, "victim", LANE)
    assert len(taken.lanes[0].jobs) == 3
    await world.jump(LEASE + SECOND)
    await reclaim(world, one)
    assert set(await world.members("alone")) == {jobs[name] for name in suspects}
    assert not await world.queue(LANE)

    await world.lay(other, [thing(f"t{number}", "sim/acct/other") for number in range(50)])
    outside.always = watched
    await world.start(outside, concurrency=10)
    await world.until_done(one, other)
    for name in suspects:
        assert beside[name] == {name}
    assert max(len(those) for name, those in beside.items() if name not in suspects) > 1
    assert not await world.members("alone")
    assert (await world.job(jobs["s0"])).get("alone", "0") == "0"


async def test_a_worker_that_died_right_after_a_sign_of_life_is_found_dead(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    lease = world.settings.worker.lease
    await world.take(one, "victim", LANE, lease=lease)
    await world.jump(lease * 0.19)
    # A sign of life that came too early to renew the lease; then it died.
    await world.shard(one).renew("victim", lease, [], patience=SECOND)
    await world.jump(lease * 0.82)
    outside = Outside()
    paused = await world.shard(one).pause("*", stop=True, who="tests")
    assert paused
    await world.start(outside)

    async def suspected() -> bool:
        return list(await world.members("alone")) == [job]

    await world.until("its job is to be tried alone", suspected)


async def test_a_job_that_a_living_worker_lost_goes_back_to_its_lane(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    await world.take(one, "alive", LANE)
    await world.jump(LEASE)
    await world.shard(one).renew("alive", LEASE, [], patience=SECOND)
    await world.jump(SECOND)
    assert await reclaim(world, one) == [job]
    assert list(await world.queue(LANE)) == [job]
    assert not await world.members("alone")


async def test_a_job_that_kills_its_worker_three_times_while_alone_is_set_aside(world: World) -> None:
    outside = Outside()
    one = event("a")
    jobs = await world.lay(one, [thing("poison"), thing("innocent")])
    outside.answers["innocent"] = []
    for death in range(4):
        assert not await world.members("dead"), f"set aside after only {death} deaths"
        await kill(world, outside, "poison")
    await world.start(outside)

    async def aside() -> bool:
        return list(await world.members("dead")) == [jobs["poison"]]

    await world.until("it is set aside", aside)
    record = await world.job(jobs["poison"])
    assert record["state"] == "aside"
    assert "died" in record["last_error"]
    assert await world.decisions("set aside") == [jobs["poison"]]
    assert await world.state(one) == "running"
    assert (await world.job(jobs["innocent"]))["state"] == "gone"
    await world.tidy()
    assert (await world.stats())["aside"] == 1

    # A person has mended what was wrong, and brings it back.
    outside.answers["poison"] = []
    assert await world.shard(one).retry(jobs["poison"], "tests") == "due"
    await world.until_done(one)
    assert not await world.members("dead")


async def test_a_best_effort_job_that_kills_its_workers_is_given_up(world: World) -> None:
    outside = Outside()
    one = event("a")
    jobs = await world.lay(one, [thing("poison", strategy="best-effort")])
    for _ in range(4):
        await kill(world, outside, "poison")
    await world.start(outside)
    await world.until_done(one)
    assert (await world.job(jobs["poison"]))["state"] == "dead"
    assert (await world.deletion(one))["given_up"] == "1"


async def test_a_storm_of_kills_condemns_no_innocent_job(world: World) -> None:
    one = event("a")
    other = world.beside(one, "other")
    job = (await world.lay(one, [thing("innocent")]))["innocent"]
    await world.lay(other, [thing(f"t{number}", "sim/acct/storm") for number in range(12)])
    taken: Taken = await world.take(one, "w0", LANE)
    for death in range(1, 9):
        # With each of its workers dies another one that has nothing to do with it, and whose lease ends later.
        shard = world.shard(one)
        await shard.renew(f"w{death - 1}", LEASE, [], patience=SECOND)
        await shard.renew(f"x{death}", LEASE, [], patience=SECOND)
        await world.take(other, f"x{death}", "sim/acct/storm", 1, lease=10 * LEASE)
        await world.jump(LEASE + SECOND)
        assert job in await reclaim(world, one)
        await world.jump(timedelta(seconds=10))
        taken = await world.take(one, f"w{death}", LANE, alone=job)
        assert taken.lanes, f"not to be had after {death} deaths"
    assert not await world.members("dead")
    assert await world.settle(taken, "w8", Gone()) == [True]
    assert (await world.job(job))["state"] == "gone"


async def test_without_a_storm_the_same_deaths_condemn(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("poison")]))["poison"]
    await world.take(one, "w0", LANE)
    for death in range(1, 5):
        await world.shard(one).renew(f"w{death - 1}", LEASE, [], patience=SECOND)
        await world.jump(LEASE + SECOND)
        assert await reclaim(world, one) == [job]
        await world.jump(timedelta(seconds=10))
        taken = await world.take(one, f"w{death}", LANE, alone=job)
        assert bool(taken.lanes) == (death < 4)
    assert list(await world.members("dead")) == [job]
