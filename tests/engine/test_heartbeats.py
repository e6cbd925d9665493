"""Workers whose heartbeats end while those of others go on are dead: others get their jobs before the leases end."""

from datetime import timedelta

import pytest

from service.stream.replies import Reclaimed
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.test_loss import own
from tests.engine.world import LEASE, World

SECOND = timedelta(seconds=1)


async def beat(world: World, *workers: str) -> None:
    for name in workers:
        await world.shard(event("a")).renew(name, LEASE, [], patience=LEASE)


async def pass_time(world: World, seconds: int, *workers: str) -> None:
    """So many seconds, in each of which these workers send a heartbeat."""
    for _ in range(seconds):
        world.offset += SECOND
        await beat(world, *workers)


async def reclaim(world: World) -> Reclaimed:
    return await world.shard(event("a")).reclaim(silence=LEASE / 2, by_heartbeat=True)


@pytest.fixture
async def held(world: World) -> World:
    """`victim` and `other` have sent a heartbeat, and the first has both jobs of the lane."""
    world.stop_clock()
    await world.lay(event("a"), [thing("one"), thing("two")])
    await world.jump(SECOND)
    await beat(world, "victim", "other")
    await world.take(event("a"), "victim", LANE)
    return world


@pytest.mark.every_server
async def test_jobs_of_a_silent_worker_are_given_back_before_the_lease_ends(held: World) -> None:
    await pass_time(held, 6, "other")
    assert (await reclaim(held)).given_back == []
    await pass_time(held, 3, "other")
    assert len((await reclaim(held)).given_back) == 2
    assert not await held.members(f"leases:{LANE}")
    # They are tried alone: it may be one of them that its worker died of.
    assert len(await held.members("alone")) == 2
    assert (await reclaim(held)).given_back == []


async def test_a_worker_that_sends_heartbeats_keeps_its_leases(held: World) -> None:
    await pass_time(held, 20, "victim", "other")
    assert (await reclaim(held)).given_back == []


async def test_time_in_which_no_worker_could_send_a_heartbeat_does_not_count(held: World) -> None:
    await pass_time(held, 4, "other")
    # The server took no writes for half a minute: what of it counts is as long as the gap that workers may leave.
    await held.jump(30 * SECOND)
    assert (await reclaim(held)).given_back == []
    await beat(held, "other", "victim")
    await pass_time(held, 6, "other")
    assert (await reclaim(held)).given_back == []
    await pass_time(held, 3, "other")
    assert len((await reclaim(held)).given_back) == 2


async def test_after_a_restart_of_the_server_counting_begins_anew(own_world: World) -> None:
    world = own_world
    world.stop_clock()
    await world.lay(event("a"), [thing("one")])
    await world.jump(SECOND)
    await beat(world, "victim", "other")
    await world.take(event("a"), "victim", LANE)
    await pass_time(world, 6, "other")
    await own(world).revive()
    world.offset += 2 * SECOND
    assert (await reclaim(world)).given_back == []
    await pass_time(world, 6, "other")
    assert (await reclaim(world)).given_back == []
    await pass_time(world, 5, "other")
    assert len((await reclaim(world)).given_back) == 1


async def test_a_living_worker_that_was_taken_for_dead_is_told_that_its_leases_are_lost(held: World) -> None:
    (name,) = await held.members("batches")
    fence = int(name.split()[0])
    await pass_time(held, 9, "other")
    assert len((await reclaim(held)).given_back) == 2
    _, strangers = await held.shard(event("a")).renew("victim", LEASE, [(LANE, fence)], patience=LEASE)
    assert strangers == [fence]
    # It may take again, and counts as alive.
    await pass_time(held, 2, "other")
    assert (await reclaim(held)).given_back == []


@pytest.mark.long
async def test_a_full_lane_goes_on_when_all_its_workers_were_killed(world: World) -> None:
    """The leases would last for longer than any test waits."""
    world.change("worker", lease=timedelta(minutes=30), lane_cap=4, silence=2 * SECOND)
    outside, one = Outside(), event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(12)])
    taken = [await world.take(one, name, LANE, count=2, lease=timedelta(minutes=30)) for name in ("w1", "w2")]
    assert [len(batch.lanes[0].jobs) for batch in taken] == [2, 2]
    for name in ("w1", "w2"):
        await world.shard(one).renew(name, timedelta(minutes=30), [], patience=LEASE)
    await world.start(outside)
    await world.until_done(one)
    assert len(outside.called) == 12


async def test_workers_that_die_together_are_no_reason_to_try_their_jobs_alone(held: World) -> None:
    """Though one of them is known to be dead a little earlier."""
    await held.shard(event("a")).renew("second", LEASE, [], patience=LEASE)
    await pass_time(held, 2, "other", "second")
    await pass_time(held, 7, "other")
    assert len((await reclaim(held)).given_back) == 2
    assert await held.members("alone") == {}
    assert len(await held.queue(LANE)) == 2


async def test_jobs_of_a_worker_that_dies_by_itself_are_tried_alone(held: World) -> None:
    await pass_time(held, 9, "other")
    assert len((await reclaim(held)).given_back) == 2
    assert len(await held.members("alone")) == 2


async def test_a_worker_that_names_a_longer_silence_is_given_that_time(held: World) -> None:
    await held.shard(event("a")).renew("victim", LEASE, [], patience=LEASE, silence=30 * SECOND)
    await pass_time(held, 20, "other")
    assert (await reclaim(held)).given_back == []
    await pass_time(held, 12, "other")
    assert len((await reclaim(held)).given_back) == 2


async def test_what_a_dead_worker_takes_late_is_not_kept_from_others(held: World) -> None:
    await pass_time(held, 9, "other")
    jobs = (await reclaim(held)).given_back
    assert len(jobs) == 2
    # Its call was on the way for all that time.
    await held.take(event("a"), "victim", LANE, alone=jobs[0])
    assert await held.members(f"leases:{LANE}")
    assert (await reclaim(held)).given_back == [jobs[0]]
