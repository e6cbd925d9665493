"""RBAC forbids one source of two: that one is reported and waits, the other goes on, and a granted right is enough."""

import pytest

from service.engine.inventory import Inventory
from service.settings import load
from service.watching.role import Holder, manifests
from tests.scenarios.granting import path_of, without
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.world import World, control_plane

pytestmark = pytest.mark.long


async def test_a_forbidden_source_is_reported_and_recovers_while_the_other_goes_on(world: World) -> None:
    plane = control_plane(world.server)
    account = f"knell-{world.home}"
    granted = manifests(load(world.config(), {}), "here", Holder(world.home, account))
    for item in granted:
        await world.admin.create(path_of(item, collection=True), without(item, world.crds[DISKS].plural))
    try:
        token = plane.token_of(world.home, account)
        way = plane.kubeconfig(world.folder / "account", token=token)
        world.document["clusters"]["here"]["kubeconfig"] = str(way)
        service = await world.start(VMS)
        await service.until("it is reported", lambda: "orbidden" in service.post(DISKS).trouble)
        problem = (await Inventory(world.installation, DISKS).facts())["problem"]
        assert world.crds[DISKS].plural in problem
        assert token not in problem
        vms = await world.many("vm", 4)
        disks = await world.many("disk", 4, source=DISKS)
        await world.ready(*vms)
        await world.delete(*vms[:2])
        await until_released(world, *vms[:2])
        assert service.post(VMS).trouble == ""
        assert service.post(DISKS).tally.relists == 0
        for item in granted:
            if "rules" in item:
                await world.admin.patch(path_of(item), {"rules": item["rules"]})
        await service.until("it is well again", lambda: service.post(DISKS).trouble == "")
        await world.ready(*disks)
        await world.delete(*vms[2:3], *disks[:2])
        await until_released(world, *vms[2:3], *disks[:2])
        assert "problem" not in await Inventory(world.installation, DISKS).facts()
        await service.stop()
        await assert_story(world, [*vms[:3], *disks[:2]])
    finally:
        for item in granted:
            await world.admin.request("DELETE", path_of(item))
