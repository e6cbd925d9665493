"""A whole Namespace is deleted as a person does it, and goes when everything in it is released."""

import asyncio

import pytest

from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS
from tests.scenarios.watch.world import World, control_plane

pytestmark = pytest.mark.long


async def test_a_deleted_namespace_goes_when_everything_in_it_is_released(world: World) -> None:
    plane = control_plane(world.server)
    doomed = await world.new_namespace()
    for source in world.document["sources"].values():
        source["namespaces"] = [world.namespace, doomed]
    service = await world.start()
    vms = await world.many("vm", 12, namespace=doomed, targets=2)
    disks = await world.many("disk", 6, source=DISKS, namespace=doomed)
    elsewhere = await world.many("stays", 3)
    others = await world.many("kept", 3, source=DISKS)
    await world.ready(*vms, *disks, *elsewhere, *others)
    await asyncio.to_thread(plane.kubectl, "delete", "namespace", doomed, "--wait=false")
    await until_released(world, *vms, *disks)

    async def gone() -> bool:
        return await world.admin.get(f"/api/v1/namespaces/{doomed}") is None

    await world.until("the namespace is gone", gone)
    await service.stop()
    await assert_story(world, [*vms, *disks])
