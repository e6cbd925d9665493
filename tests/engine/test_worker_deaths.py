"""Workers that die with leased jobs: the jobs are tried alone, and deaths are charged to the job that caused them."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Event, Gone, Job, Pending, Verdict
from service.engine.script_replies import Taken
from tests.engine.engine_under_test import LEASE, EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.engine.waiting import at_once
from workers.handlers.protocol import Batch

SECOND = timedelta(seconds=1)


async def kill(engine: EngineUnderTest, provider: ScriptedProvider, victim: str) -> None:
    """A worker that dies of this target, and the time until its lease is over."""
    arrived = asyncio.Event()

    async def deadly(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        arrived.set()
        await asyncio.Event().wait()
        return Gone()

    provider.answers[victim] = [deadly]
    running = await engine.start(provider)
    await engine.until(f"{victim} is in its hands", lambda: at_once(arrived.is_set()))
    await running.crash()
    await engine.jump(2 * engine.settings.worker.lease)
    for shard in engine.installation.shards:
        await shard.reclaim(silence=engine.settings.worker.lease / 2)
    # It is left alone for some seconds before it is tried again.
    await engine.jump(timedelta(seconds=10))


@pytest.mark.every_server
async def test_a_job_whose_worker_died_is_tried_alone(engine: EngineUnderTest) -> None:
    provider, active, beside = ScriptedProvider(), set[str](), dict[str, set[str]]()
    one = event("a")
    other = engine.beside(one, "b")

    async def watched(job: Job, batch: Batch) -> Verdict:
        active.add(job.target)
        beside.setdefault(job.target, set()).update(active)
        for name in active:
            beside[name].add(job.target)
        await asyncio.sleep(0.02)
        active.discard(job.target)
        await provider.call(job, batch)
        return Gone()

    suspects = {"s0", "s1", "s2"}
    jobs = await engine.lay(one, [thing(name) for name in sorted(suspects)])
    taken = await engine.take(one, "victim", LANE)
    assert len(taken.lanes[0].jobs) == 3
    await engine.jump(LEASE + SECOND)
    await engine.reclaim(one)
    assert set(await engine.members("alone")) == {jobs[name] for name in suspects}
    assert not await engine.queue(LANE)

    await engine.lay(other, [thing(f"t{number}", "sim/acct/other") for number in range(50)])
    provider.always = watched
    await engine.start(provider, concurrency=10)
    await engine.until_done(one, other)
    for name in suspects:
        assert beside[name] == {name}
    assert max(len(those) for name, those in beside.items() if name not in suspects) > 1
    assert not await engine.members("alone")
    assert (await engine.job(jobs["s0"])).get("alone", "0") == "0"


async def test_a_worker_that_died_right_after_a_sign_of_life_is_found_dead(engine: EngineUnderTest) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    lease = engine.settings.worker.lease
    await engine.take(one, "victim", LANE, lease=lease)
    await engine.jump(lease * 0.19)
    # A sign of life that came too early to renew the lease; then it died.
    await engine.shard(one).renew("victim", lease, [], patience=SECOND)
    await engine.jump(lease * 0.82)
    provider = ScriptedProvider()
    paused = await engine.shard(one).pause("*", stop=True, who="tests")
    assert paused
    await engine.start(provider)

    async def suspected() -> bool:
        return list(await engine.members("alone")) == [job]

    await engine.until("its job is to be tried alone", suspected)


async def test_a_job_that_a_living_worker_lost_goes_back_to_its_lane(engine: EngineUnderTest) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    await engine.take(one, "alive", LANE)
    await engine.jump(LEASE)
    await engine.shard(one).renew("alive", LEASE, [], patience=SECOND)
    await engine.jump(SECOND)
    assert await engine.reclaim(one) == [job]
    assert list(await engine.queue(LANE)) == [job]
    assert not await engine.members("alone")


async def test_a_job_that_kills_its_worker_three_times_while_alone_is_set_aside(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    jobs = await engine.lay(one, [thing("poison"), thing("innocent")])
    provider.answers["innocent"] = []
    for death in range(4):
        assert not await engine.members("dead"), f"set aside after only {death} deaths"
        await kill(engine, provider, "poison")
    await engine.start(provider)

    async def aside() -> bool:
        return list(await engine.members("dead")) == [jobs["poison"]]

    await engine.until("it is set aside", aside)
    record = await engine.job(jobs["poison"])
    assert record["state"] == "aside"
    assert "died" in record["last_error"]
    assert await engine.decisions("set aside") == [jobs["poison"]]
    assert await engine.state(one) == "running"
    assert (await engine.job(jobs["innocent"]))["state"] == "gone"
    await engine.tidy()
    assert (await engine.stats())["aside"] == 1

    # A person has mended what was wrong, and brings it back.
    provider.answers["poison"] = []
    assert await engine.shard(one).retry(jobs["poison"], "tests") == "due"
    await engine.until_done(one)
    assert not await engine.members("dead")


async def test_a_best_effort_job_that_kills_its_workers_is_given_up(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    jobs = await engine.lay(one, [thing("poison", strategy="best-effort")])
    for _ in range(4):
        await kill(engine, provider, "poison")
    await engine.start(provider)
    await engine.until_done(one)
    assert (await engine.job(jobs["poison"]))["state"] == "dead"
    assert (await engine.deletion(one))["given_up"] == "1"


async def test_a_storm_of_kills_condemns_no_innocent_job(engine: EngineUnderTest) -> None:
    one = event("a")
    other = engine.beside(one, "other")
    job = (await engine.lay(one, [thing("innocent")]))["innocent"]
    await engine.lay(other, [thing(f"t{number}", "sim/acct/storm") for number in range(12)])
    taken: Taken = await engine.take(one, "w0", LANE)
    for death in range(1, 9):
        # With each of its workers dies another one that has nothing to do with it, and whose lease ends later.
        shard = engine.shard(one)
        await shard.renew(f"w{death - 1}", LEASE, [], patience=SECOND)
        if death == 1:
            # The first one dies by itself, and the job is tried alone from then on.
            await engine.jump(LEASE + SECOND)
            assert job in await engine.reclaim(one)
            taken = await engine.take(one, "w1", LANE, alone=job)
            continue
        await shard.renew(f"x{death}", LEASE, [], patience=SECOND)
        await engine.take(other, f"x{death}", "sim/acct/storm", 1, lease=10 * LEASE)
        await engine.jump(LEASE + SECOND)
        assert job in await engine.reclaim(one)
        await engine.jump(timedelta(seconds=10))
        taken = await engine.take(one, f"w{death}", LANE, alone=job)
        assert taken.lanes, f"not to be had after {death} deaths"
    assert not await engine.members("dead")
    assert await engine.settle(taken, "w8", Gone()) == [True]
    assert (await engine.job(job))["state"] == "gone"


async def storm(engine: EngineUnderTest, job: Event, first: str, second: str) -> None:
    """Two workers have something in hand and die at the same time."""
    shard = engine.shard(job)
    for name in (first, second):
        await shard.renew(name, LEASE, [], patience=SECOND)
        await engine.take(job, name, LANE, 1)
    await engine.jump(LEASE + SECOND)


async def test_after_a_storm_jobs_go_back_to_their_lane_and_after_a_second_one_they_are_tried_alone(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("first"), thing("second")])
    both = sorted((jobs["first"], jobs["second"]))
    await storm(engine, one, "w1", "w2")
    assert sorted(await engine.reclaim(one)) == both
    assert not await engine.members("alone")
    assert sorted(await engine.queue(LANE)) == both
    await storm(engine, one, "w3", "w4")
    assert sorted(await engine.reclaim(one)) == both
    assert sorted(await engine.members("alone")) == both


async def test_a_storm_is_forgotten_once_an_attempt_was_survived(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [thing("first"), thing("second")])
    for names in (("w1", "w2"), ("w3", "w4")):
        await storm(engine, one, *names)
        assert len(await engine.reclaim(one)) == 2
        assert not await engine.members("alone")
        await engine.settle(await engine.take(one, "survivor", LANE), "survivor", Pending(timedelta(0)))


async def test_without_a_storm_the_same_deaths_condemn(engine: EngineUnderTest) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("poison")]))["poison"]
    await engine.take(one, "w0", LANE)
    for death in range(1, 5):
        await engine.shard(one).renew(f"w{death - 1}", LEASE, [], patience=SECOND)
        await engine.jump(LEASE + SECOND)
        assert await engine.reclaim(one) == [job]
        await engine.jump(timedelta(seconds=10))
        taken = await engine.take(one, f"w{death}", LANE, alone=job)
        assert bool(taken.lanes) == (death < 4)
    assert list(await engine.members("dead")) == [job]
