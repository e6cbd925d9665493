"""Redis that loses everything: objects with our finalizer are recovered by a list, observed ones are not guessed."""

from datetime import timedelta

import pytest

from service.engine.inventory import Inventory
from standins.redis_servers import LocalRedis
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.watch_scenario import WatchScenario
from tests.simulated import Behaviour

pytestmark = pytest.mark.long


async def test_a_redis_that_is_flushed_in_the_middle_heals_by_a_list(
    own_valkey_scenario: WatchScenario, valkey: LocalRedis
) -> None:
    own_valkey_scenario.document["worker"]["lane_cap"] = 4
    own_valkey_scenario.provider.behaviour = Behaviour(latency=(timedelta(milliseconds=20), timedelta(milliseconds=60)))
    service = await own_valkey_scenario.start()
    vms = await own_valkey_scenario.many("vm", 60)
    staying = await own_valkey_scenario.many("stays", 5)
    disks = await own_valkey_scenario.many("disk", 5, source=DISKS)
    await own_valkey_scenario.ready(*vms, *staying, *disks)
    await own_valkey_scenario.delete(*vms)
    await own_valkey_scenario.until("some are done", lambda: _some_done(own_valkey_scenario))
    with valkey.admin() as admin:
        admin.flushall()
    assert len(await own_valkey_scenario.live()) > len(staying) + len(disks), "all was over before the flush"

    async def all_gone() -> bool:
        return not set(vms) & (await own_valkey_scenario.live()).keys()

    await own_valkey_scenario.until("all are released", all_gone)
    await own_valkey_scenario.until("nothing is open", lambda: _all_ended(own_valkey_scenario))
    # What came after the flush is recorded, once; what was finished before it is forgotten, and not done again. One
    # that was being released at that very moment may be published once more, and is dropped when it is seen to be gone.
    ended = (await own_valkey_scenario.deletions()).values()
    recorded = {view.name for view in ended if view.state == "done"}
    dropped = {view.id: "dropped" for view in ended if view.state == "dropped"}
    assert recorded
    await own_valkey_scenario.until_remembered(*disks)
    # Those that were only observed and live on are known again, and go as if nothing had happened.
    await own_valkey_scenario.delete(disks[0])
    await until_released(own_valkey_scenario, disks[0])
    await service.stop()
    await assert_story(own_valkey_scenario, [*vms, disks[0]], recorded=[*recorded, disks[0]], others=dropped)


async def test_observed_objects_deleted_while_redis_was_emptied_and_nothing_watched_are_left_to_a_sweep(
    own_valkey_scenario: WatchScenario, valkey: LocalRedis
) -> None:
    """With the inventory went the only memory of them: nothing says that they were, so nothing is published. What
    they owned outside is found only by looking for orphans at the provider."""
    service = await own_valkey_scenario.start()
    vms, disks = await own_valkey_scenario.many("vm", 5), await own_valkey_scenario.many("disk", 5, source=DISKS)
    await own_valkey_scenario.ready(*vms, *disks)
    await service.stop()
    await own_valkey_scenario.delete(*vms[:3], *disks[:3])
    with valkey.admin() as admin:
        admin.flushall()
    again = await own_valkey_scenario.start()
    await until_released(own_valkey_scenario, *vms[:3])
    await own_valkey_scenario.until_remembered(*disks[3:])
    assert await Inventory(own_valkey_scenario.installation, DISKS).size() == 2
    assert again.share_lease(DISKS).counters.published == 0
    assert again.share_lease(VMS).counters.published == 3
    await again.stop()
    await assert_story(own_valkey_scenario, vms[:3], left=disks[:3])


async def _all_ended(scenario: WatchScenario) -> bool:
    return all(view.state in ("done", "dropped") for view in (await scenario.deletions()).values())


async def _some_done(scenario: WatchScenario) -> bool:
    return len(await scenario.done()) >= 8


async def test_what_comes_changes_and_goes_while_redis_hangs_is_counted_right(
    own_valkey_scenario: WatchScenario, valkey: LocalRedis
) -> None:
    """The guard goes by these numbers; what happens to one object in the meantime comes as one change."""
    service = await own_valkey_scenario.start()
    first = [*await own_valkey_scenario.many("vm", 2), *await own_valkey_scenario.many("disk", 2, source=DISKS)]
    await own_valkey_scenario.ready(*first)
    valkey.freeze()
    # The first one of each kind is being dealt with when the others come.
    await own_valkey_scenario.make("vm2")
    await own_valkey_scenario.make("disk2", source=DISKS)
    more = [*await own_valkey_scenario.many("later", 10), *await own_valkey_scenario.many("extra", 10, source=DISKS)]
    for name in more:
        await own_valkey_scenario.admin.patch(
            own_valkey_scenario.made[name].path, {"metadata": {"labels": {"changed": "yes"}}}
        )
    await own_valkey_scenario.delete("extra0", "extra1")
    valkey.thaw()
    await until_released(own_valkey_scenario, "extra0", "extra1")
    await own_valkey_scenario.ready("vm2", "disk2", *more[:10], *more[12:])

    async def counted() -> bool:
        field = f"owned.{own_valkey_scenario.namespace}"
        facts = [await Inventory(own_valkey_scenario.installation, source).state() for source in (VMS, DISKS)]
        return [one.get(field) for one in facts] == ["13", "11"]

    await own_valkey_scenario.until("all of them are counted", counted)
    await service.stop()
    await assert_story(own_valkey_scenario, ["extra0", "extra1"])
