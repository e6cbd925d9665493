"""Clocks: time is the server's; a clock that goes back causes no double refill and no duplicate token."""

from datetime import timedelta

import pytest

from service.contract import Draw, Limit
from service.engine.budgets import ReservationRequest
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

HOUR = timedelta(hours=1)


async def granted(engine: EngineUnderTest, limit: Limit, most: int = 1000) -> int:
    answer = await engine.installation.budgets.reserve(
        "sim/acct", 0.1, [ReservationRequest(LANE, most, most, 0, (Draw(limit),))]
    )
    return answer.grants[0].urgent


async def test_a_clock_that_goes_back_refills_no_bucket_twice(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 100, 100 / 3600)
    assert await granted(engine, limit) == 100
    await engine.jump(HOUR)
    assert await granted(engine, limit) == 100
    await engine.jump(-HOUR)
    assert await granted(engine, limit) == 0
    await engine.jump(HOUR)
    assert await granted(engine, limit) == 0
    await engine.jump(HOUR / 2)
    assert 49 <= await granted(engine, limit) <= 50


async def test_a_clock_that_goes_back_opens_no_window_twice(engine: EngineUnderTest) -> None:
    limit = Limit.window("calls", 100, HOUR)
    assert await granted(engine, limit) == 100
    assert await granted(engine, limit) == 0
    await engine.jump(HOUR)
    assert await granted(engine, limit) == 100
    await engine.jump(-HOUR)
    assert await granted(engine, limit) == 0
    await engine.jump(HOUR)
    assert await granted(engine, limit) == 0
    await engine.jump(HOUR)
    assert await granted(engine, limit) == 100


@pytest.mark.every_server
async def test_fencing_tokens_only_grow_whatever_the_clock_does(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [thing(f"t{number}", f"sim/acct/op{number}") for number in range(4)])
    fences = []
    for number, by in enumerate((2 * HOUR, -HOUR, -HOUR / 2, 3 * HOUR)):
        await engine.jump(by)
        taken = await engine.take(one, "hand", f"sim/acct/op{number}")
        fences.append(taken.lanes[0].fence)
    assert fences == sorted(set(fences))


async def test_workers_go_on_after_the_clock_has_gone_back(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    first = provider.has("a", [thing("one")])
    await engine.start(provider)
    await engine.publish(first)
    await engine.until_done(first)
    await engine.jump(-HOUR)
    second = provider.has("b", [thing("two", after=timedelta(milliseconds=300))])
    await engine.publish(second)
    await engine.until_done(second)
    assert provider.called == ["one", "two"]


async def test_times_are_the_servers_and_not_the_workers(engine: EngineUnderTest) -> None:
    """With a server a day ahead, everything is a day ahead, and nothing waits a day."""
    engine.offset = timedelta(days=1)
    provider = ScriptedProvider()
    one = provider.has("a", [thing("one", after=timedelta(milliseconds=200))])
    await engine.start(provider)
    await engine.publish(one)
    await engine.until_done(one)
    record = await engine.deletion(one)
    assert abs(int(record["done_at"]) - await engine.now()) < HOUR / timedelta(milliseconds=1)
