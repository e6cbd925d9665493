"""`knell guard` shows which sources hold new deletions and why, and carries out a person's word to go on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.contract import Event, Hold, Plan
from service.engine.guard import Going, Guard
from service.settings import GuardSettings
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World
from tests.integration.operating import knell, operated, world
from tests.servers import TestServer

__all__ = ["world"]

TWO = GuardSettings(most=2, percent=100)
CONFIG = """
clusters: {here: {}}
sources:
  tests: {resource: things.example.com, collector: things, guard: {most: 2, percent: 100}}
  quiet: {resource: others.example.com, collector: things}
"""


@pytest.fixture
async def small(embedded_server: TestServer) -> AsyncIterator[World]:
    async with operated(embedded_server, shards=2) as made:
        yield made


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "knell.yaml"
    path.write_text(CONFIG)
    return str(path)


def guarded(world: World) -> Outside:
    guard = Guard(world.installation)

    async def judge(one: Event) -> Plan | Hold:
        (answer,) = await guard.admit(one.source, [Going(one.uid, 0)], TWO)
        return Plan([thing(one.uid)]) if answer.admitted else Hold(answer.reason)

    return Outside(plans={f"u{number}": judge for number in range(20)})


async def trip(world: World) -> list[Event]:
    """Ten deletions of a source that lets two through; workers go on running."""
    going = [event(f"u{number}") for number in range(10)]
    await world.start(guarded(world))
    await world.publish(*going)

    async def held() -> bool:
        return len(await world.members("held")) == 8

    await world.until("all but two are held", held)
    return going


async def test_the_status_tells_of_every_source(world: World, config: str) -> None:
    await trip(world)
    # A worker in this process would write its log into what the command prints.
    await world.running[0].stop()
    answer = await knell(world, "guard", "status", "--config", config, "--output", "json")
    quiet, tests = answer.json["guards"]
    assert (quiet["source"], quiet["tripped"], quiet["limit"], quiet["held"]) == ("quiet", None, 500, 0)
    assert (tests["source"], tests["limit"], tests["counted"], tests["held"]) == ("tests", 2, 2, 8)
    assert tests["why"].startswith("guard: more than 2 deletions of source tests within 1h")
    table = (await knell(world, "guard", "status", "--config", config)).out
    assert "holds new ones since 20" in table
    assert "wait for `knell guard release tests`" in table
    # What the settings don't know is shown as far as the server knows it.
    (alone,) = (await knell(world, "guard", "status", "--output", "json")).json["guards"]
    assert (alone["source"], alone["limit"], alone["held"]) == ("tests", None, 8)


async def test_a_release_is_asked_about_and_then_everything_held_goes(world: World) -> None:
    going = await trip(world)
    answer = await knell(world, "guard", "release", "tests", answer="n\n")
    assert (answer.code, "nothing was changed" in answer.err) == (1, True)
    assert "The guard of tests holds 8 deletions since 20" in answer.out
    assert len(await world.members("held")) == 8
    answer = await knell(world, "guard", "release", "tests", answer="y\n")
    assert (answer.code, "is released; 8 deletions are planned again." in answer.out) == (0, True)
    await world.until_done(*going)
    assert await world.members("held") == {}


async def test_what_other_hands_hold_is_left_alone_by_a_release(small: World) -> None:
    going, odd = await trip(small), event("odd")
    outside = Outside(plans={"odd": Hold("no such account")})
    (running,) = small.running
    await running.stop()
    await small.start(outside)
    await small.publish(odd)

    async def held() -> bool:
        return len(await small.members("held")) == 9

    await small.until("it is held, too", held)
    answer = await knell(small, "guard", "release", "tests", "--yes")
    assert (answer.code, "8 deletions are planned again" in answer.out) == (0, True)
    await small.until_done(*going)
    assert list(await small.members("held")) == [f"deletion:{odd.deletion}"]


async def test_a_release_of_what_holds_nothing_changes_nothing(small: World, config: str) -> None:
    answer = await knell(small, "guard", "release", "quiet", "--config", config)
    assert (answer.code, "has not tripped and holds nothing" in answer.out) == (0, True)
    assert await small.decisions("guard released") == []


async def test_a_source_that_nobody_knows_is_refused(small: World, config: str) -> None:
    answer = await knell(small, "guard", "release", "nosuch", "--config", config)
    assert (answer.code, "no source nosuch is known; there are: quiet, tests" in answer.err) == (2, True)
    assert "There is no source" in (await knell(small, "guard", "status")).out
