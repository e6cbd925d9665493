"""`knell guard` shows which sources hold new deletions and why, and releases them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.contract import Event, Hold, Plan
from service.engine.guard import DeletedObject, Guard
from service.settings import GuardSettings
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from tests.integration.command_line import engine, knell, operated
from tests.redis_servers import TestServer

__all__ = ["engine"]

TWO = GuardSettings(most=2, percent=100)
CONFIG = """
clusters: {here: {}}
sources:
  tests: {resource: things.example.com, collector: things, guard: {most: 2, percent: 100}}
  quiet: {resource: others.example.com, collector: things}
"""


@pytest.fixture
async def embedded_engine(embedded_server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(embedded_server, shards=2) as made:
        yield made


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "knell.yaml"
    path.write_text(CONFIG)
    return str(path)


def guarded(engine: EngineUnderTest) -> ScriptedProvider:
    guard = Guard(engine.installation)

    async def judge(one: Event) -> Plan | Hold:
        (answer,) = await guard.admit(one.source, [DeletedObject(one.uid, 0)], TWO)
        return Plan([thing(one.uid)]) if answer.admitted else Hold(answer.reason)

    return ScriptedProvider(plans={f"u{number}": judge for number in range(20)})


async def trip(engine: EngineUnderTest) -> list[Event]:
    """Ten deletions of a source whose guard passes two; workers keep running."""
    going = [event(f"u{number}") for number in range(10)]
    await engine.start(guarded(engine))
    await engine.publish(*going)

    async def held() -> bool:
        return len(await engine.members("held")) == 8

    await engine.until("all but two are held", held)
    return going


async def test_the_status_tells_of_every_source(engine: EngineUnderTest, config: str) -> None:
    await trip(engine)
    # The log of a worker in this process would mix with the output of the command.
    await engine.running[0].stop()
    answer = await knell(engine, "guard", "status", "--config", config, "--output", "json")
    quiet, tests = answer.json["guards"]
    assert (quiet["source"], quiet["tripped"], quiet["limit"], quiet["held"]) == ("quiet", None, 500, 0)
    assert (tests["source"], tests["limit"], tests["counted"], tests["held"]) == ("tests", 2, 2, 8)
    assert tests["why"].startswith("guard: more than 2 deletions of source tests within 1h")
    table = (await knell(engine, "guard", "status", "--config", config)).out
    assert "holds new ones since 20" in table
    assert "wait for `knell guard release tests`" in table
    # A source that is not in the settings is shown with what Redis has.
    (alone,) = (await knell(engine, "guard", "status", "--output", "json")).json["guards"]
    assert (alone["source"], alone["limit"], alone["held"]) == ("tests", None, 8)


async def test_a_release_asks_and_then_carries_out_everything_held(engine: EngineUnderTest) -> None:
    going = await trip(engine)
    answer = await knell(engine, "guard", "release", "tests", answer="n\n")
    assert (answer.code, "nothing was changed" in answer.err) == (1, True)
    assert "The guard of tests holds 8 deletions since 20" in answer.out
    assert len(await engine.members("held")) == 8
    answer = await knell(engine, "guard", "release", "tests", answer="y\n")
    assert (answer.code, "is released; 8 deletions are planned again." in answer.out) == (0, True)
    await engine.until_done(*going)
    assert await engine.members("held") == {}


async def test_a_release_leaves_deletions_that_are_held_for_other_reasons(embedded_engine: EngineUnderTest) -> None:
    going, odd = await trip(embedded_engine), event("odd")
    provider = ScriptedProvider(plans={"odd": Hold("no such account")})
    (running,) = embedded_engine.running
    await running.stop()
    await embedded_engine.start(provider)
    await embedded_engine.publish(odd)

    async def held() -> bool:
        return len(await embedded_engine.members("held")) == 9

    await embedded_engine.until("it is held, too", held)
    answer = await knell(embedded_engine, "guard", "release", "tests", "--yes")
    assert (answer.code, "8 deletions are planned again" in answer.out) == (0, True)
    await embedded_engine.until_done(*going)
    assert list(await embedded_engine.members("held")) == [f"deletion:{odd.deletion}"]


async def test_a_release_of_what_holds_nothing_changes_nothing(embedded_engine: EngineUnderTest, config: str) -> None:
    answer = await knell(embedded_engine, "guard", "release", "quiet", "--config", config)
    assert (answer.code, "has not tripped and holds nothing" in answer.out) == (0, True)
    assert await embedded_engine.decisions("guard released") == []


async def test_an_unknown_source_is_refused(embedded_engine: EngineUnderTest, config: str) -> None:
    answer = await knell(embedded_engine, "guard", "release", "nosuch", "--config", config)
    assert (answer.code, "no source nosuch is known; there are: quiet, tests" in answer.err) == (2, True)
    assert "There is no source" in (await knell(embedded_engine, "guard", "status")).out
