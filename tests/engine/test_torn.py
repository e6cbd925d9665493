"""Plans that lost the record of one job: the deletion is planned anew, no stage opens early, nothing is left behind."""

from datetime import timedelta

import pytest

from service.contract import Event, Gone, Pending
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World

GRACE = timedelta(minutes=1)
NEXT = "sim/acct/next"


async def lose(world: World, job: str) -> None:
    plan, _, number = job.rpartition(".")
    assert await world.client.hdel(f"{world.shard(job).stem}job:{plan}", number) == 1


async def notice(world: World) -> None:
    """The janitor finds it, and after a while believes it."""
    await world.jump(GRACE)
    await world.tidy()
    await world.jump(GRACE)
    await world.tidy()


async def owned(world: World, outside: Outside, *, after: timedelta = timedelta(0)) -> tuple[Event, dict[str, str]]:
    """Two things, and one that must outlive them; planned, with the first two in their lane."""
    targets = [thing("one", after=after), thing("two", after=after), thing("last", NEXT, stage=1)]
    going = outside.has("a", targets)
    return going, await world.lay(going, targets)


async def carried_out_in_order(world: World, outside: Outside, going: Event) -> None:
    await world.start(outside)
    await world.until_done(going)
    assert set(outside.called[:-1]) == {"one", "two"}
    assert outside.called[-1] == "last"
    record = await world.deletion(going)
    assert {name: value for name, value in record.items() if name.startswith("left.")} == {
        "left.0": "0", "left.1": "0", "left.2": "0",
    }  # fmt: skip


@pytest.mark.parametrize("after", [timedelta(0), timedelta(hours=3)], ids=["queued", "parked"])
async def test_a_deletion_that_lost_a_waiting_job_is_planned_anew_with_all_of_them(
    world: World, after: timedelta
) -> None:
    outside = Outside()
    going, jobs = await owned(world, outside, after=after)
    await lose(world, jobs["one"])
    await world.jump(GRACE)
    await world.tidy()
    assert await world.state(going) == "running", "whoever has it in hand may yet write it anew"
    await world.jump(GRACE)
    await world.tidy()
    assert await world.decisions("planned anew") == [going.deletion]
    assert await world.state(going) == "published"
    # Nothing of the old plan can be taken any more: it would count in the new one.
    assert not [job for job in await world.queue(LANE) if job != jobs["one"]]
    if after:
        await world.jump(after)
        outside.has("a", [thing("one"), thing("two"), thing("last", NEXT, stage=1)])
    await carried_out_in_order(world, outside, going)
    assert not await world.queue(LANE)


@pytest.mark.invariant(5)
async def test_a_job_that_was_lost_before_its_stage_opened_lets_nothing_behind_it_begin(world: World) -> None:
    outside = Outside()
    targets = [thing("one"), thing("two", stage=1), thing("also", stage=1), thing("last", NEXT, stage=2)]
    going = outside.has("a", targets)
    jobs = await world.lay(going, targets)
    await lose(world, jobs["two"])
    running = await world.start(outside)

    async def also_is_gone() -> bool:
        return "also" in outside.called and (await world.deletion(going))["left.1"] == "1"

    await world.until("the rest of the stage is gone", also_is_gone)
    await running.stop()
    await world.tidy()
    record = await world.deletion(going)
    assert "opened.2" not in record
    assert not await world.queue(NEXT)
    await notice(world)
    outside.calls.clear()
    await world.start(outside)
    await world.until_done(going)
    assert outside.called[0] == "one"
    assert set(outside.called[1:3]) == {"two", "also"}
    assert outside.called[3] == "last"


async def test_a_leased_job_that_was_lost_with_its_worker_is_planned_anew(world: World) -> None:
    outside = Outside()
    going, jobs = await owned(world, outside)
    taken = await world.take(going, "victim", LANE)
    assert len(taken.lanes[0].jobs) == 2
    await lose(world, jobs["one"])
    await world.jump(2 * GRACE)
    await world.shard(going).reclaim(silence=GRACE)
    await notice(world)
    assert await world.decisions("planned anew") == [going.deletion]
    assert not await world.members("alone")
    # The dead were only silent: what they say late counts neither in the old plan nor in the new one.
    assert await world.settle(taken, "victim", Gone()) == [False, False]
    await carried_out_in_order(world, outside, going)


@pytest.mark.parametrize("verdict", [Gone(), Pending(timedelta(minutes=5))], ids=["gone", "pending"])
async def test_a_leased_job_whose_worker_settles_it_is_there_again(world: World, verdict: Gone | Pending) -> None:
    outside = Outside()
    going, jobs = await owned(world, outside)
    taken = await world.take(going, "hand", LANE, lease=timedelta(hours=1))
    await lose(world, jobs["one"])
    await world.jump(GRACE)
    await world.tidy()
    assert "torn" in await world.deletion(going)
    assert await world.settle(taken, "hand", verdict) == [True, True]
    await world.jump(GRACE)
    await world.tidy()
    assert "torn" not in await world.deletion(going)
    assert await world.state(going) == "running"
    assert not await world.decisions("planned anew")


async def test_a_worker_that_has_a_lost_job_in_hand_for_too_long_counts_for_nothing(world: World) -> None:
    outside = Outside()
    going, jobs = await owned(world, outside)
    taken = await world.take(going, "slow", LANE, lease=timedelta(hours=1))
    await lose(world, jobs["one"])
    await notice(world)
    assert not await world.leases(LANE)
    running = await world.start(outside)
    await world.until_done(going)
    await running.stop()
    before = await world.deletion(going)
    assert await world.settle(taken, "slow", Gone()) == [False, False]
    assert await world.deletion(going) == before


async def test_a_job_that_had_ended_may_lose_its_record_and_the_deletion_goes_on(world: World) -> None:
    outside = Outside()
    going, jobs = await owned(world, outside)
    taken = await world.take(going, "hand", LANE)
    assert await world.settle(taken, "hand", Gone()) == [True, True]
    await lose(world, jobs["one"])
    await notice(world)
    assert not await world.decisions("planned anew")
    await world.start(outside)
    await world.until_done(going)
    assert outside.called == ["last"]


@pytest.mark.every_server
async def test_a_lost_release_is_planned_anew(world: World) -> None:
    outside = Outside()
    going = outside.has("a", [thing("one")])
    await world.lay(going, [thing("one")])
    taken = await world.take(going, "hand", LANE)
    await world.settle(taken, "hand", Gone())
    await lose(world, (await world.jobs_of(going))[-1])
    await notice(world)
    assert await world.decisions("planned anew") == [going.deletion]
    await world.start(outside)
    await world.until_done(going)


async def test_held_and_dead_jobs_of_a_plan_that_is_no_more_are_not_shown(world: World) -> None:
    outside = Outside()
    going, jobs = await owned(world, outside)
    for index, name in (("held", f"job:{jobs['two']}"), ("dead", jobs["two"]), ("alone", jobs["two"])):
        await world.client.zadd(world.shard(going).stem + index, {name: 1})
    await lose(world, jobs["one"])
    await notice(world)
    assert not await world.members("held")
    assert not await world.members("dead")
    assert not await world.members("alone")


async def test_a_held_job_whose_whole_plan_is_lost_is_not_shown_any_more(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("one")])
    stem = world.shard(one).stem
    await world.client.zadd(stem + "held", {f"job:{jobs['one']}": 1})
    await world.tidy()
    assert list(await world.members("held")) == [f"job:{jobs['one']}"]
    await world.client.delete(f"{stem}job:{one.deletion}#1")
    await world.tidy()
    assert not await world.members("held")


@pytest.mark.long
async def test_a_large_plan_that_lost_a_job_is_taken_apart_at_once_and_carried_out(world: World) -> None:
    outside = Outside()
    targets = [thing(f"t{number}") for number in range(3000)]
    going = outside.has("a", targets)
    jobs = await world.lay(going, targets)
    await lose(world, jobs["t1234"])
    for _ in range(4):
        await notice(world)
    assert await world.decisions("planned anew") == [going.deletion]
    assert not [key async for key in world.client.scan_iter(match=f"{world.shard(going).stem}job:*")]
    await world.start(outside)
    await world.until_done(going)
    assert sorted(outside.called) == sorted(target.id for target in targets)


async def test_what_an_earlier_plan_left_in_a_lane_is_no_job_of_the_next(world: World) -> None:
    """A plan is made anew, then the deletion's record is lost as well, and it is published once more."""
    going = event("a")
    targets = [thing("one"), thing("two"), thing("three")]
    await world.lay(going, targets)
    stem = world.shard(going).stem
    await world.client.delete(f"{stem}job:{going.deletion}#1")
    await world.jump(GRACE)
    await world.tidy()
    await world.lay(going, targets, published=True)
    await world.client.delete(f"{stem}deletion:{going.deletion}")
    await world.tidy()
    jobs = await world.lay(going, [thing("three")])
    await world.jump(GRACE)
    assert [job for lane in (await world.take(going, "w1", LANE)).lanes for job in lane.jobs] == [jobs["three"]]


async def test_a_job_whose_place_is_in_another_lane_is_not_taken_from_this_one(world: World) -> None:
    going = event("a")
    jobs = await world.lay(going, [thing("one"), thing("two", "sim/acct/other")])
    await world.client.zadd(f"{world.shard(going).stem}lane:{LANE}:urgent", {jobs["two"]: 1})
    await world.jump(GRACE)
    assert [job for lane in (await world.take(going, "w1", LANE)).lanes for job in lane.jobs] == [jobs["one"]]
    assert jobs["two"] in await world.queue("sim/acct/other")
