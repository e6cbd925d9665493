"""Deleted NodeClaim: its leftovers on Azure are deleted in order, and nothing is done if Karpenter has deleted them."""

from service.sources.karpenter_azure import resource_name
from standins.azure import Disk, PublicIp
from tests.scenarios.azure.azure_scenario import TAGS, AzureScenario


async def test_the_machine_goes_first_and_takes_its_interface_and_disk_along(scenario: AzureScenario) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.azure.make(Disk(name=resource_name(claim), tags=TAGS, subscription=scenario.subscription))
    await scenario.vm(claim, disk=resource_name(claim))
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == set()
    assert {one.operation for one in await scenario.deletes()} == {"vm.delete"}


async def test_an_interface_without_a_machine_goes_and_so_do_a_disk_and_an_address(scenario: AzureScenario) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    name = resource_name(claim)
    await scenario.nic(claim)
    await scenario.azure.make(
        Disk(name=name, tags=TAGS, subscription=scenario.subscription),
        PublicIp(name=name, tags=TAGS, subscription=scenario.subscription),
    )
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == set()
    operations = [one.operation for one in await scenario.deletes()]
    assert operations[0] == "nic.delete"
    assert set(operations[1:]) == {"disk.delete", "ip.delete"}


async def test_where_karpenter_left_nothing_nothing_is_deleted(scenario: AzureScenario) -> None:
    await scenario.start()
    uid = await scenario.claimed(scenario.name("a"))
    await scenario.unclaimed(scenario.name("a"))
    await scenario.until_done(uid)
    assert await scenario.deletes() == []
    assert {one.operation for one in await scenario.asked()} == {"vm.get", "nic.get", "disk.get", "ip.get"}
