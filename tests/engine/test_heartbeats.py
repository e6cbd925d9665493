"""Heartbeats: a worker without them, while others send theirs, is dead, and its jobs are reclaimed before its lease
ends."""

from datetime import timedelta

import pytest

from service.engine.script_replies import Reclaimed
from tests.engine.engine_under_test import LEASE, EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.engine.test_lost_writes import own

SECOND = timedelta(seconds=1)


async def beat(engine: EngineUnderTest, *workers: str) -> None:
    for name in workers:
        await engine.shard(event("a")).renew(name, LEASE, [], patience=LEASE)


async def pass_time(engine: EngineUnderTest, seconds: int, *workers: str) -> None:
    """So many seconds, in each of which these workers send a heartbeat."""
    for _ in range(seconds):
        engine.offset += SECOND
        await beat(engine, *workers)


async def reclaim(engine: EngineUnderTest) -> Reclaimed:
    return await engine.shard(event("a")).reclaim(silence=LEASE / 2, by_heartbeat=True)


@pytest.fixture
async def held(engine: EngineUnderTest) -> EngineUnderTest:
    """`victim` and `other` have sent a heartbeat, and the first has both jobs of the lane."""
    engine.stop_clock()
    await engine.lay(event("a"), [thing("one"), thing("two")])
    await engine.jump(SECOND)
    await beat(engine, "victim", "other")
    await engine.take(event("a"), "victim", LANE)
    return engine


@pytest.mark.every_server
async def test_jobs_of_a_silent_worker_are_given_back_before_the_lease_ends(held: EngineUnderTest) -> None:
    await pass_time(held, 6, "other")
    assert (await reclaim(held)).given_back == []
    await pass_time(held, 3, "other")
    assert len((await reclaim(held)).given_back) == 2
    assert not await held.members(f"leases:{LANE}")
    # They are tried alone: it may be one of them that its worker died of.
    assert len(await held.members("alone")) == 2
    assert (await reclaim(held)).given_back == []


async def test_a_worker_that_sends_heartbeats_keeps_its_leases(held: EngineUnderTest) -> None:
    await pass_time(held, 20, "victim", "other")
    assert (await reclaim(held)).given_back == []


async def test_time_in_which_no_worker_could_send_a_heartbeat_does_not_count(held: EngineUnderTest) -> None:
    await pass_time(held, 4, "other")
    # The server took no writes for half a minute: what of it counts is as long as the gap that workers may leave.
    await held.jump(30 * SECOND)
    assert (await reclaim(held)).given_back == []
    await beat(held, "other", "victim")
    await pass_time(held, 6, "other")
    assert (await reclaim(held)).given_back == []
    await pass_time(held, 3, "other")
    assert len((await reclaim(held)).given_back) == 2


async def test_after_a_restart_of_the_server_counting_begins_anew(own_engine: EngineUnderTest) -> None:
    engine = own_engine
    engine.stop_clock()
    await engine.lay(event("a"), [thing("one")])
    await engine.jump(SECOND)
    await beat(engine, "victim", "other")
    await engine.take(event("a"), "victim", LANE)
    await pass_time(engine, 6, "other")
    await own(engine).revive()
    engine.offset += 2 * SECOND
    assert (await reclaim(engine)).given_back == []
    await pass_time(engine, 6, "other")
    assert (await reclaim(engine)).given_back == []
    await pass_time(engine, 5, "other")
    assert len((await reclaim(engine)).given_back) == 1


async def test_a_living_worker_that_was_taken_for_dead_learns_that_its_leases_are_lost(held: EngineUnderTest) -> None:
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
async def test_a_full_lane_goes_on_when_all_its_workers_were_killed(engine: EngineUnderTest) -> None:
    """The leases would last for longer than any test waits."""
    engine.change("worker", lease=timedelta(minutes=30), lane_cap=4, silence=2 * SECOND)
    provider, one = ScriptedProvider(), event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(12)])
    taken = [await engine.take(one, name, LANE, count=2, lease=timedelta(minutes=30)) for name in ("w1", "w2")]
    assert [len(batch.lanes[0].jobs) for batch in taken] == [2, 2]
    for name in ("w1", "w2"):
        await engine.shard(one).renew(name, timedelta(minutes=30), [], patience=LEASE)
    await engine.start(provider)
    await engine.until_done(one)
    assert len(provider.called) == 12


async def test_workers_that_die_together_are_no_reason_to_try_their_jobs_alone(held: EngineUnderTest) -> None:
    """Though one of them is known to be dead a little earlier."""
    await held.shard(event("a")).renew("second", LEASE, [], patience=LEASE)
    await pass_time(held, 2, "other", "second")
    await pass_time(held, 7, "other")
    assert len((await reclaim(held)).given_back) == 2
    assert await held.members("alone") == {}
    assert len(await held.queue(LANE)) == 2


async def test_jobs_of_a_worker_that_dies_by_itself_are_tried_alone(held: EngineUnderTest) -> None:
    await pass_time(held, 9, "other")
    assert len((await reclaim(held)).given_back) == 2
    assert len(await held.members("alone")) == 2


async def test_a_worker_that_names_a_longer_silence_is_given_that_time(held: EngineUnderTest) -> None:
    await held.shard(event("a")).renew("victim", LEASE, [], patience=LEASE, silence=30 * SECOND)
    await pass_time(held, 20, "other")
    assert (await reclaim(held)).given_back == []
    await pass_time(held, 12, "other")
    assert len((await reclaim(held)).given_back) == 2


async def test_what_a_dead_worker_takes_late_is_not_kept_from_others(held: EngineUnderTest) -> None:
    await pass_time(held, 9, "other")
    jobs = (await reclaim(held)).given_back
    assert len(jobs) == 2
    # Its call was on the way for all that time.
    await held.take(event("a"), "victim", LANE, alone=jobs[0])
    assert await held.members(f"leases:{LANE}")
    assert (await reclaim(held)).given_back == [jobs[0]]
