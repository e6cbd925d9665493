"""`knell pause` stops all lanes or one before the next destructive call; `knell resume` lets them go on."""

from collections.abc import AsyncIterator

import pytest

from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from tests.integration.operating import knell, operated
from tests.servers import TestServer


@pytest.fixture
async def world(server: TestServer) -> AsyncIterator[World]:
    async with operated(server) as made:
        yield made


async def paused(world: World) -> list[set[str]]:
    """What is paused, shard by shard."""
    return [set(await world.hash(shard.stem + "paused")) for shard in world.installation.shards]


async def test_a_pause_holds_on_every_shard_and_a_second_one_says_since_when(world: World) -> None:
    answer = await knell(world, "pause")
    assert (answer.code, "All lanes are paused" in answer.out) == (0, True)
    assert await paused(world) == [{"*"}] * len(world.installation.shards)
    answer = await knell(world, "pause")
    assert answer.code == 0
    assert "Already so: All lanes are paused by " in answer.out
    assert ", since 20" in answer.out

    answer = await knell(world, "resume")
    assert (answer.code, "All lanes are no longer paused (by " in answer.out) == (0, True)
    assert await paused(world) == [set()] * len(world.installation.shards)
    answer = await knell(world, "resume")
    assert (answer.code, "not paused; nothing was changed" in answer.out) == (0, True)


async def test_one_lane_is_paused_by_itself_and_what_stays_paused_is_said(world: World) -> None:
    await world.lay(event("a"), [thing("1")])
    answer = await knell(world, "pause", LANE)
    assert answer.out.startswith(f"Lane {LANE} is paused")
    assert "no work in that lane" not in answer.out
    answer = await knell(world, "pause", "sim/acct/typo")
    assert "There is no work in that lane now" in answer.out
    assert await paused(world) == [{LANE, "sim/acct/typo"}] * len(world.installation.shards)
    answer = await knell(world, "resume")
    assert f"But: Lane {LANE} is paused by " in answer.out
    await knell(world, "resume", LANE)
    assert await paused(world) == [{"sim/acct/typo"}] * len(world.installation.shards)


async def test_a_pause_stops_a_worker_and_a_resume_sets_it_going(world: World) -> None:
    await knell(world, "pause")
    outside = Outside()
    await world.start(outside)
    await world.publish(event("a"))

    async def planned() -> bool:
        return await world.state(event("a")) == "running"

    await world.until("it is planned", planned)
    assert outside.calls == []
    await knell(world, "resume")
    await world.until_done(event("a"))
    assert len(outside.calls) == 1


async def test_a_pause_that_some_shards_lack_is_completed(embedded_server: TestServer) -> None:
    async with operated(embedded_server, shards=3) as world:
        await world.installation.shards[1].pause("*", stop=True, who="ops")
        answer = await knell(world, "pause")
        assert "paused by ops" in answer.out
        assert "shards that did not have it do now" in answer.out
        assert await paused(world) == [{"*"}] * 3


async def test_a_name_that_is_no_lane_is_refused(embedded_server: TestServer) -> None:
    async with operated(embedded_server) as world:
        answer = await knell(world, "pause", "delete")
        assert (answer.code, "must be named PROVIDER/ACCOUNT" in answer.err) == (2, True)
