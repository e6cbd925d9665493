"""Redis loses everything: what has our finalizer heals by a list, and what was only observed is not guessed at."""

from datetime import timedelta

import pytest

from service.engine.inventory import Inventory
from standins.provider import Behaviour
from standins.servers import Server
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.world import World

pytestmark = pytest.mark.long


async def test_a_redis_that_is_flushed_in_the_middle_heals_by_a_list(forgetful: World, valkey: Server) -> None:
    forgetful.document["worker"]["lane_cap"] = 4
    forgetful.provider.behaviour = Behaviour(latency=(timedelta(milliseconds=20), timedelta(milliseconds=60)))
    service = await forgetful.start()
    vms = await forgetful.many("vm", 60)
    staying = await forgetful.many("stays", 5)
    disks = await forgetful.many("disk", 5, source=DISKS)
    await forgetful.ready(*vms, *staying, *disks)
    await forgetful.delete(*vms)
    await forgetful.until("some are done", lambda: _some_done(forgetful))
    with valkey.admin() as admin:
        admin.flushall()
    assert len(await forgetful.live()) > len(staying) + len(disks), "all was over before the flush"

    async def all_gone() -> bool:
        return not set(vms) & (await forgetful.live()).keys()

    await forgetful.until("all are released", all_gone)
    await forgetful.until("nothing is open", lambda: _all_ended(forgetful))
    # What came after the flush is recorded, once; what was finished before it is forgotten, and not done again. One
    # that was being released at that very moment may be published once more, and is dropped when it is seen to be gone.
    ended = (await forgetful.deletions()).values()
    recorded = {view.name for view in ended if view.state == "done"}
    dropped = {view.id: "dropped" for view in ended if view.state == "dropped"}
    assert recorded
    await forgetful.until_remembered(*disks)
    # Those that were only observed and live on are known again, and go as if nothing had happened.
    await forgetful.delete(disks[0])
    await until_released(forgetful, disks[0])
    await service.stop()
    await assert_story(forgetful, [*vms, disks[0]], recorded=[*recorded, disks[0]], others=dropped)


async def test_observed_objects_that_went_while_redis_was_emptied_and_nobody_watched_are_left_to_a_sweep(
    forgetful: World, valkey: Server
) -> None:
    """With the inventory went the only memory of them: nothing says that they were, so nothing is published. What
    they owned outside is found only by looking for orphans at the provider."""
    service = await forgetful.start()
    vms, disks = await forgetful.many("vm", 5), await forgetful.many("disk", 5, source=DISKS)
    await forgetful.ready(*vms, *disks)
    await service.stop()
    await forgetful.delete(*vms[:3], *disks[:3])
    with valkey.admin() as admin:
        admin.flushall()
    again = await forgetful.start()
    await until_released(forgetful, *vms[:3])
    await forgetful.until_remembered(*disks[3:])
    assert await Inventory(forgetful.installation, DISKS).size() == 2
    assert again.post(DISKS).tally.published == 0
    assert again.post(VMS).tally.published == 3
    await again.stop()
    await assert_story(forgetful, vms[:3], left=disks[:3])


async def _all_ended(world: World) -> bool:
    return all(view.state in ("done", "dropped") for view in (await world.deletions()).values())


async def _some_done(world: World) -> bool:
    return len(await world.done()) >= 8


async def test_what_comes_changes_and_goes_while_redis_hangs_is_counted_right(forgetful: World, valkey: Server) -> None:
    """The guard goes by these numbers; what happens to one object in the meantime comes as one change."""
    service = await forgetful.start()
    first = [*await forgetful.many("vm", 2), *await forgetful.many("disk", 2, source=DISKS)]
    await forgetful.ready(*first)
    valkey.freeze()
    # The first one of each kind is being dealt with when the others come.
    await forgetful.make("vm2")
    await forgetful.make("disk2", source=DISKS)
    more = [*await forgetful.many("later", 10), *await forgetful.many("extra", 10, source=DISKS)]
    for name in more:
        await forgetful.admin.patch(forgetful.made[name].path, {"metadata": {"labels": {"changed": "yes"}}})
    await forgetful.delete("extra0", "extra1")
    valkey.thaw()
    await until_released(forgetful, "extra0", "extra1")
    await forgetful.ready("vm2", "disk2", *more[:10], *more[12:])

    async def counted() -> bool:
        field = f"owned.{forgetful.namespace}"
        facts = [await Inventory(forgetful.installation, source).facts() for source in (VMS, DISKS)]
        return [one.get(field) for one in facts] == ["13", "11"]

    await forgetful.until("all of them are counted", counted)
    await service.stop()
    await assert_story(forgetful, ["extra0", "extra1"])
