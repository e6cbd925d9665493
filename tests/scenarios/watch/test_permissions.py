"""Source without RBAC permissions beside one with them: it is reported and waits, the other continues, and a granted
role is enough."""

import pytest

from service.cli.rbac import ServiceAccount, role_manifests
from service.engine.inventory import Inventory
from service.settings import load
from tests.scenarios.rbac_roles import path_of, without
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.watch_scenario import WatchScenario, control_plane

pytestmark = pytest.mark.long


async def test_a_forbidden_source_is_reported_and_recovers_while_the_other_goes_on(scenario: WatchScenario) -> None:
    plane = control_plane(scenario.server)
    account = f"knell-{scenario.home}"
    granted = role_manifests(load(scenario.config(), {}), "here", ServiceAccount(scenario.home, account))
    for item in granted:
        await scenario.admin.create(path_of(item, collection=True), without(item, scenario.crds[DISKS].plural))
    try:
        token = plane.token_of(scenario.home, account)
        way = plane.kubeconfig(scenario.folder / "account", token=token)
        scenario.document["clusters"]["here"]["kubeconfig"] = str(way)
        service = await scenario.start(VMS)
        await service.until("it is reported", lambda: "orbidden" in service.share_lease(DISKS).current_problem)
        problem = (await Inventory(scenario.installation, DISKS).state())["problem"]
        assert scenario.crds[DISKS].plural in problem
        assert token not in problem
        vms = await scenario.many("vm", 4)
        disks = await scenario.many("disk", 4, source=DISKS)
        await scenario.ready(*vms)
        await scenario.delete(*vms[:2])
        await until_released(scenario, *vms[:2])
        assert service.share_lease(VMS).current_problem == ""
        assert service.share_lease(DISKS).counters.relists == 0
        for item in granted:
            if "rules" in item:
                await scenario.admin.patch(path_of(item), {"rules": item["rules"]})
        await service.until("it is well again", lambda: service.share_lease(DISKS).current_problem == "")
        await scenario.ready(*disks)
        await scenario.delete(*vms[2:3], *disks[:2])
        await until_released(scenario, *vms[2:3], *disks[:2])
        assert "problem" not in await Inventory(scenario.installation, DISKS).state()
        await service.stop()
        await assert_story(scenario, [*vms[:3], *disks[:2]])
    finally:
        for item in granted:
            await scenario.admin.request("DELETE", path_of(item))
