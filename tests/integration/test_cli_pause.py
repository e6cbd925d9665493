"""`knell pause` stops all lanes or one before the next destructive call; `knell resume` ends that."""

from collections.abc import AsyncIterator

import pytest

from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.integration.command_line import knell, operated
from tests.redis_servers import TestServer


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(server) as made:
        yield made


async def paused(engine: EngineUnderTest) -> list[set[str]]:
    """Paused lanes of each shard."""
    return [set(await engine.hash(shard.stem + "paused")) for shard in engine.installation.shards]


async def test_a_pause_holds_on_every_shard_and_a_second_one_says_since_when(engine: EngineUnderTest) -> None:
    answer = await knell(engine, "pause")
    assert (answer.code, "All lanes are paused" in answer.out) == (0, True)
    assert await paused(engine) == [{"*"}] * len(engine.installation.shards)
    answer = await knell(engine, "pause")
    assert answer.code == 0
    assert "Already so: All lanes are paused by " in answer.out
    assert ", since 20" in answer.out

    answer = await knell(engine, "resume")
    assert (answer.code, "All lanes are no longer paused (by " in answer.out) == (0, True)
    assert await paused(engine) == [set()] * len(engine.installation.shards)
    answer = await knell(engine, "resume")
    assert (answer.code, "not paused; nothing was changed" in answer.out) == (0, True)


async def test_one_lane_is_paused_by_itself_and_what_stays_paused_is_said(engine: EngineUnderTest) -> None:
    await engine.lay(event("a"), [thing("1")])
    answer = await knell(engine, "pause", LANE)
    assert answer.out.startswith(f"Lane {LANE} is paused")
    assert "no work in that lane" not in answer.out
    answer = await knell(engine, "pause", "sim/acct/typo")
    assert "There is no work in that lane now" in answer.out
    assert await paused(engine) == [{LANE, "sim/acct/typo"}] * len(engine.installation.shards)
    answer = await knell(engine, "resume")
    assert f"But: Lane {LANE} is paused by " in answer.out
    await knell(engine, "resume", LANE)
    assert await paused(engine) == [{"sim/acct/typo"}] * len(engine.installation.shards)


async def test_a_pause_stops_a_worker_and_a_resume_sets_it_going(engine: EngineUnderTest) -> None:
    await knell(engine, "pause")
    provider = ScriptedProvider()
    await engine.start(provider)
    await engine.publish(event("a"))

    async def planned() -> bool:
        return await engine.state(event("a")) == "running"

    await engine.until("it is planned", planned)
    assert provider.calls == []
    await knell(engine, "resume")
    await engine.until_done(event("a"))
    assert len(provider.calls) == 1


async def test_a_pause_that_is_missing_on_some_shards_is_completed(embedded_server: TestServer) -> None:
    async with operated(embedded_server, shards=3) as engine:
        await engine.installation.shards[1].pause("*", stop=True, who="ops")
        answer = await knell(engine, "pause")
        assert "paused by ops" in answer.out
        assert "shards that did not have it do now" in answer.out
        assert await paused(engine) == [{"*"}] * 3


async def test_an_invalid_lane_name_is_refused(embedded_server: TestServer) -> None:
    async with operated(embedded_server) as engine:
        answer = await knell(engine, "pause", "delete")
        assert (answer.code, "must be named PROVIDER/ACCOUNT" in answer.err) == (2, True)
