"""Deletion of a whole Namespace, which ends when everything in it is released."""

import asyncio

import pytest

from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS
from tests.scenarios.watch.watch_scenario import WatchScenario, control_plane

pytestmark = pytest.mark.long


async def test_a_deleted_namespace_goes_when_everything_in_it_is_released(scenario: WatchScenario) -> None:
    plane = control_plane(scenario.server)
    doomed = await scenario.new_namespace()
    for source in scenario.document["sources"].values():
        source["namespaces"] = [scenario.namespace, doomed]
    service = await scenario.start()
    vms = await scenario.many("vm", 12, namespace=doomed, targets=2)
    disks = await scenario.many("disk", 6, source=DISKS, namespace=doomed)
    elsewhere = await scenario.many("stays", 3)
    others = await scenario.many("kept", 3, source=DISKS)
    await scenario.ready(*vms, *disks, *elsewhere, *others)
    await asyncio.to_thread(plane.kubectl, "delete", "namespace", doomed, "--wait=false")
    await until_released(scenario, *vms, *disks)

    async def gone() -> bool:
        return await scenario.admin.get(f"/api/v1/namespaces/{doomed}") is None

    await scenario.until("the namespace is gone", gone)
    await service.stop()
    await assert_story(scenario, [*vms, *disks])
