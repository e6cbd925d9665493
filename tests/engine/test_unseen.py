"""A dependency that no read shows is most likely something that just went: its job is tried again soon for ten minutes
after a job of the same deletion ended, and seldom after that."""

from datetime import timedelta

import msgspec
import pytest

from service.contract import Blocked, Event, Gone, Verdict
from tests.engine.outside import LANE, event, thing
from tests.engine.world import World

pytestmark = pytest.mark.every_server
OTHER = "sim/acct/other"
LONG, MINUTE, SECOND = timedelta(days=1000), timedelta(minutes=1), timedelta(seconds=1)
UNSEEN = Blocked("something that no read shows", unseen=True)


@pytest.fixture
async def jobs(world: World) -> dict[str, str]:
    """A deletion of three jobs, `group` in one lane and the others in another; waits are up to 1,000 days."""
    retry = msgspec.structs.replace(world.settings.retry, blocked_base=LONG, blocked_cap=LONG, unseen_cap=10 * SECOND)
    world.settings = msgspec.structs.replace(world.settings, retry=retry)
    world.stop_clock()
    found = await world.lay(
        event("a"), [thing("group", chain="g"), thing("one", OTHER, chain="b"), thing("two", OTHER, chain="b")]
    )
    await world.jump(SECOND)
    return found


async def settle(world: World, lane: str, verdict: Verdict) -> None:
    one: Event = event("a")
    assert all(await world.settle(await world.take(one, "w", lane), "w", verdict))


async def wait(world: World, job: str) -> timedelta:
    record = await world.job(job)
    return timedelta(milliseconds=int(record["due"]) - int(record["last_at"]))


async def test_soon_after_something_of_the_same_deletion_went(world: World, jobs: dict[str, str]) -> None:
    await settle(world, OTHER, Gone())
    await world.jump(9 * MINUTE)
    await settle(world, LANE, UNSEEN)
    assert await wait(world, jobs["group"]) <= 10 * SECOND


async def test_also_where_only_some_jobs_of_a_stage_have_ended(world: World, jobs: dict[str, str]) -> None:
    taken = await world.take(event("a"), "w", OTHER, count=1)
    assert await world.settle(taken, "w", Gone()) == [True]
    await settle(world, LANE, UNSEEN)
    assert await wait(world, jobs["group"]) <= 10 * SECOND


async def test_seldom_where_nothing_of_the_deletion_went_yet(world: World, jobs: dict[str, str]) -> None:
    await settle(world, LANE, UNSEEN)
    assert await wait(world, jobs["group"]) > 10 * SECOND


async def test_seldom_ten_minutes_after_the_last_one_went(world: World, jobs: dict[str, str]) -> None:
    await settle(world, OTHER, Gone())
    await world.jump(11 * MINUTE)
    await settle(world, LANE, UNSEEN)
    assert await wait(world, jobs["group"]) > 10 * SECOND


async def test_what_a_read_shows_waits_as_long_as_anything_that_is_blocked(world: World, jobs: dict[str, str]) -> None:
    await settle(world, OTHER, Gone())
    await settle(world, LANE, Blocked("a rule of another group"))
    assert await wait(world, jobs["group"]) > 10 * SECOND


async def test_a_time_that_the_provider_names_is_kept(world: World, jobs: dict[str, str]) -> None:
    await settle(world, OTHER, Gone())
    await settle(world, LANE, Blocked("until then", 3 * MINUTE, unseen=True))
    assert await wait(world, jobs["group"]) == 3 * MINUTE
