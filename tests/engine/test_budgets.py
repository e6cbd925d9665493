"""Budgets under running workers: several limits for one call, shared by all, corrected by what answers say."""

import time
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from service.contract import Draw, Gone, Job, Limit, Remaining, Throttled, Verdict
from service.engine.budgets import Ask
from service.settings import LimitOverride
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World
from workers.handlers.protocol import Batch

MINUTE = timedelta(minutes=1)


def drawing(*limits: Limit) -> Outside:
    def draws(lane: str) -> Sequence[Draw]:
        return tuple(Draw(limit) for limit in limits)

    return Outside(draws_on=draws)


async def calls(world: World, outside: Outside, count: int) -> None:
    async def made() -> bool:
        return len(outside.calls) >= count

    await world.until(f"{count} calls were made", made)


@pytest.mark.every_server
async def test_a_limit_holds_over_all_workers_and_shards(world: World) -> None:
    capacity, rate = 5, 50.0
    outside = drawing(Limit.bucket("calls", capacity, rate))
    events = [event(f"e{number}") for number in range(6)]
    for one in events:
        await world.lay(one, [thing(f"{one.uid}-{number}") for number in range(12)])
    begun = time.monotonic()
    for _ in range(2):
        await world.start(outside)
    await world.until_done(*events)
    times = sorted(call.at - begun for call in outside.calls)
    assert len(times) == 72
    for count, at in enumerate(times, 1):
        assert count <= capacity + rate * at


async def test_a_call_draws_on_all_its_limits_and_the_scarcest_decides(world: World) -> None:
    few, plenty = Limit.bucket("few", 3, 3 / 3600), Limit.bucket("plenty", 50, 50 / 3600)
    outside = drawing(plenty, few)
    await world.lay(event("a"), [thing(f"t{number}") for number in range(10)])
    await world.start(outside)
    await calls(world, outside, 3)

    async def three() -> bool:
        return len(outside.calls) == 3

    await world.stays("no more are made", three, timedelta(milliseconds=300))
    budget = await world.budget()
    assert float(budget["few|tokens"]) < 0.1
    assert 46.9 < float(budget["plenty|tokens"]) < 47.1
    assert (await world.stats())["taken"] == 3


async def test_a_fixed_window_is_full_again_at_its_start_and_not_before(world: World) -> None:
    outside = drawing(Limit.window("calls", 4, MINUTE))
    one = event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(8)])
    await world.start(outside)
    await calls(world, outside, 4)
    await world.jump(timedelta(seconds=30))

    async def four() -> bool:
        return len(outside.calls) == 4

    await world.stays("the window is used up", four, timedelta(milliseconds=300))
    await world.jump(timedelta(seconds=30))
    await world.until_done(one)


async def test_what_a_header_says_is_left_holds_for_everyone(world: World) -> None:
    limit = Limit.bucket("calls", 1000, 1000 / 36_000)
    outside = drawing(limit)

    async def tells(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        batch.tell(Remaining("calls", 4))
        return Gone()

    outside.answers["first"] = [tells]
    first = event("first")
    await world.lay(first, [thing("first")])
    await world.start(outside)
    await world.until_done(first)

    async def corrected() -> bool:
        return float((await world.budget())["calls|tokens"]) < 4.1

    await world.until("the budget knows", corrected)
    second = event("second")
    outside.has("second", [thing(f"t{number}") for number in range(10)])
    await world.publish(second)
    await world.start(outside)
    await calls(world, outside, 5)

    async def used_up() -> bool:
        return len(outside.calls) == 5

    await world.stays("what was left is used up", used_up, timedelta(milliseconds=300))


@pytest.mark.every_server
async def test_a_refusal_pauses_and_lowers_the_limit_which_recovers_over_minutes(world: World) -> None:
    limit = Limit.bucket("calls", 100, 100)
    outside = drawing(limit)
    outside.answers["one"] = [Throttled(timedelta(seconds=1))]
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    await world.start(outside)
    await world.until_done(one)
    budget = await world.budget()
    assert float(budget["calls|factor"]) < 0.75
    assert (await world.job(job)).get("attempts", "0") == "0"
    await world.jump(MINUTE)
    later = event("b")
    await world.publish(later)
    await world.until_done(later)
    assert 0.85 < float((await world.budget())["calls|factor"]) < 0.95
    await world.jump(4 * MINUTE)
    last = event("c")
    await world.publish(last)
    await world.until_done(last)
    assert float((await world.budget())["calls|factor"]) == 1


async def test_tokens_for_a_call_that_was_not_needed_are_given_back(world: World) -> None:
    limit = Limit.bucket("calls", 10, 10 / 36_000)
    outside = drawing(limit)

    async def absent(job: Job, batch: Batch) -> Verdict:
        batch.unused("calls")
        return Gone("was not there")

    outside.always = absent
    one = event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(8)])
    await world.start(outside)
    await world.until_done(one)

    async def full() -> bool:
        return float((await world.budget())["calls|tokens"]) > 9.9

    await world.until("the tokens are back", full)


async def test_settings_put_another_limit_in_the_place_of_a_declared_one(world: World) -> None:
    world.settings = msgspec.structs.replace(
        world.settings, limits={"cal*": LimitOverride(capacity=2, window=timedelta(hours=1))}
    )
    outside = drawing(Limit.bucket("calls", 1000, 1000))
    one = event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(5)])
    await world.start(outside)
    await calls(world, outside, 2)

    async def two() -> bool:
        return len(outside.calls) == 2

    await world.stays("the setting holds", two, timedelta(milliseconds=300))
    await world.jump(timedelta(hours=1))
    await calls(world, outside, 4)


async def test_with_a_share_of_one_who_gets_nothing_earns_nothing(world: World) -> None:
    ask = Ask("sim/acct/delete", 4, 4, 4, (Draw(Limit.bucket("calls", 1, rate=1 / 3600)),))

    async def reserve() -> tuple[int, float]:
        reserved = await world.installation.budgets.reserve("sim/acct", 1.0, [ask])
        grant = reserved.grants[0]
        return grant.urgent + grant.background, float((await world.budget())["calls|credit"])

    given, credit = await reserve()
    assert given == 1
    for _ in range(3):
        # Nothing times a share without bound is no number, and must not become credit.
        assert await reserve() == (0, credit)
