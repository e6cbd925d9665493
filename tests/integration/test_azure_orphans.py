"""What sweeps remember: since when something is orphaned, in how many passes, and nothing of what they see no more."""

from collections.abc import AsyncIterator

import pytest

from service.contract import VERSION
from service.engine.attendance import Attendance
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.orphans import STEP, Orphans, Sighting
from service.settings import Settings
from tests.servers import TestServer

MANY = 2 * STEP + 7
NOW = 1_800_000_000_000


@pytest.fixture
async def installation(server: TestServer) -> AsyncIterator[Installation]:
    made = Installation(Settings(redis=server.settings()))
    await Attendance(made.shards).attend()
    try:
        yield made
    finally:
        await made.aclose()


@pytest.fixture
def orphans(installation: Installation) -> Orphans:
    return Orphans(installation, "nodes")


async def test_numbers_of_passes_only_grow_also_after_the_count_is_lost(
    installation: Installation, orphans: Orphans
) -> None:
    first, second = await orphans.begin(), await orphans.begin()
    assert second.number == first.number + 1
    assert second.now >= first.now > 0
    await orphans.keep({"a": Sighting(first=1, last=second.number)})
    await installation.caller.command("DEL", installation.keys.of(0, "source:nodes"))
    third = await orphans.begin()
    # What was seen by a pass that nobody counts any more is older than this one, by the clock if by nothing else.
    assert third.number >= first.number
    assert third.number >= third.now
    assert (await orphans.begin()).number == third.number + 1


async def test_what_is_kept_is_recalled_in_many_steps_and_what_is_not_known_is_left_out(orphans: Orphans) -> None:
    sightings = {f"vm-{number}": Sighting(first=number, last=3, passes=2, round=4) for number in range(MANY)}
    await orphans.keep(sightings)
    assert await orphans.size() == MANY
    assert await orphans.recall([*sightings, "nic-unknown"]) == sightings
    assert await orphans.recall([]) == {}
    await orphans.keep({})
    assert await orphans.size() == MANY


async def test_what_a_pass_has_not_seen_is_forgotten(orphans: Orphans) -> None:
    await orphans.keep({f"old-{number}": Sighting(first=1, last=6) for number in range(MANY)})
    await orphans.keep({f"new-{number}": Sighting(first=1, last=7 + number % 2) for number in range(MANY)})
    assert await orphans.forget_before(7, NOW) == MANY
    assert await orphans.size() == MANY
    assert "old-0" not in await orphans.recall(["old-0", "new-0"])
    assert await orphans.forget_before(7, NOW) == 0


async def test_a_record_that_cannot_be_read_counts_as_never_seen_and_goes(
    installation: Installation, orphans: Orphans
) -> None:
    await orphans.keep({"good": Sighting(first=1, last=9)})
    for uid, raw in (("a", "{"), ("b", '{"first":"x","last":9}'), ("c", "")):
        await installation.caller.command("HSET", orphans.key, uid, raw)
    assert set(await orphans.recall(["good", "a", "b", "c"])) == {"good"}
    assert await orphans.forget_before(9, NOW) == 3
    assert await orphans.size() == 1


async def test_when_the_last_whole_pass_began_is_known_to_whoever_comes_next(
    installation: Installation, orphans: Orphans
) -> None:
    assert await orphans.last() == 0
    await orphans.note({"sweep_at": 1234, "sweep_by": "graph"})
    assert await Orphans(installation, "nodes").last() == 1234
    assert await Orphans(installation, "others").last() == 0
    await orphans.note({"sweep_at": "garbled"})
    assert await orphans.last() == 0


async def test_why_passes_come_to_nothing_is_shown_since_the_first_of_them(
    installation: Installation, orphans: Orphans
) -> None:
    inventory = Inventory(installation, "nodes")
    await orphans.trouble("sweep: throttled")
    first = await inventory.facts()
    await orphans.trouble("sweep: denied")
    second = await inventory.facts()
    assert second["problem@sweep"] == "sweep: denied"
    assert second["problem_since@sweep"] == first["problem_since@sweep"]
    await orphans.trouble("")
    assert not {"problem@sweep", "problem_since@sweep"} & set(await inventory.facts())


async def test_sources_are_apart_and_one_that_is_dropped_takes_its_sightings_along(
    installation: Installation, orphans: Orphans
) -> None:
    others = Orphans(installation, "others")
    for one in (orphans, others):
        await one.keep({"a": Sighting(first=1, last=1)})
    await Inventory(installation, "nodes").drop()
    assert (await orphans.size(), await others.size()) == (0, 1)


async def test_a_decision_is_remembered_for_long_although_no_pass_sees_what_it_was_about(orphans: Orphans) -> None:
    """A list may leave out what is there, and then it is nobody's again."""
    await orphans.keep({"seen": Sighting(first=1, last=6), "left": Sighting(first=1, last=6, left=NOW)})
    days = 24 * 60 * 60 * 1000
    assert await orphans.forget_before(7, NOW) == 1
    assert await orphans.forget_before(8, NOW + 89 * days) == 0
    assert set(await orphans.recall(["seen", "left"])) == {"left"}
    assert await orphans.forget_before(9, NOW + 91 * days) == 1
    assert await orphans.size() == 0


async def test_a_decision_about_what_is_still_seen_is_never_forgotten(orphans: Orphans) -> None:
    await orphans.keep({"left": Sighting(first=1, last=7, left=1)})
    assert await orphans.forget_before(7, NOW) == 0


async def test_what_a_later_version_wrote_counts_as_never_seen(orphans: Orphans) -> None:
    await orphans.keep({"a": Sighting(v=VERSION + 1, first=1, last=9)})
    assert await orphans.recall(["a"]) == {}
