"""Clocks: time is the server's; one that goes back refills nothing twice and hands out no token twice."""

from datetime import timedelta

import pytest

from service.contract import Draw, Limit
from service.engine.budgets import Ask
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World

HOUR = timedelta(hours=1)


async def granted(world: World, limit: Limit, most: int = 1000) -> int:
    answer = await world.installation.budgets.reserve("sim/acct", 0.1, [Ask(LANE, most, most, 0, (Draw(limit),))])
    return answer.grants[0].urgent


async def test_a_clock_that_goes_back_refills_no_bucket_twice(world: World) -> None:
    limit = Limit.bucket("calls", 100, 100 / 3600)
    assert await granted(world, limit) == 100
    await world.jump(HOUR)
    assert await granted(world, limit) == 100
    await world.jump(-HOUR)
    assert await granted(world, limit) == 0
    await world.jump(HOUR)
    assert await granted(world, limit) == 0
    await world.jump(HOUR / 2)
    assert 49 <= await granted(world, limit) <= 50


async def test_a_clock_that_goes_back_opens_no_window_twice(world: World) -> None:
    limit = Limit.window("calls", 100, HOUR)
    assert await granted(world, limit) == 100
    assert await granted(world, limit) == 0
    await world.jump(HOUR)
    assert await granted(world, limit) == 100
    await world.jump(-HOUR)
    assert await granted(world, limit) == 0
    await world.jump(HOUR)
    assert await granted(world, limit) == 0
    await world.jump(HOUR)
    assert await granted(world, limit) == 100


@pytest.mark.every_server
async def test_fencing_tokens_only_grow_whatever_the_clock_does(world: World) -> None:
    one = event("a")
    await world.lay(one, [thing(f"t{number}", f"sim/acct/op{number}") for number in range(4)])
    fences = []
    for number, by in enumerate((2 * HOUR, -HOUR, -HOUR / 2, 3 * HOUR)):
        await world.jump(by)
        taken = await world.take(one, "hand", f"sim/acct/op{number}")
        fences.append(taken.lanes[0].fence)
    assert fences == sorted(set(fences))


async def test_workers_go_on_after_the_clock_has_gone_back(world: World) -> None:
    outside = Outside()
    first = outside.has("a", [thing("one")])
    await world.start(outside)
    await world.publish(first)
    await world.until_done(first)
    await world.jump(-HOUR)
    second = outside.has("b", [thing("two", after=timedelta(milliseconds=300))])
    await world.publish(second)
    await world.until_done(second)
    assert outside.called == ["one", "two"]


async def test_times_are_the_servers_and_not_the_workers(world: World) -> None:
    """With a server a day ahead, everything is a day ahead, and nothing waits a day."""
    world.offset = timedelta(days=1)
    outside = Outside()
    one = outside.has("a", [thing("one", after=timedelta(milliseconds=200))])
    await world.start(outside)
    await world.publish(one)
    await world.until_done(one)
    record = await world.deletion(one)
    assert abs(int(record["done_at"]) - await world.now()) < HOUR / timedelta(milliseconds=1)
