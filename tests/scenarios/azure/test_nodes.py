"""A NodeClaim is gone: what it left on Azure follows, in order, and nothing where Karpenter has done its work."""

from service.contract.azure import resource_name
from standins.azure import Disk, PublicIp
from tests.scenarios.azure.stage import TAGS, Stage


async def test_the_machine_goes_first_and_takes_its_interface_and_disk_along(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.azure.make(Disk(name=resource_name(claim), tags=TAGS, subscription=stage.subscription))
    await stage.vm(claim, disk=resource_name(claim))
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == set()
    assert {one.operation for one in await stage.deletes()} == {"vm.delete"}


async def test_an_interface_without_a_machine_goes_and_so_do_a_disk_and_an_address(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    name = resource_name(claim)
    await stage.nic(claim)
    await stage.azure.make(
        Disk(name=name, tags=TAGS, subscription=stage.subscription),
        PublicIp(name=name, tags=TAGS, subscription=stage.subscription),
    )
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == set()
    operations = [one.operation for one in await stage.deletes()]
    assert operations[0] == "nic.delete"
    assert set(operations[1:]) == {"disk.delete", "ip.delete"}


async def test_where_karpenter_left_nothing_nothing_is_deleted(stage: Stage) -> None:
    await stage.start()
    uid = await stage.claimed(stage.name("a"))
    await stage.unclaimed(stage.name("a"))
    await stage.until_done(uid)
    assert await stage.deletes() == []
    assert {one.operation for one in await stage.asked()} == {"vm.get", "nic.get", "disk.get", "ip.get"}
