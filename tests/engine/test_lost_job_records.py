"""Plans that lost the record of one job: the deletion is planned again, no stage opens early, nothing is left."""

from datetime import timedelta

import pytest

from service.contract import Event, Gone, Pending
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

GRACE = timedelta(minutes=1)
NEXT = "sim/acct/next"


async def lose(engine: EngineUnderTest, job: str) -> None:
    plan, _, number = job.rpartition(".")
    assert await engine.client.hdel(f"{engine.shard(job).stem}job:{plan}", number) == 1


async def notice(engine: EngineUnderTest) -> None:
    """The janitor finds it, and after a while believes it."""
    await engine.jump(GRACE)
    await engine.tidy()
    await engine.jump(GRACE)
    await engine.tidy()


async def owned(
    engine: EngineUnderTest, provider: ScriptedProvider, *, after: timedelta = timedelta(0)
) -> tuple[Event, dict[str, str]]:
    """Two things, and one that must outlive them; planned, with the first two in their lane."""
    targets = [thing("one", after=after), thing("two", after=after), thing("last", NEXT, stage=1)]
    going = provider.has("a", targets)
    return going, await engine.lay(going, targets)


async def carried_out_in_order(engine: EngineUnderTest, provider: ScriptedProvider, going: Event) -> None:
    await engine.start(provider)
    await engine.until_done(going)
    assert set(provider.called[:-1]) == {"one", "two"}
    assert provider.called[-1] == "last"
    record = await engine.deletion(going)
    assert {name: value for name, value in record.items() if name.startswith("left.")} == {
        "left.0": "0", "left.1": "0", "left.2": "0",
    }  # fmt: skip


@pytest.mark.parametrize("after", [timedelta(0), timedelta(hours=3)], ids=["queued", "parked"])
async def test_a_deletion_that_lost_a_waiting_job_is_planned_anew_with_all_of_them(
    engine: EngineUnderTest, after: timedelta
) -> None:
    provider = ScriptedProvider()
    going, jobs = await owned(engine, provider, after=after)
    await lose(engine, jobs["one"])
    await engine.jump(GRACE)
    await engine.tidy()
    assert await engine.state(going) == "running", "whoever has it in hand may yet write it anew"
    await engine.jump(GRACE)
    await engine.tidy()
    assert await engine.decisions("planned anew") == [going.deletion]
    assert await engine.state(going) == "published"
    # Nothing of the old plan can be taken any more: it would count in the new one.
    assert not [job for job in await engine.queue(LANE) if job != jobs["one"]]
    if after:
        await engine.jump(after)
        provider.has("a", [thing("one"), thing("two"), thing("last", NEXT, stage=1)])
    await carried_out_in_order(engine, provider, going)
    assert not await engine.queue(LANE)


@pytest.mark.invariant(5)
async def test_a_job_that_was_lost_before_its_stage_opened_lets_nothing_behind_it_begin(
    engine: EngineUnderTest,
) -> None:
    provider = ScriptedProvider()
    targets = [thing("one"), thing("two", stage=1), thing("also", stage=1), thing("last", NEXT, stage=2)]
    going = provider.has("a", targets)
    jobs = await engine.lay(going, targets)
    await lose(engine, jobs["two"])
    running = await engine.start(provider)

    async def also_is_gone() -> bool:
        return "also" in provider.called and (await engine.deletion(going))["left.1"] == "1"

    await engine.until("the rest of the stage is gone", also_is_gone)
    await running.stop()
    await engine.tidy()
    record = await engine.deletion(going)
    assert "opened.2" not in record
    assert not await engine.queue(NEXT)
    await notice(engine)
    provider.calls.clear()
    await engine.start(provider)
    await engine.until_done(going)
    assert provider.called[0] == "one"
    assert set(provider.called[1:3]) == {"two", "also"}
    assert provider.called[3] == "last"


async def test_a_leased_job_that_was_lost_with_its_worker_is_planned_anew(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going, jobs = await owned(engine, provider)
    taken = await engine.take(going, "victim", LANE)
    assert len(taken.lanes[0].jobs) == 2
    await lose(engine, jobs["one"])
    await engine.jump(2 * GRACE)
    await engine.shard(going).reclaim(silence=GRACE)
    await notice(engine)
    assert await engine.decisions("planned anew") == [going.deletion]
    assert not await engine.members("alone")
    # The dead were only silent: what they say late counts neither in the old plan nor in the new one.
    assert await engine.settle(taken, "victim", Gone()) == [False, False]
    await carried_out_in_order(engine, provider, going)


@pytest.mark.parametrize("verdict", [Gone(), Pending(timedelta(minutes=5))], ids=["gone", "pending"])
async def test_a_leased_job_whose_worker_settles_it_is_there_again(
    engine: EngineUnderTest, verdict: Gone | Pending
) -> None:
    provider = ScriptedProvider()
    going, jobs = await owned(engine, provider)
    taken = await engine.take(going, "hand", LANE, lease=timedelta(hours=1))
    await lose(engine, jobs["one"])
    await engine.jump(GRACE)
    await engine.tidy()
    assert "torn" in await engine.deletion(going)
    assert await engine.settle(taken, "hand", verdict) == [True, True]
    await engine.jump(GRACE)
    await engine.tidy()
    assert "torn" not in await engine.deletion(going)
    assert await engine.state(going) == "running"
    assert not await engine.decisions("planned anew")


async def test_a_worker_that_has_a_lost_job_in_hand_for_too_long_counts_for_nothing(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going, jobs = await owned(engine, provider)
    taken = await engine.take(going, "slow", LANE, lease=timedelta(hours=1))
    await lose(engine, jobs["one"])
    await notice(engine)
    assert not await engine.leases(LANE)
    running = await engine.start(provider)
    await engine.until_done(going)
    await running.stop()
    before = await engine.deletion(going)
    assert await engine.settle(taken, "slow", Gone()) == [False, False]
    assert await engine.deletion(going) == before


async def test_a_job_that_had_ended_may_lose_its_record_and_the_deletion_goes_on(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going, jobs = await owned(engine, provider)
    taken = await engine.take(going, "hand", LANE)
    assert await engine.settle(taken, "hand", Gone()) == [True, True]
    await lose(engine, jobs["one"])
    await notice(engine)
    assert not await engine.decisions("planned anew")
    await engine.start(provider)
    await engine.until_done(going)
    assert provider.called == ["last"]


@pytest.mark.every_server
async def test_a_lost_release_is_planned_anew(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going = provider.has("a", [thing("one")])
    await engine.lay(going, [thing("one")])
    taken = await engine.take(going, "hand", LANE)
    await engine.settle(taken, "hand", Gone())
    await lose(engine, (await engine.jobs_of(going))[-1])
    await notice(engine)
    assert await engine.decisions("planned anew") == [going.deletion]
    await engine.start(provider)
    await engine.until_done(going)


async def test_held_and_dead_jobs_of_a_plan_that_is_no_more_are_not_shown(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going, jobs = await owned(engine, provider)
    for index, name in (("held", f"job:{jobs['two']}"), ("dead", jobs["two"]), ("alone", jobs["two"])):
        await engine.client.zadd(engine.shard(going).stem + index, {name: 1})
    await lose(engine, jobs["one"])
    await notice(engine)
    assert not await engine.members("held")
    assert not await engine.members("dead")
    assert not await engine.members("alone")


async def test_a_held_job_whose_whole_plan_is_lost_is_not_shown_any_more(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("one")])
    stem = engine.shard(one).stem
    await engine.client.zadd(stem + "held", {f"job:{jobs['one']}": 1})
    await engine.tidy()
    assert list(await engine.members("held")) == [f"job:{jobs['one']}"]
    await engine.client.delete(f"{stem}job:{one.deletion}#1")
    await engine.tidy()
    assert not await engine.members("held")


@pytest.mark.long
async def test_a_large_plan_that_lost_a_job_is_taken_apart_at_once_and_carried_out(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    targets = [thing(f"t{number}") for number in range(3000)]
    going = provider.has("a", targets)
    jobs = await engine.lay(going, targets)
    await lose(engine, jobs["t1234"])
    for _ in range(4):
        await notice(engine)
    assert await engine.decisions("planned anew") == [going.deletion]
    assert not [key async for key in engine.client.scan_iter(match=f"{engine.shard(going).stem}job:*")]
    await engine.start(provider)
    await engine.until_done(going)
    assert sorted(provider.called) == sorted(target.id for target in targets)


async def test_what_an_earlier_plan_left_in_a_lane_is_no_job_of_the_next(engine: EngineUnderTest) -> None:
    """A plan is made anew, then the deletion's record is lost as well, and it is published once more."""
    going = event("a")
    targets = [thing("one"), thing("two"), thing("three")]
    await engine.lay(going, targets)
    stem = engine.shard(going).stem
    await engine.client.delete(f"{stem}job:{going.deletion}#1")
    await engine.jump(GRACE)
    await engine.tidy()
    await engine.lay(going, targets, published=True)
    await engine.client.delete(f"{stem}deletion:{going.deletion}")
    await engine.tidy()
    jobs = await engine.lay(going, [thing("three")])
    await engine.jump(GRACE)
    assert [job for lane in (await engine.take(going, "w1", LANE)).lanes for job in lane.jobs] == [jobs["three"]]


async def test_a_job_whose_place_is_in_another_lane_is_not_taken_from_this_one(engine: EngineUnderTest) -> None:
    going = event("a")
    jobs = await engine.lay(going, [thing("one"), thing("two", "sim/acct/other")])
    await engine.client.zadd(f"{engine.shard(going).stem}lane:{LANE}:urgent", {jobs["two"]: 1})
    await engine.jump(GRACE)
    assert [job for lane in (await engine.take(going, "w1", LANE)).lanes for job in lane.jobs] == [jobs["one"]]
    assert jobs["two"] in await engine.queue("sim/acct/other")
