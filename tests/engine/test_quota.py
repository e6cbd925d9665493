"""Calls that are made outside of any lane draw on the budgets that lanes share, and tell them what was refused."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Limit
from service.local.servers import Server
from service.stream.budgets import Ask
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from workers.handlers.aws.model import Quota
from workers.runtime.quota import BudgetQuota

PLACE = "sim/acct"
LISTS = Limit.bucket("lists", 3, rate=0.01)
READS = Limit.bucket("reads", 100, rate=1)
SLOW = Limit.bucket("slow", 100, rate=0.001)


def quota_of(world: World) -> Quota:
    return BudgetQuota(world.installation.budgets, 0.1)


async def test_tokens_are_drawn_one_call_at_a_time_until_there_are_none(world: World) -> None:
    quota = quota_of(world)
    assert [await quota.draw(PLACE, [Draw(LISTS)]) for _ in range(3)] == [timedelta(0)] * 3
    wait = await quota.draw(PLACE, [Draw(LISTS)])
    assert timedelta(seconds=50) < wait <= timedelta(seconds=100)
    world.offset += wait
    assert await quota.draw(PLACE, [Draw(LISTS)]) == timedelta(0)


async def test_what_is_not_granted_takes_nothing_from_any_limit(world: World) -> None:
    quota = quota_of(world)
    for _ in range(3):
        await quota.draw(PLACE, [Draw(LISTS), Draw(SLOW, 2.0)])
    before = float((await world.budget())["slow|tokens"])
    assert await quota.draw(PLACE, [Draw(LISTS), Draw(SLOW, 2.0)]) > timedelta(0)
    assert before - 0.01 < float((await world.budget())["slow|tokens"]) < before + 0.5
    assert 93.5 < before < 95


async def test_a_call_that_draws_on_nothing_is_free(world: World) -> None:
    assert await quota_of(world).draw(PLACE, []) == timedelta(0)


async def test_one_call_does_not_wait_for_others_to_be_served_together(world: World) -> None:
    quota, draws = quota_of(world), [Draw(Limit.bucket("flock", 10, rate=0.001), together=5)]
    assert [await quota.draw(PLACE, draws) for _ in range(10)] == [timedelta(0)] * 10


async def test_lists_and_lanes_share_the_budget_of_the_account_whatever_the_region(world: World) -> None:
    quota = quota_of(world)
    assert await quota.draw(f"{PLACE}/here", [Draw(LISTS)]) == timedelta(0)
    ask = Ask(f"{PLACE}/here/delete", 5, 5, 0, (Draw(LISTS),))
    (grant,) = (await world.installation.budgets.reserve(PLACE, 0.1, [ask])).grants
    assert grant.urgent == 2
    assert await quota.draw(f"{PLACE}/here", [Draw(LISTS)]) > timedelta(0)


async def test_a_refusal_keeps_everybody_away_for_what_was_named(world: World) -> None:
    quota, begun = quota_of(world), await world.now()
    await quota.refused(PLACE, READS, timedelta(seconds=30))
    wait = await quota.draw(PLACE, [Draw(READS)])
    passed = timedelta(milliseconds=await world.now() - begun)
    assert timedelta(seconds=30) - passed < wait < timedelta(seconds=33)
    budget = await world.budget()
    assert float(budget["reads|factor"]) < 0.75

    def draws(lane: str) -> Sequence[Draw]:
        return (Draw(READS),)

    outside = Outside(draws_on=draws)
    one = event("a")
    await world.lay(one, [thing("one")])
    await world.start(outside)

    async def told() -> bool:
        return (await world.members("lanes"))[LANE] > await world.now() + 20_000

    await world.until("the lane waits, too", told)
    assert not outside.calls
    await world.jump(timedelta(seconds=40))
    await world.until_done(one)


async def test_a_refusal_that_names_no_time_is_a_pause_of_a_moment(world: World) -> None:
    quota, begun = quota_of(world), await world.now()
    await quota.refused(PLACE, READS, None)
    wait = await quota.draw(PLACE, [Draw(READS)])
    passed = timedelta(milliseconds=await world.now() - begun)
    assert timedelta(seconds=1) - passed < wait < timedelta(seconds=4)


@pytest.mark.long
async def test_a_server_that_is_away_grants_nothing_and_keeps_nobody(own_world: World, own_server: Server) -> None:
    quota, draws = quota_of(own_world), [Draw(Limit.bucket("slow", 3, rate=0.001))]
    assert await quota.draw(PLACE, draws) == timedelta(0)
    own_server.kill()
    assert await quota.draw(PLACE, draws) > timedelta(0)
    await quota.refused(PLACE, READS, timedelta(0))
    await own_server.revive()
    left = [await quota.draw(PLACE, draws) for _ in range(3)]
    assert left[:2] == [timedelta(0)] * 2
    assert left[2] > timedelta(0)
