"""Withdrawn consent: what is left of a deletion is cancelled, whatever state it is in, and never too late."""

import pytest

from service.contract import Gone
from service.engine.withdrawal import withdraw
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World

WHY = "another hand took our finalizer off"


@pytest.mark.every_server
async def test_a_running_deletion_loses_its_open_jobs_and_keeps_its_reason(world: World) -> None:
    one = event("u1")
    jobs = await world.lay(one, [thing("a"), thing("b"), thing("later", stage=1)])
    assert await withdraw(world.installation, one.deletion, WHY)
    record = await world.deletion(one)
    assert record["withdrawn"] == WHY
    assert record["abandoned"] == "3"
    assert await world.queue(LANE) == {}
    for target in ("a", "b", "later"):
        job = await world.job(jobs[target])
        assert (job["state"], job["last_error"]) == ("abandoned", f"cancelled: {WHY}")
    assert await world.decisions("withdrawn") == [one.deletion]


async def test_a_withdrawn_deletion_goes_through_its_release_and_calls_nothing(world: World) -> None:
    one = event("u1")
    await world.lay(one, [thing("a"), thing("b", stage=1), thing("c", chain="other")])
    assert await withdraw(world.installation, one.deletion, WHY)
    outside = Outside()
    await world.start(outside)
    await world.until_done(one)
    assert outside.calls == []
    assert await world.members("withdrawing") == {}


async def test_what_is_gone_stays_gone(world: World) -> None:
    one = event("u1")
    jobs = await world.lay(one, [thing("a"), thing("b")])
    taken = await world.take(one, "w", LANE, 1)
    await world.settle(taken, "w", Gone())
    assert await withdraw(world.installation, one.deletion, WHY)
    states = {target: (await world.job(job)).get("state") for target, job in jobs.items() if target in "ab"}
    assert sorted(states.values(), key=str) == ["abandoned", "gone"]


async def test_the_lease_of_a_job_in_hand_is_broken(world: World) -> None:
    one = event("u1")
    await world.lay(one, [thing("a")])
    taken = await world.take(one, "w", LANE)
    assert await withdraw(world.installation, one.deletion, WHY)
    assert await world.leases(LANE) == {}
    assert await world.settle(taken, "w", Gone()) == [False]


async def test_an_open_release_is_not_withdrawn(world: World) -> None:
    one = event("u1")
    await world.lay(one, [])
    assert await world.state(one) == "releasing"
    before = await world.deletion(one)
    assert not await withdraw(world.installation, one.deletion, WHY)
    assert await world.deletion(one) == before
    assert await world.decisions("withdrawn") == []


async def test_what_is_done_or_unknown_is_not_withdrawn(world: World) -> None:
    one = event("u1")
    await world.start()
    await world.publish(one)
    await world.until_done(one)
    assert not await withdraw(world.installation, one.deletion, WHY)
    assert not await withdraw(world.installation, "c1/things/nobody/1", WHY)
    assert await world.deletion("c1/things/nobody/1") == {}


async def test_what_is_not_planned_yet_is_dropped_and_never_planned(world: World) -> None:
    one = event("u1")
    await world.publish(one)
    assert await withdraw(world.installation, one.deletion, WHY)
    assert await world.state(one) == "dropped"
    outside = Outside()
    outside.plans["u1"] = RuntimeError("must not be planned")
    await world.start(outside)

    async def read() -> bool:
        return await world.entries() == []

    await world.until("its entry is read and done with", read)
    record = await world.deletion(one)
    assert (record["state"], record["withdrawn"]) == ("dropped", WHY)
    assert one.deletion not in await world.members("open")


async def test_withdrawing_twice_changes_nothing_more(world: World) -> None:
    one = event("u1")
    await world.lay(one, [thing("a")])
    assert await withdraw(world.installation, one.deletion, WHY)
    assert await withdraw(world.installation, one.deletion, "another reason")
    record = await world.deletion(one)
    assert (record["withdrawn"], record["abandoned"]) == (WHY, "1")
    assert await world.decisions("withdrawn") == [one.deletion]


@pytest.mark.parametrize("jobs", [2500])
async def test_many_jobs_are_cancelled_in_bounded_steps_that_a_janitor_takes_up(world: World, jobs: int) -> None:
    one = event("u1")
    await world.lay(one, [thing(f"t{number}", stage=number % 3) for number in range(jobs)])
    shard = world.shard(one)
    state, under_way = await shard.withdraw(one.deletion, WHY, 500)
    # Whoever began has died here: a step took its bounded part, and the rest is still there.
    assert (state, under_way) == ("withdrawn", 1)
    assert (await world.deletion(one))["abandoned"] == "500"
    await world.tidy()
    assert (await world.deletion(one))["abandoned"] == str(jobs)
    assert await world.queue(LANE) == {}
    await world.start()
    await world.until_done(one)
