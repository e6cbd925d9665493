"""Very many objects deleted in one call, with a guard that was raised for it."""

from datetime import timedelta

import pytest

from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import VMS
from tests.scenarios.watch.watch_scenario import WatchScenario

pytestmark = pytest.mark.long


async def test_three_hundred_objects_deleted_at_once_are_released(scenario: WatchScenario) -> None:
    await _delete_at_once(scenario, 300, timedelta(seconds=100))


async def test_five_thousand_objects_deleted_at_once_are_released(scenario: WatchScenario) -> None:
    await _delete_at_once(scenario, 5000, timedelta(minutes=10))


async def _delete_at_once(scenario: WatchScenario, count: int, within: timedelta) -> None:
    scenario.document["sources"][VMS]["guard"] = {"most": 2 * count, "percent": 100}
    scenario.document["watch"]["page"] = 500
    # Events and conditions are for users, who do not read so many.
    scenario.document["feedback"] = {"events": False, "conditions": False}
    service = await scenario.start()
    elsewhere = await scenario.new_namespace()
    vms = await scenario.many("vm", count)
    strangers = await scenario.many("stranger", 3, namespace=elsewhere)
    await scenario.until_marked(*vms)
    await scenario.delete_all(VMS)
    await until_released(scenario, *vms, within=within)
    counters = service.share_lease(VMS).counters
    assert (counters.marked, counters.missed) == (count, 0)
    # Whoever takes over on a busy machine finds some of them published.
    assert counters.published <= count
    await service.stop()
    await assert_story(scenario, vms, unmarked=strangers)
