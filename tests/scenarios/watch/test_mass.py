"""Very many objects are deleted in one call, and the guard was raised for it."""

from datetime import timedelta

import pytest

from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import VMS
from tests.scenarios.watch.world import World

pytestmark = pytest.mark.long


async def test_three_hundred_objects_deleted_at_once_are_released(world: World) -> None:
    await _delete_at_once(world, 300, timedelta(seconds=100))


async def test_five_thousand_objects_deleted_at_once_are_released(world: World) -> None:
    await _delete_at_once(world, 5000, timedelta(minutes=10))


async def _delete_at_once(world: World, count: int, within: timedelta) -> None:
    world.document["sources"][VMS]["guard"] = {"most": 2 * count, "percent": 100}
    world.document["watch"]["page"] = 500
    # What is told back is for people; nobody reads so many.
    world.document["feedback"] = {"events": False, "conditions": False}
    service = await world.start()
    elsewhere = await world.new_namespace()
    vms = await world.many("vm", count)
    strangers = await world.many("stranger", 3, namespace=elsewhere)
    await world.until_marked(*vms)
    await world.delete_all(VMS)
    await until_released(world, *vms, within=within)
    tally = service.post(VMS).tally
    assert (tally.marked, tally.missed) == (count, 0)
    # Whoever takes over on a busy machine finds some of them published.
    assert tally.published <= count
    await service.stop()
    await assert_story(world, vms, unmarked=strangers)
