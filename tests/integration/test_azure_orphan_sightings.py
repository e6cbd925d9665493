"""Stored sightings of orphans: since when, in how many passes; those not seen any more are removed."""

from collections.abc import AsyncIterator

import pytest

from service.contract import VERSION
from service.engine.epoch import EpochTracker
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.orphans import STEP, OrphanSighting, OrphanSightings
from service.settings import Settings
from tests.redis_servers import TestServer

MANY = 2 * STEP + 7
NOW = 1_800_000_000_000


@pytest.fixture
async def installation(server: TestServer) -> AsyncIterator[Installation]:
    made = Installation(Settings(redis=server.settings()))
    await EpochTracker(made.shards).check()
    try:
        yield made
    finally:
        await made.aclose()


@pytest.fixture
def orphans(installation: Installation) -> OrphanSightings:
    return OrphanSightings(installation, "nodes")


async def test_numbers_of_passes_only_grow_also_after_the_count_is_lost(
    installation: Installation, orphans: OrphanSightings
) -> None:
    first, second = await orphans.begin_pass(), await orphans.begin_pass()
    assert second.number == first.number + 1
    assert second.now >= first.now > 0
    await orphans.save({"a": OrphanSighting(first=1, last=second.number)})
    await installation.caller.command("DEL", installation.keys.of(0, "source:nodes"))
    third = await orphans.begin_pass()
    # What was seen by a pass that nobody counts any more is older than this one, by the clock if by nothing else.
    assert third.number >= first.number
    assert third.number >= third.now
    assert (await orphans.begin_pass()).number == third.number + 1


async def test_what_is_kept_is_recalled_in_many_steps_and_what_is_not_known_is_left_out(
    orphans: OrphanSightings,
) -> None:
    sightings = {f"vm-{number}": OrphanSighting(first=number, last=3, passes=2, round=4) for number in range(MANY)}
    await orphans.save(sightings)
    assert await orphans.size() == MANY
    assert await orphans.get_many([*sightings, "nic-unknown"]) == sightings
    assert await orphans.get_many([]) == {}
    await orphans.save({})
    assert await orphans.size() == MANY


async def test_what_a_pass_has_not_seen_is_forgotten(orphans: OrphanSightings) -> None:
    await orphans.save({f"old-{number}": OrphanSighting(first=1, last=6) for number in range(MANY)})
    await orphans.save({f"new-{number}": OrphanSighting(first=1, last=7 + number % 2) for number in range(MANY)})
    assert await orphans.remove_unseen(7, NOW) == MANY
    assert await orphans.size() == MANY
    assert "old-0" not in await orphans.get_many(["old-0", "new-0"])
    assert await orphans.remove_unseen(7, NOW) == 0


async def test_a_record_that_cannot_be_read_counts_as_never_seen_and_goes(
    installation: Installation, orphans: OrphanSightings
) -> None:
    await orphans.save({"good": OrphanSighting(first=1, last=9)})
    for uid, raw in (("a", "{"), ("b", '{"first":"x","last":9}'), ("c", "")):
        await installation.caller.command("HSET", orphans.key, uid, raw)
    assert set(await orphans.get_many(["good", "a", "b", "c"])) == {"good"}
    assert await orphans.remove_unseen(9, NOW) == 3
    assert await orphans.size() == 1


async def test_the_start_of_the_last_complete_pass_is_known_to_the_next_sweeper(
    installation: Installation, orphans: OrphanSightings
) -> None:
    assert await orphans.last_pass_at() == 0
    await orphans.save_state({"sweep_at": 1234, "sweep_by": "graph"})
    assert await OrphanSightings(installation, "nodes").last_pass_at() == 1234
    assert await OrphanSightings(installation, "others").last_pass_at() == 0
    await orphans.save_state({"sweep_at": "garbled"})
    assert await orphans.last_pass_at() == 0


async def test_why_passes_come_to_nothing_is_shown_since_the_first_of_them(
    installation: Installation, orphans: OrphanSightings
) -> None:
    inventory = Inventory(installation, "nodes")
    await orphans.set_problem("sweep: throttled")
    first = await inventory.state()
    await orphans.set_problem("sweep: denied")
    second = await inventory.state()
    assert second["problem@sweep"] == "sweep: denied"
    assert second["problem_since@sweep"] == first["problem_since@sweep"]
    await orphans.set_problem("")
    assert not {"problem@sweep", "problem_since@sweep"} & set(await inventory.state())


async def test_sources_are_apart_and_one_that_is_dropped_takes_its_sightings_along(
    installation: Installation, orphans: OrphanSightings
) -> None:
    others = OrphanSightings(installation, "others")
    for one in (orphans, others):
        await one.save({"a": OrphanSighting(first=1, last=1)})
    await Inventory(installation, "nodes").delete()
    assert (await orphans.size(), await others.size()) == (0, 1)


async def test_a_decision_is_remembered_for_long_although_no_pass_sees_what_it_was_about(
    orphans: OrphanSightings,
) -> None:
    """A list may leave out what is there, and then it is nobody's again."""
    await orphans.save({"seen": OrphanSighting(first=1, last=6), "left": OrphanSighting(first=1, last=6, left=NOW)})
    days = 24 * 60 * 60 * 1000
    assert await orphans.remove_unseen(7, NOW) == 1
    assert await orphans.remove_unseen(8, NOW + 89 * days) == 0
    assert set(await orphans.get_many(["seen", "left"])) == {"left"}
    assert await orphans.remove_unseen(9, NOW + 91 * days) == 1
    assert await orphans.size() == 0


async def test_a_decision_about_what_is_still_seen_is_never_forgotten(orphans: OrphanSightings) -> None:
    await orphans.save({"left": OrphanSighting(first=1, last=7, left=1)})
    assert await orphans.remove_unseen(7, NOW) == 0


async def test_what_a_later_version_wrote_counts_as_never_seen(orphans: OrphanSightings) -> None:
    await orphans.save({"a": OrphanSighting(v=VERSION + 1, first=1, last=9)})
    assert await orphans.get_many(["a"]) == {}
