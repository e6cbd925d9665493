"""Learned rates of limits: shared by all workers in Redis, and valid for one declaration."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from service.contract import Draw, Gone, Job, Limit, Pause, Throttled, Verdict
from service.engine.budgets import LimitFeedback, ReservationRequest
from service.engine.installation import Installation
from service.settings import LimitOverride
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from workers.handlers.protocol import Batch
from workers.runtime.call_budget import CallBudget

PLACE = "sim/acct"
CALLS = Limit.bucket("calls", 10, rate=10, spare=1, learns=True)
OTHERS = Limit.bucket("others", 10, rate=10, spare=1, learns=True)
HOUR = timedelta(hours=1)


async def use(engine: EngineUnderTest, seconds: float, *limits: Limit, by: Sequence[Installation] = ()) -> int:
    """For each limit a lane wants more than there is, for so long; it comes every tenth of a second. Answers how
    many tokens they got in all."""
    asks = [ReservationRequest(f"{PLACE}/{limit.name}", 1000, 1000, 0, (Draw(limit),)) for limit in limits or (CALLS,)]
    given = 0
    for _ in range(int(seconds * 10)):
        engine.offset += timedelta(milliseconds=100)
        for one in by or [engine.installation]:
            given += sum(grant.urgent for grant in (await one.budgets.reserve(PLACE, 0.1, asks)).grants)
    return given


async def refuse(engine: EngineUnderTest, limit: Limit = CALLS, pause: int = 1000) -> None:
    await engine.installation.budgets.correct(PLACE, [LimitFeedback(limit, 1, pause=pause, strike=1)])


async def learned(engine: EngineUnderTest, limit: str = "calls") -> float:
    return float((await engine.budget())[f"{limit}|learned"])


@pytest.fixture
def still(engine: EngineUnderTest) -> EngineUnderTest:
    engine.stop_clock()
    return engine


@pytest.mark.every_server
async def test_a_limit_that_was_used_up_is_raised_by_one_step_and_a_refusal_takes_it_back(
    still: EngineUnderTest,
) -> None:
    again = still.install()
    await use(still, 4, by=[still.installation, again])
    assert await learned(still) == 1
    await use(still, 2, by=[still.installation, again])
    assert await learned(still) == 1.25
    await refuse(still)
    assert await learned(still) == 1
    budget = await still.budget()
    assert (float(budget["calls|refused"]), float(budget["calls|factor"])) == (1.25, 1)
    await use(still, 60)
    assert await learned(still) == 1
    still.offset += 6 * HOUR
    await use(still, 7)
    assert await learned(still) == 1.25


async def test_the_raised_rate_is_what_everybody_gets(still: EngineUnderTest) -> None:
    await use(still, 6)
    assert 48 <= await use(still, 4, by=[still.install()]) <= 52


async def test_a_burst_stays_as_it_is_declared(still: EngineUnderTest) -> None:
    await use(still, 40)
    assert await learned(still) == 4
    still.offset += timedelta(minutes=10)
    ask = ReservationRequest(f"{PLACE}/delete", 1000, 1000, 0, (Draw(CALLS),))
    (grant,) = (await still.installation.budgets.reserve(PLACE, 0.1, [ask])).grants
    # Of ten tokens a quarter is left at most, for calls that take different times on their way.
    assert grant.urgent == 7


async def test_a_step_that_was_refused_later_on_is_approached_by_halves(still: EngineUnderTest) -> None:
    await use(still, 11)
    assert await learned(still) == 1.5625
    await refuse(still)
    assert await learned(still) == 1.25
    await use(still, 19)
    assert await learned(still) == 1.25
    await use(still, 3)
    assert await learned(still) == pytest.approx(1.40625)


async def test_a_refusal_of_what_is_declared_slows_the_limit_down_and_nothing_is_raised_until_it_has_recovered(
    still: EngineUnderTest,
) -> None:
    await use(still, 3)
    await refuse(still)
    assert float((await still.budget())["calls|factor"]) == pytest.approx(0.7)
    await use(still, 80)
    assert await learned(still) == 1
    await use(still, 20)
    assert await learned(still) > 1


async def test_what_was_learned_is_there_after_a_day_without_any_work(still: EngineUnderTest) -> None:
    await use(still, 6)
    rest = await still.client.pttl(still.installation.keys.budget(PLACE))
    assert rest > 5 * 24 * HOUR / timedelta(milliseconds=1)
    still.offset += timedelta(days=2)
    await use(still, 1, by=[still.install()])
    assert await learned(still) == 1.25


async def test_a_limit_whose_provider_tells_what_is_left_is_not_raised(still: EngineUnderTest) -> None:
    await still.installation.budgets.correct(PLACE, [LimitFeedback(CALLS, 1, remaining=8)])
    await use(still, 30)
    assert await learned(still) == 1


async def test_a_limit_that_is_not_declared_to_learn_is_not_raised(still: EngineUnderTest) -> None:
    await use(still, 30, Limit.bucket("calls", 10, rate=10), Limit.window("others", 10, timedelta(seconds=1)))
    assert (await learned(still), await learned(still, "others")) == (1, 1)


async def test_settings_turn_it_off_for_all_limits_or_for_some(still: EngineUnderTest) -> None:
    await use(still, 6, CALLS, OTHERS)
    assert (await learned(still), await learned(still, "others")) == (1.25, 1.25)
    firm = msgspec.structs.replace(still.settings, limits={"oth*": LimitOverride(learns=False)})
    await use(still, 7, CALLS, OTHERS, by=[still.install(settings=firm)])
    assert (await learned(still), await learned(still, "others")) == (1.5625, 1)
    worker = msgspec.structs.replace(still.settings.worker, learn_up_to=1.0)
    off = msgspec.structs.replace(still.settings, worker=worker)
    await use(still, 7, CALLS, by=[still.install(settings=off)])
    assert await learned(still) == 1


async def test_a_changed_declaration_starts_anew(still: EngineUnderTest) -> None:
    await use(still, 11)
    await refuse(still)
    assert await learned(still) == 1.25
    changed = msgspec.structs.replace(still.settings, limits={"calls": LimitOverride(rate=12.0)})
    other = still.install(settings=changed)
    await use(still, 1, by=[other])
    assert await learned(still) == 1
    await use(still, 30, by=[other])
    assert await learned(still) > 1.5


async def test_a_refusal_of_one_limit_also_takes_back_the_step_of_another_that_is_waited_for(
    still: EngineUnderTest,
) -> None:
    quota = CallBudget(still.installation.budgets, 0.1)
    await use(still, 6, CALLS, OTHERS)
    await quota.refused(PLACE, CALLS, None, [OTHERS])
    assert (await learned(still), await learned(still, "others")) == (1, 1)
    budget = await still.budget()
    assert (float(budget["others|pause"]), float(budget["others|factor"])) == (0, 1)


async def test_a_limit_is_not_slowed_down_for_a_step_of_another(still: EngineUnderTest) -> None:
    """AWS tells of a refusal only that it is one: it is told of the call's own limit, and another one was raised."""
    quota = CallBudget(still.installation.budgets, 0.1)
    await use(still, 6, OTHERS)
    await use(still, 1, CALLS)
    await quota.refused(PLACE, CALLS, timedelta(seconds=2), [OTHERS])
    budget = await still.budget()
    assert [float(budget[f"{name}|learned"]) for name in ("calls", "others")] == [1, 1]
    assert (float(budget["calls|factor"]), float(budget["others|tokens"])) == (1, 0)
    assert float(budget["calls|pause"]) > await still.now()
    still.offset += timedelta(seconds=6)
    await quota.refused(PLACE, CALLS, None, [OTHERS])
    assert float((await still.budget())["calls|factor"]) == pytest.approx(0.7)


async def test_a_limit_that_no_job_waits_for_keeps_its_rate(still: EngineUnderTest) -> None:
    quota = CallBudget(still.installation.budgets, 0.1)
    await use(still, 6, CALLS, OTHERS)
    still.offset += timedelta(seconds=5)
    await quota.refused(PLACE, CALLS, None, [OTHERS])
    assert (await learned(still), await learned(still, "others")) == (1, 1.25)


async def test_refusals_of_calls_that_a_worker_made_before_the_step_back_take_no_other_step(
    still: EngineUnderTest,
) -> None:
    """Two calls go out together; the second is answered ten seconds after the first one was refused."""
    provider, second = ScriptedProvider(draws_on=lambda lane: (Draw(CALLS), Draw(OTHERS))), asyncio.Event()

    async def at_once(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        batch.report_quota(Pause("calls", timedelta(0), others=("others",)))
        return Throttled(timedelta(hours=1), unasked=True)

    async def late(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        await second.wait()
        batch.report_quota(Pause("calls", timedelta(0), others=("others",)))
        return Gone()

    provider.answers["one"], provider.answers["two"] = [at_once], [late]
    await use(still, 11, CALLS, OTHERS)
    assert await learned(still) == 1.5625
    still.offset += timedelta(seconds=0.5)
    going = event("a")
    await still.lay(going, [thing("one"), thing("two")])
    await still.start(provider)

    async def taken_back() -> bool:
        return (await learned(still), await learned(still, "others")) == (1.25, 1.25)

    await still.until("the first refusal is told", taken_back)
    budget = await still.budget()
    turn, paused = budget["calls|back_turn"], float(budget["calls|pause"])
    await still.jump(timedelta(seconds=10))
    await use(still, 0.25, CALLS, OTHERS)
    second.set()

    async def told() -> bool:
        return float((await still.budget())["calls|pause"]) > paused

    await still.until("the second refusal is told", told)
    budget = await still.budget()
    assert (float(budget["calls|learned"]), budget["calls|back_turn"]) == (1.25, turn)
    assert float(budget["others|learned"]) == 1.25
    assert float(budget["calls|factor"]) == 1
