"""Workers that die with jobs in hand: the jobs are tried alone, and deaths are charged to the one that caused them."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Event, Gone, Job, Pending, Verdict
from service.engine.replies import Taken
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.waiting import at_once
from tests.engine.world import LEASE, World
from workers.handlers.protocol import Batch

SECOND = timedelta(seconds=1)


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
    await world.until(f"{victim} is in its hands", lambda: at_once(arrived.is_set()))
    await running.crash()
    await world.jump(2 * world.settings.worker.lease)
    for shard in world.installation.shards:
        await shard.reclaim(silence=world.settings.worker.lease / 2)
    # It is left alone for some seconds before it is tried again.
    await world.jump(timedelta(seconds=10))


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
    await world.reclaim(one)
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
    assert await world.reclaim(one) == [job]
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
        if death == 1:
            # The first one dies by itself, and the job is tried alone from then on.
            await world.jump(LEASE + SECOND)
            assert job in await world.reclaim(one)
            taken = await world.take(one, "w1", LANE, alone=job)
            continue
        await shard.renew(f"x{death}", LEASE, [], patience=SECOND)
        await world.take(other, f"x{death}", "sim/acct/storm", 1, lease=10 * LEASE)
        await world.jump(LEASE + SECOND)
        assert job in await world.reclaim(one)
        await world.jump(timedelta(seconds=10))
        taken = await world.take(one, f"w{death}", LANE, alone=job)
        assert taken.lanes, f"not to be had after {death} deaths"
    assert not await world.members("dead")
    assert await world.settle(taken, "w8", Gone()) == [True]
    assert (await world.job(job))["state"] == "gone"


async def storm(world: World, job: Event, first: str, second: str) -> None:
    """Two workers have something in hand and die at the same time."""
    shard = world.shard(job)
    for name in (first, second):
        await shard.renew(name, LEASE, [], patience=SECOND)
        await world.take(job, name, LANE, 1)
    await world.jump(LEASE + SECOND)


async def test_after_a_storm_jobs_go_back_to_their_lane_and_after_a_second_one_they_are_tried_alone(
    world: World,
) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("first"), thing("second")])
    both = sorted((jobs["first"], jobs["second"]))
    await storm(world, one, "w1", "w2")
    assert sorted(await world.reclaim(one)) == both
    assert not await world.members("alone")
    assert sorted(await world.queue(LANE)) == both
    await storm(world, one, "w3", "w4")
    assert sorted(await world.reclaim(one)) == both
    assert sorted(await world.members("alone")) == both


async def test_a_storm_is_forgotten_once_an_attempt_was_survived(world: World) -> None:
    one = event("a")
    await world.lay(one, [thing("first"), thing("second")])
    for names in (("w1", "w2"), ("w3", "w4")):
        await storm(world, one, *names)
        assert len(await world.reclaim(one)) == 2
        assert not await world.members("alone")
        await world.settle(await world.take(one, "survivor", LANE), "survivor", Pending(timedelta(0)))


async def test_without_a_storm_the_same_deaths_condemn(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("poison")]))["poison"]
    await world.take(one, "w0", LANE)
    for death in range(1, 5):
        await world.shard(one).renew(f"w{death - 1}", LEASE, [], patience=SECOND)
        await world.jump(LEASE + SECOND)
        assert await world.reclaim(one) == [job]
        await world.jump(timedelta(seconds=10))
        taken = await world.take(one, f"w{death}", LANE, alone=job)
        assert bool(taken.lanes) == (death < 4)
    assert list(await world.members("dead")) == [job]
