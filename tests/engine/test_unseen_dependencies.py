"""A dependency that no read shows is most likely something that just went: its job is tried again soon for ten minutes
after a job of the same deletion ended, and seldom after that."""

from datetime import timedelta

import msgspec
import pytest

from service.contract import Blocked, Event, Gone, Verdict
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, event, thing

pytestmark = pytest.mark.every_server
OTHER = "sim/acct/other"
LONG, MINUTE, SECOND = timedelta(days=1000), timedelta(minutes=1), timedelta(seconds=1)
UNSEEN = Blocked("something that no read shows", unseen=True)


@pytest.fixture
async def jobs(engine: EngineUnderTest) -> dict[str, str]:
    """A deletion of three jobs, `group` in one lane and the others in another; waits are up to 1,000 days."""
    retry = msgspec.structs.replace(engine.settings.retry, blocked_base=LONG, blocked_cap=LONG, unseen_cap=10 * SECOND)
    engine.settings = msgspec.structs.replace(engine.settings, retry=retry)
    engine.stop_clock()
    found = await engine.lay(
        event("a"), [thing("group", chain="g"), thing("one", OTHER, chain="b"), thing("two", OTHER, chain="b")]
    )
    await engine.jump(SECOND)
    return found


async def settle(engine: EngineUnderTest, lane: str, verdict: Verdict) -> None:
    one: Event = event("a")
    assert all(await engine.settle(await engine.take(one, "w", lane), "w", verdict))


async def wait(engine: EngineUnderTest, job: str) -> timedelta:
    record = await engine.job(job)
    return timedelta(milliseconds=int(record["due"]) - int(record["last_at"]))


async def test_soon_after_something_of_the_same_deletion_went(engine: EngineUnderTest, jobs: dict[str, str]) -> None:
    await settle(engine, OTHER, Gone())
    await engine.jump(9 * MINUTE)
    await settle(engine, LANE, UNSEEN)
    assert await wait(engine, jobs["group"]) <= 10 * SECOND


async def test_also_where_only_some_jobs_of_a_stage_have_ended(engine: EngineUnderTest, jobs: dict[str, str]) -> None:
    taken = await engine.take(event("a"), "w", OTHER, count=1)
    assert await engine.settle(taken, "w", Gone()) == [True]
    await settle(engine, LANE, UNSEEN)
    assert await wait(engine, jobs["group"]) <= 10 * SECOND


async def test_seldom_where_nothing_of_the_deletion_went_yet(engine: EngineUnderTest, jobs: dict[str, str]) -> None:
    await settle(engine, LANE, UNSEEN)
    assert await wait(engine, jobs["group"]) > 10 * SECOND


async def test_seldom_ten_minutes_after_the_last_one_went(engine: EngineUnderTest, jobs: dict[str, str]) -> None:
    await settle(engine, OTHER, Gone())
    await engine.jump(11 * MINUTE)
    await settle(engine, LANE, UNSEEN)
    assert await wait(engine, jobs["group"]) > 10 * SECOND


async def test_what_a_read_shows_waits_as_long_as_anything_that_is_blocked(
    engine: EngineUnderTest, jobs: dict[str, str]
) -> None:
    await settle(engine, OTHER, Gone())
    await settle(engine, LANE, Blocked("a rule of another group"))
    assert await wait(engine, jobs["group"]) > 10 * SECOND


async def test_a_time_that_the_provider_names_is_kept(engine: EngineUnderTest, jobs: dict[str, str]) -> None:
    await settle(engine, OTHER, Gone())
    await settle(engine, LANE, Blocked("until then", 3 * MINUTE, unseen=True))
    assert await wait(engine, jobs["group"]) == 3 * MINUTE
