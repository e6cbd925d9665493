"""Budgets under running workers: several limits per call, shared by all workers, corrected by responses."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from service.contract import Draw, Gone, Job, Limit, Remaining, Throttled, Verdict
from service.engine.budgets import ReservationRequest
from service.settings import LimitOverride
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from workers.handlers.protocol import Batch, NotCleared

MINUTE = timedelta(minutes=1)


def drawing(*limits: Limit) -> ScriptedProvider:
    def draws(lane: str) -> Sequence[Draw]:
        return tuple(Draw(limit) for limit in limits)

    return ScriptedProvider(draws_on=draws)


async def calls(engine: EngineUnderTest, provider: ScriptedProvider, count: int) -> None:
    async def made() -> bool:
        return len(provider.calls) >= count

    await engine.until(f"{count} calls were made", made)


@pytest.mark.every_server
async def test_a_limit_holds_over_all_workers_and_shards(engine: EngineUnderTest) -> None:
    capacity, rate = 5, 50.0
    provider = drawing(Limit.bucket("calls", capacity, rate))
    events = [event(f"e{number}") for number in range(6)]
    for one in events:
        await engine.lay(one, [thing(f"{one.uid}-{number}") for number in range(12)])
    begun = time.monotonic()
    for _ in range(2):
        await engine.start(provider)
    await engine.until_done(*events)
    times = sorted(call.at - begun for call in provider.calls)
    assert len(times) == 72
    for count, at in enumerate(times, 1):
        assert count <= capacity + rate * at


async def test_a_call_draws_on_all_its_limits_and_the_scarcest_decides(engine: EngineUnderTest) -> None:
    few, plenty = Limit.bucket("few", 3, 3 / 3600), Limit.bucket("plenty", 50, 50 / 3600)
    provider = drawing(plenty, few)
    await engine.lay(event("a"), [thing(f"t{number}") for number in range(10)])
    await engine.start(provider)
    await calls(engine, provider, 3)

    async def three() -> bool:
        return len(provider.calls) == 3

    await engine.stays("no more are made", three, timedelta(milliseconds=300))
    budget = await engine.budget()
    assert float(budget["few|tokens"]) < 0.1
    assert 46.9 < float(budget["plenty|tokens"]) < 47.1
    assert (await engine.stats())["taken"] == 3


async def test_a_fixed_window_is_full_again_at_its_start_and_not_before(engine: EngineUnderTest) -> None:
    provider = drawing(Limit.window("calls", 4, MINUTE))
    one = event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(8)])
    await engine.start(provider)
    await calls(engine, provider, 4)
    await engine.jump(timedelta(seconds=30))

    async def four() -> bool:
        return len(provider.calls) == 4

    await engine.stays("the window is used up", four, timedelta(milliseconds=300))
    await engine.jump(timedelta(seconds=30))
    await engine.until_done(one)


async def test_what_a_header_says_is_left_holds_for_everyone(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 1000, 1000 / 36_000)
    provider = drawing(limit)

    async def tells(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        batch.report_quota(Remaining("calls", 4))
        return Gone()

    provider.answers["first"] = [tells]
    first = event("first")
    await engine.lay(first, [thing("first")])
    await engine.start(provider)
    await engine.until_done(first)

    async def corrected() -> bool:
        return float((await engine.budget())["calls|tokens"]) < 4.1

    await engine.until("the budget knows", corrected)
    second = event("second")
    provider.has("second", [thing(f"t{number}") for number in range(10)])
    await engine.publish(second)
    await engine.start(provider)
    await calls(engine, provider, 5)

    async def used_up() -> bool:
        return len(provider.calls) == 5

    await engine.stays("what was left is used up", used_up, timedelta(milliseconds=300))


@pytest.mark.every_server
async def test_a_refusal_pauses_and_lowers_the_limit_which_recovers_over_minutes(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 100, 100)
    provider = drawing(limit)
    provider.answers["one"] = [Throttled(timedelta(seconds=1))]
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    await engine.start(provider)
    await engine.until_done(one)
    budget = await engine.budget()
    assert float(budget["calls|factor"]) < 0.75
    assert (await engine.job(job)).get("attempts", "0") == "0"
    await engine.jump(MINUTE)
    later = event("b")
    await engine.publish(later)
    await engine.until_done(later)
    assert 0.85 < float((await engine.budget())["calls|factor"]) < 0.95
    await engine.jump(4 * MINUTE)
    last = event("c")
    await engine.publish(last)
    await engine.until_done(last)
    assert float((await engine.budget())["calls|factor"]) == 1


async def test_tokens_for_a_call_that_was_not_needed_are_given_back(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 10, 10 / 36_000)
    provider = drawing(limit)

    async def absent(job: Job, batch: Batch) -> Verdict:
        batch.unused("calls")
        return Gone("was not there")

    provider.always = absent
    one = event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(8)])
    await engine.start(provider)
    await engine.until_done(one)

    async def full() -> bool:
        return float((await engine.budget())["calls|tokens"]) > 9.9

    await engine.until("the tokens are back", full)


@pytest.mark.parametrize("ends", ["verdict", "not cleared", "error", "timeout"])
async def test_a_handler_that_counts_its_calls_keeps_exactly_what_they_drew(engine: EngineUnderTest, ends: str) -> None:
    """However the attempt ends; the first attempt makes one call of the four that were reserved."""
    limit = Limit.bucket("calls", 10, 10 / 36_000)
    provider = ScriptedProvider(draws_on=lambda _lane: (Draw(limit, 4),))
    if ends == "timeout":
        engine.change("worker", attempt_timeout=timedelta(milliseconds=200))

    async def counted(_job: Job, batch: Batch) -> Verdict:
        assert batch.meter.spend((Draw(limit),))
        match ends:
            case "not cleared":
                raise NotCleared("paused", 3_600_000)
            case "error":
                raise RuntimeError("no answer")
            case "timeout":
                await asyncio.Event().wait()
        return Gone("seen by a read")

    provider.always = counted
    engine.change("retry", base=timedelta(hours=200), cap=timedelta(hours=200))
    await engine.lay(event("a"), [thing("one")])
    await engine.start(provider)

    async def one_is_spent() -> bool:
        return 8.9 < float((await engine.budget()).get("calls|tokens", 0)) < 9.1

    await engine.until("one token of ten stays drawn", one_is_spent)


async def test_settings_put_another_limit_in_the_place_of_a_declared_one(engine: EngineUnderTest) -> None:
    engine.settings = msgspec.structs.replace(
        engine.settings, limits={"cal*": LimitOverride(capacity=2, window=timedelta(hours=1))}
    )
    provider = drawing(Limit.bucket("calls", 1000, 1000))
    one = event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(5)])
    await engine.start(provider)
    await calls(engine, provider, 2)

    async def two() -> bool:
        return len(provider.calls) == 2

    await engine.stays("the setting holds", two, timedelta(milliseconds=300))
    await engine.jump(timedelta(hours=1))
    await calls(engine, provider, 4)


async def test_with_a_share_of_one_a_lane_that_gets_nothing_earns_nothing(engine: EngineUnderTest) -> None:
    ask = ReservationRequest("sim/acct/delete", 4, 4, 4, (Draw(Limit.bucket("calls", 1, rate=1 / 3600)),))

    async def reserve() -> tuple[int, float]:
        reserved = await engine.installation.budgets.reserve("sim/acct", 1.0, [ask])
        grant = reserved.grants[0]
        return grant.urgent + grant.background, float((await engine.budget())["calls|credit"])

    given, credit = await reserve()
    assert given == 1
    for _ in range(3):
        # Nothing times a share without bound is no number, and must not become credit.
        assert await reserve() == (0, credit)
