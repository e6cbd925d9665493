"""The shared budgets as sweeps and removals on Azure use them: background draws, and answers that tell what is left of
one call's limits where a job makes several."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Job, Limit, Pause, Remaining, Throttled, Verdict
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World
from tests.servers import TestServer
from workers.handlers.protocol import Batch
from workers.runtime.quota import BudgetQuota

PLACE = "sim/acct"
SLOW = 1 / 3600


@pytest.fixture
async def world(embedded_server: TestServer) -> AsyncIterator[World]:
    made = World(embedded_server.server, embedded_server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def quota(world: World) -> BudgetQuota:
    return BudgetQuota(world.installation.budgets, 0.1)


async def drawn(quota: BudgetQuota, limit: Limit, *, urgent: bool) -> int:
    """How many there are before somebody has to wait."""
    count = 0
    while not await quota.draw(PLACE, (Draw(limit),), urgent=urgent):
        count += 1
    return count


async def test_background_draws_take_what_is_there_and_then_wait(quota: BudgetQuota) -> None:
    limit = Limit.bucket("calls", 5, SLOW)
    assert await drawn(quota, limit, urgent=False) == 5
    assert await quota.draw(PLACE, (Draw(limit),), urgent=False) > timedelta(0)
    assert await quota.draw(PLACE, (Draw(limit),)) > timedelta(0)


async def test_what_is_spared_is_left_by_background_draws_too(quota: BudgetQuota) -> None:
    assert await drawn(quota, Limit.bucket("calls", 5, SLOW, spare=3), urgent=False) == 2


async def test_a_draw_takes_of_all_its_limits_or_of_none(quota: BudgetQuota) -> None:
    few, many = Limit.bucket("few", 1, SLOW), Limit.bucket("many", 5, SLOW)
    assert not await quota.draw(PLACE, (Draw(many), Draw(few)), urgent=False)
    assert await quota.draw(PLACE, (Draw(many), Draw(few)), urgent=False)
    assert await drawn(quota, many, urgent=False) == 4


async def test_an_answer_corrects_what_is_left_for_all(quota: BudgetQuota) -> None:
    limit = Limit.bucket("calls", 10, SLOW)
    assert not await quota.draw(PLACE, (Draw(limit),), urgent=False)
    # Others have used more than we know of.
    await quota.answered(PLACE, limit, 3.0)
    assert await drawn(quota, limit, urgent=True) == 3


async def test_what_is_on_its_way_is_not_counted_as_left(quota: BudgetQuota) -> None:
    limit = Limit.bucket("calls", 10, SLOW)
    for _ in range(4):
        assert not await quota.draw(PLACE, (Draw(limit),), urgent=False)
    await quota.answered(PLACE, limit, 9.0)
    # Three have not arrived when that was said.
    assert await drawn(quota, limit, urgent=False) == 6


async def test_an_answer_without_a_word_on_it_only_came_back(quota: BudgetQuota) -> None:
    limit = Limit.bucket("calls", 10, SLOW)
    for _ in range(4):
        assert not await quota.draw(PLACE, (Draw(limit),), urgent=False)
    for _ in range(3):
        await quota.answered(PLACE, limit, None)
    await quota.answered(PLACE, limit, 7.0)
    assert await drawn(quota, limit, urgent=False) == 7


async def test_a_refusal_keeps_everybody_away_for_as_long_as_it_said(quota: BudgetQuota) -> None:
    limit = Limit.bucket("calls", 10, 10)
    await quota.refused(PLACE, limit, timedelta(minutes=5))
    for urgent in (True, False):
        assert await quota.draw(PLACE, (Draw(limit),), urgent=urgent) > timedelta(minutes=4)


# ---- of one call of several


class Reading(Outside):
    """Each job makes two reads and a change; what the answers say is told with what each call drew."""

    feedback: Sequence[Remaining | Pause] = ()

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        await self.call(job, batch)
        for one in self.feedback:
            batch.tell(one)
        return Gone() if not any(isinstance(one, Pause) for one in self.feedback) else Throttled(timedelta(minutes=1))


READS, CHANGES = Limit.bucket("reads", 20, SLOW), Limit.bucket("changes", 20, SLOW)
DRAWS = (Draw(READS, 2.0), Draw(CHANGES))


async def one_job(world: World, *feedback: Remaining | Pause) -> None:
    outside = Reading(draws_on=lambda _lane: DRAWS)
    outside.feedback = feedback
    await world.lay(one := event("a"), [thing("t")])
    running = await world.start(outside)

    async def called() -> bool:
        return len(outside.calls) > 0

    await world.until("it has called", called)
    if not any(isinstance(word, Pause) for word in feedback):
        await world.until_done(one)
    await running.stop()


async def test_each_call_of_a_job_that_came_back_counts_for_itself(world: World, quota: BudgetQuota) -> None:
    await one_job(
        world, Remaining("reads", 19.0, 1.0), Remaining("reads", 12.0, 1.0), Remaining("changes", 15.0, 1.0)
    )  # fmt: skip
    # Both have come back, so that nothing is on its way when the second says 12.
    assert await drawn(quota, READS, urgent=True) == 12
    assert await drawn(quota, CHANGES, urgent=True) == 15


async def test_a_call_that_has_not_come_back_is_still_on_its_way(world: World, quota: BudgetQuota) -> None:
    await one_job(world, Remaining("reads", 12.0, 1.0))
    assert await drawn(quota, READS, urgent=True) == 11


async def test_without_a_number_all_that_the_job_draws_has_come_back(world: World, quota: BudgetQuota) -> None:
    await one_job(world, Remaining("reads", 12.0))
    assert await drawn(quota, READS, urgent=True) == 12


async def test_a_refusal_pauses_the_limit_that_it_names_and_no_other(world: World, quota: BudgetQuota) -> None:
    await one_job(world, Pause("reads", timedelta(minutes=5), 1.0))

    async def paused() -> bool:
        return await quota.draw(PLACE, (Draw(READS),)) > timedelta(minutes=4)

    await world.until("reads are paused", paused)
    assert await quota.draw(PLACE, (Draw(CHANGES),)) == timedelta(0)
