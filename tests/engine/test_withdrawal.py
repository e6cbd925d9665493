"""Withdrawal: what is left of a deletion is cancelled, in every state, and never too late."""

import pytest

from service.contract import Gone
from service.engine.withdrawal import withdraw
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

WHY = "our finalizer was removed by someone else"


@pytest.mark.every_server
async def test_a_running_deletion_loses_its_open_jobs_and_keeps_its_reason(engine: EngineUnderTest) -> None:
    one = event("u1")
    jobs = await engine.lay(one, [thing("a"), thing("b"), thing("later", stage=1)])
    assert await withdraw(engine.installation, one.deletion, WHY)
    record = await engine.deletion(one)
    assert record["withdrawn"] == WHY
    assert record["abandoned"] == "3"
    assert await engine.queue(LANE) == {}
    for target in ("a", "b", "later"):
        job = await engine.job(jobs[target])
        assert (job["state"], job["last_error"]) == ("abandoned", f"cancelled: {WHY}")
    assert await engine.decisions("withdrawn") == [one.deletion]


async def test_a_withdrawn_deletion_goes_through_its_release_and_calls_nothing(engine: EngineUnderTest) -> None:
    one = event("u1")
    await engine.lay(one, [thing("a"), thing("b", stage=1), thing("c", chain="other")])
    assert await withdraw(engine.installation, one.deletion, WHY)
    provider = ScriptedProvider()
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.calls == []
    assert await engine.members("withdrawing") == {}


async def test_what_is_gone_stays_gone(engine: EngineUnderTest) -> None:
    one = event("u1")
    jobs = await engine.lay(one, [thing("a"), thing("b")])
    taken = await engine.take(one, "w", LANE, 1)
    await engine.settle(taken, "w", Gone())
    assert await withdraw(engine.installation, one.deletion, WHY)
    states = {target: (await engine.job(job)).get("state") for target, job in jobs.items() if target in "ab"}
    assert sorted(states.values(), key=str) == ["abandoned", "gone"]


async def test_the_lease_of_a_job_in_hand_is_broken(engine: EngineUnderTest) -> None:
    one = event("u1")
    await engine.lay(one, [thing("a")])
    taken = await engine.take(one, "w", LANE)
    assert await withdraw(engine.installation, one.deletion, WHY)
    assert await engine.leases(LANE) == {}
    assert await engine.settle(taken, "w", Gone()) == [False]


async def test_an_open_release_is_not_withdrawn(engine: EngineUnderTest) -> None:
    one = event("u1")
    await engine.lay(one, [])
    assert await engine.state(one) == "releasing"
    before = await engine.deletion(one)
    assert not await withdraw(engine.installation, one.deletion, WHY)
    assert await engine.deletion(one) == before
    assert await engine.decisions("withdrawn") == []


async def test_what_is_done_or_unknown_is_not_withdrawn(engine: EngineUnderTest) -> None:
    one = event("u1")
    await engine.start()
    await engine.publish(one)
    await engine.until_done(one)
    assert not await withdraw(engine.installation, one.deletion, WHY)
    assert not await withdraw(engine.installation, "c1/things/nobody/1", WHY)
    assert await engine.deletion("c1/things/nobody/1") == {}


async def test_what_is_not_planned_yet_is_dropped_and_never_planned(engine: EngineUnderTest) -> None:
    one = event("u1")
    await engine.publish(one)
    assert await withdraw(engine.installation, one.deletion, WHY)
    assert await engine.state(one) == "dropped"
    provider = ScriptedProvider()
    provider.plans["u1"] = RuntimeError("must not be planned")
    await engine.start(provider)

    async def read() -> bool:
        return await engine.entries() == []

    await engine.until("its entry is read and done with", read)
    record = await engine.deletion(one)
    assert (record["state"], record["withdrawn"]) == ("dropped", WHY)
    assert one.deletion not in await engine.members("open")


async def test_withdrawing_twice_changes_nothing_more(engine: EngineUnderTest) -> None:
    one = event("u1")
    await engine.lay(one, [thing("a")])
    assert await withdraw(engine.installation, one.deletion, WHY)
    assert await withdraw(engine.installation, one.deletion, "another reason")
    record = await engine.deletion(one)
    assert (record["withdrawn"], record["abandoned"]) == (WHY, "1")
    assert await engine.decisions("withdrawn") == [one.deletion]


@pytest.mark.parametrize("jobs", [2500])
async def test_many_jobs_are_cancelled_in_bounded_steps_that_a_janitor_takes_up(
    engine: EngineUnderTest, jobs: int
) -> None:
    one = event("u1")
    await engine.lay(one, [thing(f"t{number}", stage=number % 3) for number in range(jobs)])
    shard = engine.shard(one)
    state, under_way = await shard.withdraw(one.deletion, WHY, 500)
    # Whoever began has died here: a step took its bounded part, and the rest is still there.
    assert (state, under_way) == ("withdrawn", 1)
    assert (await engine.deletion(one))["abandoned"] == "500"
    await engine.tidy()
    assert (await engine.deletion(one))["abandoned"] == str(jobs)
    assert await engine.queue(LANE) == {}
    await engine.start()
    await engine.until_done(one)
