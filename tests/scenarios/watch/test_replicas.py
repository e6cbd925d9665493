"""Two replicas of the whole service as real processes: one is killed, one stops, and the other continues."""

import pytest

from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.service import KnellReplica
from tests.scenarios.watch.watch_scenario import WatchScenario

# Several processes at once, and times that are promised: beside the other scenarios of that kind, not at their side.
pytestmark = pytest.mark.long


async def test_a_killed_holder_is_replaced_and_nothing_is_lost_or_doubled(scenario: WatchScenario) -> None:
    both = await _both(scenario)
    vms, disks = await scenario.many("vm", 60), await scenario.many("disk", 20, source=DISKS)
    staying = await scenario.many("stays", 5)
    await scenario.ready(*vms, *disks, *staying)
    await scenario.delete(*vms[:40], *disks[:10])
    await scenario.until("the burst is under way", lambda: _some_done(scenario))
    holder, other = await _told_apart(scenario, both)
    holder.kill()
    # No replica watches now.
    await scenario.delete(*vms[40:], *disks[10:])
    await scenario.until("the other holds both", lambda: _holds_both(scenario, other))
    await until_released(scenario, *vms, *disks)
    await other.stop()
    await assert_story(scenario, [*vms, *disks])


async def test_a_holder_that_stops_hands_over(scenario: WatchScenario) -> None:
    both = await _both(scenario)
    vms, disks = await scenario.many("vm", 10), await scenario.many("disk", 5, source=DISKS)
    await scenario.ready(*vms, *disks)
    await scenario.delete(*vms[:5])
    holder, other = await _told_apart(scenario, both)
    await holder.stop()
    await scenario.delete(*vms[5:8], *disks[:3])
    await scenario.until("the other holds both", lambda: _holds_both(scenario, other))
    await until_released(scenario, *vms[:8], *disks[:3])
    await other.stop()
    assert await scenario.holder(VMS) == await scenario.holder(DISKS) == ""
    await assert_story(scenario, [*vms[:8], *disks[:3]])


async def test_a_holder_that_was_frozen_changes_nothing_when_it_comes_back(scenario: WatchScenario) -> None:
    scenario.document["watch"]["lease"] = "6s"
    both = await _both(scenario)
    vms, disks = await scenario.many("vm", 10), await scenario.many("disk", 5, source=DISKS)
    await scenario.ready(*vms, *disks)
    holder, other = await _told_apart(scenario, both)
    holder.freeze()
    await scenario.delete(*vms[:4], *disks[:2])
    await scenario.until("the other holds both", lambda: _holds_both(scenario, other))
    await until_released(scenario, *vms[:4], *disks[:2])
    holder.thaw()
    await scenario.delete(*vms[4:8], *disks[2:4])
    await until_released(scenario, *vms[4:8], *disks[2:4])
    for replica in both:
        await replica.stop()
    await assert_story(scenario, [*vms[:8], *disks[:4]])


async def _both(scenario: WatchScenario) -> list[KnellReplica]:
    scenario.be_impatient()
    both = [scenario.launch("run") for _ in range(2)]
    for replica in both:
        await replica.until_ready()

    async def held() -> bool:
        return bool(await scenario.holder(VMS) and await scenario.holder(DISKS))

    await scenario.until("both sources are held", held)
    return both


async def _told_apart(scenario: WatchScenario, both: list[KnellReplica]) -> tuple[KnellReplica, KnellReplica]:
    """Who holds the Lease of the objects with our finalizer, and who does not."""
    name = await scenario.holder(VMS)
    (holder,) = [one for one in both if one.name == name]
    (other,) = [one for one in both if one.name != name]
    return holder, other


async def _holds_both(scenario: WatchScenario, replica: KnellReplica) -> bool:
    return await scenario.holder(VMS) == await scenario.holder(DISKS) == replica.name


async def _some_done(scenario: WatchScenario) -> bool:
    return len(await scenario.done()) >= 5
