"""Two replicas of the whole service as real processes: one is killed, one stops, and the other goes on."""

import pytest

from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.service import Replica
from tests.scenarios.watch.world import World

# Several processes at once, and times that are promised: beside the other scenarios of that kind, not at their side.
pytestmark = pytest.mark.long


async def test_a_killed_holder_is_replaced_and_nothing_is_lost_or_doubled(world: World) -> None:
    both = await _both(world)
    vms, disks = await world.many("vm", 60), await world.many("disk", 20, source=DISKS)
    staying = await world.many("stays", 5)
    await world.ready(*vms, *disks, *staying)
    await world.delete(*vms[:40], *disks[:10])
    await world.until("the burst is under way", lambda: _some_done(world))
    holder, other = await _told_apart(world, both)
    holder.kill()
    # Nobody watches now.
    await world.delete(*vms[40:], *disks[10:])
    await world.until("the other holds both", lambda: _holds_both(world, other))
    await until_released(world, *vms, *disks)
    await other.stop()
    await assert_story(world, [*vms, *disks])


async def test_a_holder_that_stops_hands_over(world: World) -> None:
    both = await _both(world)
    vms, disks = await world.many("vm", 10), await world.many("disk", 5, source=DISKS)
    await world.ready(*vms, *disks)
    await world.delete(*vms[:5])
    holder, other = await _told_apart(world, both)
    await holder.stop()
    await world.delete(*vms[5:8], *disks[:3])
    await world.until("the other holds both", lambda: _holds_both(world, other))
    await until_released(world, *vms[:8], *disks[:3])
    await other.stop()
    assert await world.holder(VMS) == await world.holder(DISKS) == ""
    await assert_story(world, [*vms[:8], *disks[:3]])


async def test_a_holder_that_was_frozen_changes_nothing_when_it_comes_back(world: World) -> None:
    world.document["watch"]["lease"] = "6s"
    both = await _both(world)
    vms, disks = await world.many("vm", 10), await world.many("disk", 5, source=DISKS)
    await world.ready(*vms, *disks)
    holder, other = await _told_apart(world, both)
    holder.freeze()
    await world.delete(*vms[:4], *disks[:2])
    await world.until("the other holds both", lambda: _holds_both(world, other))
    await until_released(world, *vms[:4], *disks[:2])
    holder.thaw()
    await world.delete(*vms[4:8], *disks[2:4])
    await until_released(world, *vms[4:8], *disks[2:4])
    for replica in both:
        await replica.stop()
    await assert_story(world, [*vms[:8], *disks[:4]])


async def _both(world: World) -> list[Replica]:
    world.be_impatient()
    both = [world.launch("run", "--simulate", world.provider.address) for _ in range(2)]
    for replica in both:
        await replica.until_ready()

    async def held() -> bool:
        return bool(await world.holder(VMS) and await world.holder(DISKS))

    await world.until("both sources are held", held)
    return both


async def _told_apart(world: World, both: list[Replica]) -> tuple[Replica, Replica]:
    """Who holds the Lease of the objects with our finalizer, and who does not."""
    name = await world.holder(VMS)
    (holder,) = [one for one in both if one.name == name]
    (other,) = [one for one in both if one.name != name]
    return holder, other


async def _holds_both(world: World, replica: Replica) -> bool:
    return await world.holder(VMS) == await world.holder(DISKS) == replica.name


async def _some_done(world: World) -> bool:
    return len(await world.done()) >= 5
