"""The shared budgets as sweeps and removals on Azure use them: background draws, and answers that tell what is left of
one call's limits where a job makes several."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Job, Limit, Pause, Remaining, Throttled, Verdict
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from tests.redis_servers import TestServer
from workers.handlers.protocol import Batch
from workers.runtime.call_budget import CallBudget

PLACE = "sim/acct"
SLOW = 1 / 3600


@pytest.fixture
async def engine(embedded_server: TestServer) -> AsyncIterator[EngineUnderTest]:
    made = EngineUnderTest(embedded_server.server, embedded_server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def quota(engine: EngineUnderTest) -> CallBudget:
    return CallBudget(engine.installation.budgets, 0.1)


async def drawn(quota: CallBudget, limit: Limit, *, urgent: bool) -> int:
    """How many there are before a caller has to wait."""
    count = 0
    while not await quota.draw(PLACE, (Draw(limit),), urgent=urgent):
        count += 1
    return count


async def test_background_draws_take_what_is_there_and_then_wait(quota: CallBudget) -> None:
    limit = Limit.bucket("calls", 5, SLOW)
    assert await drawn(quota, limit, urgent=False) == 5
    assert await quota.draw(PLACE, (Draw(limit),), urgent=False) > timedelta(0)
    assert await quota.draw(PLACE, (Draw(limit),)) > timedelta(0)


async def test_what_is_spared_is_left_by_background_draws_too(quota: CallBudget) -> None:
    assert await drawn(quota, Limit.bucket("calls", 5, SLOW, spare=3), urgent=False) == 2


async def test_a_draw_takes_of_all_its_limits_or_of_none(quota: CallBudget) -> None:
    few, many = Limit.bucket("few", 1, SLOW), Limit.bucket("many", 5, SLOW)
    assert not await quota.draw(PLACE, (Draw(many), Draw(few)), urgent=False)
    assert await quota.draw(PLACE, (Draw(many), Draw(few)), urgent=False)
    assert await drawn(quota, many, urgent=False) == 4


async def test_an_answer_corrects_what_is_left_for_all(quota: CallBudget) -> None:
    limit = Limit.bucket("calls", 10, SLOW)
    assert not await quota.draw(PLACE, (Draw(limit),), urgent=False)
    # Others have used more than we know of.
    await quota.answered(PLACE, limit, 3.0)
    assert await drawn(quota, limit, urgent=True) == 3


async def test_what_is_on_its_way_is_not_counted_as_left(quota: CallBudget) -> None:
    limit = Limit.bucket("calls", 10, SLOW)
    for _ in range(4):
        assert not await quota.draw(PLACE, (Draw(limit),), urgent=False)
    await quota.answered(PLACE, limit, 9.0)
    # Three have not arrived when that was said.
    assert await drawn(quota, limit, urgent=False) == 6


async def test_an_answer_without_a_word_on_it_only_came_back(quota: CallBudget) -> None:
    limit = Limit.bucket("calls", 10, SLOW)
    for _ in range(4):
        assert not await quota.draw(PLACE, (Draw(limit),), urgent=False)
    for _ in range(3):
        await quota.answered(PLACE, limit, None)
    await quota.answered(PLACE, limit, 7.0)
    assert await drawn(quota, limit, urgent=False) == 7


async def test_a_refusal_keeps_everybody_away_for_as_long_as_it_said(quota: CallBudget) -> None:
    limit = Limit.bucket("calls", 10, 10)
    await quota.refused(PLACE, limit, timedelta(minutes=5))
    for urgent in (True, False):
        assert await quota.draw(PLACE, (Draw(limit),), urgent=urgent) > timedelta(minutes=4)


# ---- of one call of several


class ReadingProvider(ScriptedProvider):
    """Each job makes two reads and a change; what the answers say is told with what each call drew."""

    feedback: Sequence[Remaining | Pause] = ()

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        await self.call(job, batch)
        for one in self.feedback:
            batch.report_quota(one)
        return Gone() if not any(isinstance(one, Pause) for one in self.feedback) else Throttled(timedelta(minutes=1))


READS, CHANGES = Limit.bucket("reads", 20, SLOW), Limit.bucket("changes", 20, SLOW)
DRAWS = (Draw(READS, 2.0), Draw(CHANGES))


async def one_job(engine: EngineUnderTest, *feedback: Remaining | Pause) -> None:
    provider = ReadingProvider(draws_on=lambda _lane: DRAWS)
    provider.feedback = feedback
    await engine.lay(one := event("a"), [thing("t")])
    running = await engine.start(provider)

    async def called() -> bool:
        return len(provider.calls) > 0

    await engine.until("it has called", called)
    if not any(isinstance(word, Pause) for word in feedback):
        await engine.until_done(one)
    await running.stop()


async def test_each_call_of_a_job_that_came_back_counts_for_itself(engine: EngineUnderTest, quota: CallBudget) -> None:
    await one_job(
        engine, Remaining("reads", 19.0, 1.0), Remaining("reads", 12.0, 1.0), Remaining("changes", 15.0, 1.0)
    )  # fmt: skip
    # Both have come back, so that nothing is on its way when the second says 12.
    assert await drawn(quota, READS, urgent=True) == 12
    assert await drawn(quota, CHANGES, urgent=True) == 15


async def test_a_call_that_has_not_come_back_is_still_on_its_way(engine: EngineUnderTest, quota: CallBudget) -> None:
    await one_job(engine, Remaining("reads", 12.0, 1.0))
    assert await drawn(quota, READS, urgent=True) == 11


async def test_without_a_number_all_that_the_job_draws_has_come_back(
    engine: EngineUnderTest, quota: CallBudget
) -> None:
    await one_job(engine, Remaining("reads", 12.0))
    assert await drawn(quota, READS, urgent=True) == 12


async def test_a_refusal_pauses_the_limit_that_it_names_and_no_other(
    engine: EngineUnderTest, quota: CallBudget
) -> None:
    await one_job(engine, Pause("reads", timedelta(minutes=5), 1.0))

    async def paused() -> bool:
        return await quota.draw(PLACE, (Draw(READS),)) > timedelta(minutes=4)

    await engine.until("reads are paused", paused)
    assert await quota.draw(PLACE, (Draw(CHANGES),)) == timedelta(0)
