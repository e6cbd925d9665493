"""Budget of calls outside of any lane: they draw on the budgets that lanes share, and report throttling to them."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Limit
from service.engine.budgets import ReservationRequest
from standins.redis_servers import LocalRedis
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.providers.aws.model import AwsBudgets
from workers.runtime.call_budget import CallBudget

PLACE = "sim/acct"
LISTS = Limit.bucket("lists", 3, rate=0.01)
READS = Limit.bucket("reads", 100, rate=1)
SLOW = Limit.bucket("slow", 100, rate=0.001)


def quota_of(engine: EngineUnderTest) -> AwsBudgets:
    return CallBudget(engine.installation.budgets, 0.1)


async def test_tokens_are_drawn_one_call_at_a_time_until_there_are_none(engine: EngineUnderTest) -> None:
    quota = quota_of(engine)
    assert [await quota.draw(PLACE, [Draw(LISTS)]) for _ in range(3)] == [timedelta(0)] * 3
    wait = await quota.draw(PLACE, [Draw(LISTS)])
    assert timedelta(seconds=50) < wait <= timedelta(seconds=100)
    engine.offset += wait
    assert await quota.draw(PLACE, [Draw(LISTS)]) == timedelta(0)


async def test_what_is_not_granted_takes_nothing_from_any_limit(engine: EngineUnderTest) -> None:
    quota = quota_of(engine)
    for _ in range(3):
        await quota.draw(PLACE, [Draw(LISTS), Draw(SLOW, 2.0)])
    before = float((await engine.budget())["slow|tokens"])
    assert await quota.draw(PLACE, [Draw(LISTS), Draw(SLOW, 2.0)]) > timedelta(0)
    assert before - 0.01 < float((await engine.budget())["slow|tokens"]) < before + 0.5
    assert 93.5 < before < 95


async def test_a_call_that_draws_on_nothing_is_free(engine: EngineUnderTest) -> None:
    assert await quota_of(engine).draw(PLACE, []) == timedelta(0)


async def test_one_call_does_not_wait_for_others_to_be_served_together(engine: EngineUnderTest) -> None:
    quota, draws = quota_of(engine), [Draw(Limit.bucket("flock", 10, rate=0.001), together=5)]
    assert [await quota.draw(PLACE, draws) for _ in range(10)] == [timedelta(0)] * 10


async def test_lists_and_lanes_share_the_budget_of_the_account_whatever_the_region(engine: EngineUnderTest) -> None:
    quota = quota_of(engine)
    assert await quota.draw(f"{PLACE}/here", [Draw(LISTS)]) == timedelta(0)
    ask = ReservationRequest(f"{PLACE}/here/delete", 5, 5, 0, (Draw(LISTS),))
    (grant,) = (await engine.installation.budgets.reserve(PLACE, 0.1, [ask])).grants
    assert grant.urgent == 2
    assert await quota.draw(f"{PLACE}/here", [Draw(LISTS)]) > timedelta(0)


async def test_a_refusal_keeps_everybody_away_for_what_was_named(engine: EngineUnderTest) -> None:
    quota, begun = quota_of(engine), await engine.now()
    await quota.refused(PLACE, READS, timedelta(seconds=30))
    wait = await quota.draw(PLACE, [Draw(READS)])
    passed = timedelta(milliseconds=await engine.now() - begun)
    assert timedelta(seconds=30) - passed < wait < timedelta(seconds=33)
    budget = await engine.budget()
    assert float(budget["reads|factor"]) < 0.75

    def draws(lane: str) -> Sequence[Draw]:
        return (Draw(READS),)

    provider = ScriptedProvider(draws_on=draws)
    one = event("a")
    await engine.lay(one, [thing("one")])
    await engine.start(provider)

    async def told() -> bool:
        return (await engine.members("lanes"))[LANE] > await engine.now() + 20_000

    await engine.until("the lane waits, too", told)
    assert not provider.calls
    await engine.jump(timedelta(seconds=40))
    await engine.until_done(one)


async def test_a_refusal_that_names_no_time_is_a_pause_of_a_moment(engine: EngineUnderTest) -> None:
    quota, begun = quota_of(engine), await engine.now()
    await quota.refused(PLACE, READS, None)
    wait = await quota.draw(PLACE, [Draw(READS)])
    passed = timedelta(milliseconds=await engine.now() - begun)
    assert timedelta(seconds=1) - passed < wait < timedelta(seconds=4)


@pytest.mark.long
async def test_an_unavailable_server_grants_nothing_and_blocks_no_caller(
    own_engine: EngineUnderTest, own_server: LocalRedis
) -> None:
    quota, draws = quota_of(own_engine), [Draw(Limit.bucket("slow", 3, rate=0.001))]
    assert await quota.draw(PLACE, draws) == timedelta(0)
    own_server.kill()
    assert await quota.draw(PLACE, draws) > timedelta(0)
    await quota.refused(PLACE, READS, timedelta(0))
    await own_server.revive()
    left = [await quota.draw(PLACE, draws) for _ in range(3)]
    assert left[:2] == [timedelta(0)] * 2
    assert left[2] > timedelta(0)
