"""Deletions in the stand-in for Azure: accepted ones take a while, attached or reserved resources are refused with
Azure's messages, and a machine deletes the resources that it is set to delete."""

from collections.abc import AsyncIterator

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.core.rest import HttpRequest

from standins.azure import GROUP, SUBSCRIPTION, Disk, LocalAzure, Nic, PublicIp, ResourceGroup, Vm, id_of
from tests.azure import ArmClients, arm_on, refusal, said
from tests.azure_kinds import ATTACHABLE_KINDS, AZURE_KINDS, AzureKindRow

pytestmark = pytest.mark.long

NIC = id_of(SUBSCRIPTION, GROUP, "nic", "aks-a")
VM = id_of(SUBSCRIPTION, GROUP, "vm", "aks-a")


@pytest.fixture
async def azure() -> AsyncIterator[LocalAzure]:
    """Its clock stands until a test moves it."""
    async with LocalAzure() as made:
        await made.set_rate(0)
        yield made


@pytest.fixture
async def arm(azure: LocalAzure) -> AsyncIterator[ArmClients]:
    async with arm_on(azure) as made:
        yield made


async def names(azure: LocalAzure) -> list[tuple[str, str]]:
    return sorted((one.kind, one.name) for one in await azure.there())


@pytest.mark.parametrize("row", AZURE_KINDS.values(), ids=lambda row: row.name)
async def test_a_resource_of_any_kind_is_deleting_for_a_while_and_then_not_there(
    azure: LocalAzure, arm: ArmClients, row: AzureKindRow
) -> None:
    methods, tags = row.methods(arm), {"owner": "pool"}
    await azure.behave(**{row.takes: 7})
    await row.make(azure, "aks-a", tags=tags)
    await row.make(azure, "aks-b", tags=tags)
    found = await methods.get(GROUP, "aks-a")
    assert (found.id, found.tags) == (id_of(SUBSCRIPTION, GROUP, row.short, "aks-a"), tags)
    assert await arm.delete_with(methods, "aks-a") == 202
    assert arm.headers["retry-after"] == str(row.check_after)
    await azure.advance(6.9)
    assert (await methods.get(GROUP, "aks-a")).provisioning_state == "Deleting"
    await azure.advance(0.2)
    with refusal("ResourceNotFound", 404):
        await methods.get(GROUP, "aks-a")
    assert await arm.delete_with(methods, "aks-a") == 204
    assert await names(azure) == [(row.short, "aks-b")]
    asked = {row.read, row.delete}
    assert {one.operation for one in await azure.requests()} == asked


@pytest.mark.parametrize("row", ATTACHABLE_KINDS, ids=lambda row: row.name)
async def test_a_resource_of_any_kind_that_is_attached_to_another_is_not_deleted(
    azure: LocalAzure, arm: ArmClients, row: AzureKindRow
) -> None:
    assert row.attached_to is not None
    assert row.in_use is not None
    await row.make(azure, "aks-a", **{row.attached_to: "another"})
    with refusal(*row.in_use):
        await arm.delete_with(row.methods(arm), "aks-a")
    assert await names(azure) == [(row.short, "aks-a")]


async def test_an_interface_is_deleting_for_a_while_and_then_not_there(azure: LocalAzure, arm: ArmClients) -> None:
    (guid,) = await azure.make(Nic(name="aks-a", tags={"owner": "pool"}))
    found = await arm.get("aks-a")
    assert (found.id, found.resource_guid, found.tags, found.location) == (NIC, guid, {"owner": "pool"}, "westeurope")
    assert await arm.delete("aks-a") == 202
    assert arm.headers["retry-after"] == "4"
    await azure.advance(3.4)
    assert (await arm.get("aks-a")).provisioning_state == "Deleting"
    await azure.advance(0.2)
    with refusal("ResourceNotFound", 404):
        await arm.get("aks-a")
    assert await arm.delete("aks-a") == 204
    (gone,) = [one for one in await azure.journal() if one.what == "gone"]
    assert (gone.operation, gone.name, gone.id) == ("nic", "aks-a", NIC)
    (deleted,) = [one for one in await azure.requests("nic.delete") if one.status == 202]
    # When it went, not when somebody looked.
    assert gone.at - deleted.at == pytest.approx(3.5)


async def test_the_addresses_of_a_delete_tell_how_it_goes_and_are_good_for_nothing_when_shortened(
    azure: LocalAzure, arm: ArmClients
) -> None:
    async def ask(address: str) -> tuple[int, str]:
        # The clients' own way of asking for an address that they were given.
        response = await arm.network.send_request(HttpRequest("GET", address))
        return response.status_code, response.json()["status"] if response.status_code == 200 else ""

    await azure.make(Nic(name="aks-a"))
    await arm.delete("aks-a")
    followed, located = arm.headers["azure-asyncoperation"], arm.headers["location"]
    assert 2800 < len(followed) < 3500
    assert await ask(followed) == (200, "InProgress")
    assert await ask(located) == (202, "")
    assert await ask(followed[:-400].replace("&h=", "")) == (403, "")
    await azure.advance(4)
    assert await ask(followed) == (200, "Succeeded")
    assert await ask(located) == (204, "")


async def test_a_second_delete_of_what_is_going_is_accepted_and_begins_nothing_new(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.make(Nic(name="aks-a"))
    await arm.delete("aks-a")
    first = arm.headers["location"]
    await azure.advance(3)
    assert await arm.delete("AKS-A") == 202
    assert arm.headers["location"] == first
    await azure.advance(0.6)
    assert await azure.there() == []


async def test_the_clients_own_poller_sees_a_delete_through(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="aks-a"), Nic(name="aks-b"))
    await azure.set_rate(100)
    poller = await arm.network.network_interfaces.begin_delete(GROUP, "aks-a", polling_interval=0)
    await poller.result()
    assert await names(azure) == [("nic", "aks-b")]


async def test_a_machine_takes_its_interface_and_disk_and_address_with_it(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(
        PublicIp(name="address"),
        Nic(name="aks-a", public_ip="address", ip_delete="Delete"),
        Disk(name="os"),
        Vm(name="aks-a", nics=("aks-a",), disk="os"),
    )
    assert await arm.delete_vm("aks-a") == 202
    assert arm.headers["retry-after"] == "10"
    await azure.advance(9.9)
    assert (await arm.compute.virtual_machines.get(GROUP, "aks-a")).provisioning_state == "Deleting"
    assert len(await azure.there()) == 4
    await azure.advance(0.2)
    assert await azure.there() == []


async def test_a_machine_releases_resources_marked_to_detach(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(
        PublicIp(name="address"),
        Nic(name="aks-a", public_ip="address"),
        Disk(name="os"),
        Disk(name="data"),
        Vm(name="aks-a", nics=("aks-a",), disk="os", data_disks=("data",), nic_delete="Detach", keeps=("data",)),
    )
    machine = await arm.compute.virtual_machines.get(GROUP, "aks-a")
    assert [(one.id, one.delete_option) for one in machine.network_profile.network_interfaces] == [(NIC, "Detach")]
    assert machine.storage_profile.os_disk.delete_option == "Delete"
    assert [one.delete_option for one in machine.storage_profile.data_disks] == ["Detach"]
    assert (await arm.get("aks-a")).virtual_machine.id == VM
    assert (await arm.compute.disks.get(GROUP, "data")).managed_by == VM
    await arm.delete_vm("aks-a")
    await azure.advance(10)
    assert await names(azure) == [("disk", "data"), ("ip", "address"), ("nic", "aks-a")]
    assert (await arm.get("aks-a")).virtual_machine is None
    disk = await arm.compute.disks.get(GROUP, "data")
    assert (disk.managed_by, disk.disk_state) == (None, "Unattached")
    for deleted in (arm.delete("aks-a"), arm.delete_disk("data")):
        assert await deleted == 202


async def test_what_is_attached_is_refused_in_the_way_of_its_kind(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(
        PublicIp(name="address"),
        Nic(name="aks-a", public_ip="address"),
        Disk(name="os"),
        Vm(name="aks-a", nics=("aks-a",), disk="os"),
    )
    with refusal("NicInUse", 400) as caught:
        await arm.delete("aks-a")
    assert f"is used by existing resource {VM}" in str(caught[0])
    with refusal("OperationNotAllowed", 409):
        await arm.delete_disk("os")
    with refusal("PublicIPAddressCannotBeDeleted", 400):
        await arm.delete_ip("address")
    assert len(await azure.there()) == 4


async def test_an_interface_whose_machine_is_nowhere_is_in_use_all_the_same(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="aks-a", vm="aks-a"))
    assert (await arm.get("aks-a")).virtual_machine.id == VM
    with refusal("NicInUse", 400):
        await arm.delete("aks-a")


async def test_a_reserved_interface_goes_when_its_reservation_has_ended_and_refusals_do_not_extend_it(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.make(Nic(name="aks-a"))
    until = await azure.reserve("aks-a", "aks-a", 180)
    assert until == await azure.now() + 180
    for waited in (0, 100, 79.9):
        await azure.advance(waited)
        with refusal("NicReservedForAnotherVm", 400) as caught:
            await arm.delete("aks-a")
        assert caught[0].error is not None
        # Azure names the whole length, however little of it is left.
        assert caught[0].error.message == (
            "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s) "
            f"or retry after 180 seconds. Reserved VM: {VM}"
        )
        assert said(caught, "Retry-After") is None
    await azure.advance(0.2)
    assert await arm.delete("aks-a") == 202


async def test_a_refusal_can_be_made_to_begin_the_reservation_anew(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="aks-a", reserved=180))
    await azure.behave(refusal_renews=True)
    await azure.advance(179)
    with refusal("NicReservedForAnotherVm", 400):
        await arm.delete("aks-a")
    await azure.advance(179)
    with refusal("NicReservedForAnotherVm", 400):
        await arm.delete("aks-a")
    await azure.advance(181)
    assert await arm.delete("aks-a") == 202


async def test_a_faster_clock_tells_waits_in_the_callers_own_seconds(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="aks-a"), Nic(name="aks-b", reserved=180))
    await azure.set_rate(1000)
    with refusal("NicReservedForAnotherVm", 400) as caught:
        await arm.delete("aks-b")
    assert "for 0.18 seconds" in str(caught[0])
    await arm.delete("aks-a")
    # The clients fail on a Retry-After that is no whole number, where they read it for themselves.
    assert (arm.headers["retry-after"], arm.headers["x-ms-retry-after-ms"]) == ("1", "4")


async def test_what_is_missing_is_missing_by_its_own_name_its_group_s_or_its_subscription_s(
    azure: LocalAzure, arm: ArmClients
) -> None:
    with refusal("SubscriptionNotFound", 404):
        await arm.get("aks-a")
    await azure.declare(ResourceGroup())
    with refusal("ResourceNotFound", 404) as caught:
        await arm.get("aks-a")
    assert "The Resource 'Microsoft.Network/networkInterfaces/aks-a' under resource group 'mc_pool'" in str(caught[0])
    assert isinstance(caught[0], ResourceNotFoundError)
    with refusal("ResourceGroupNotFound", 404):
        await arm.get("aks-a", group="elsewhere")
    with refusal("ResourceGroupNotFound", 404):
        await arm.delete("aks-a", group="elsewhere")
    assert await arm.delete("aks-a") == 204


async def test_what_a_lock_covers_is_not_deleted(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="aks-a"), Nic(name="aks-ab"), Nic(name="aks-c", group="other"))
    await azure.behave(locks=[NIC, f"/subscriptions/{SUBSCRIPTION}/resourceGroups/OTHER"])
    with refusal("ScopeLocked", 409):
        await arm.delete("aks-a")
    with refusal("ScopeLocked", 409):
        await arm.delete("aks-c", group="other")
    assert await arm.delete("aks-ab") == 202


async def test_what_is_being_changed_or_has_something_nested_is_not_deleted(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="aks-a", state="Updating"), Vm(name="aks-b"))
    await azure.behave(nested=["aks-b"])
    with refusal("AnotherOperationInProgress", 409):
        await arm.delete("aks-a")
    with refusal("CannotDeleteResource", 409):
        await arm.delete_vm("aks-b")


async def test_a_clients_put_makes_what_azure_would_and_a_machine_gets_no_interface_of_anothers(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.declare(ResourceGroup())
    for name in ("aks-a", "aks-b"):
        poller = await arm.network.network_interfaces.begin_create_or_update(
            GROUP, name, {"location": "westeurope", "tags": {"a": "b"}, "properties": {"ipConfigurations": []}}
        )
        assert (await poller.result()).provisioning_state == "Succeeded"
    profile = {"networkInterfaces": [{"id": NIC, "properties": {"deleteOption": "Delete"}}]}
    machine = {"location": "westeurope", "properties": {"networkProfile": profile}}
    poller = await arm.compute.virtual_machines.begin_create_or_update(GROUP, "aks-a", machine)
    made = await poller.result()
    assert made.network_profile.network_interfaces[0].delete_option == "Delete"
    assert (await arm.get("aks-a")).virtual_machine.id == made.id
    with refusal("NicInUse", 400):
        await arm.compute.virtual_machines.begin_create_or_update(GROUP, "aks-c", machine)
    await azure.reserve("aks-b", "aks-x", 180)
    profile["networkInterfaces"][0]["id"] = id_of(SUBSCRIPTION, GROUP, "nic", "aks-b")
    with refusal("NicReservedForAnotherVm", 400):
        await arm.compute.virtual_machines.begin_create_or_update(GROUP, "aks-c", machine)
    assert [(one.operation, one.name) for one in await azure.journal() if one.what == "made"] == [
        ("nic", "aks-a"),
        ("nic", "aks-b"),
        ("vm", "aks-a"),
    ]
    await arm.delete_vm("aks-a")
    await azure.advance(10)
    assert await names(azure) == [("nic", "aks-b")]


async def test_what_is_made_anew_under_its_old_name_is_another_and_new_tags_make_none(
    azure: LocalAzure, arm: ArmClients
) -> None:
    (first,) = await azure.make(Nic(name="aks-a", reserved=180))
    tagged = await arm.network.network_interfaces.update_tags(GROUP, "aks-a", {"tags": {"keep": "yes"}})
    assert (tagged.tags, tagged.resource_guid) == ({"keep": "yes"}, first)
    with refusal("NicReservedForAnotherVm", 400):
        await arm.delete("aks-a")
    await azure.advance(181)
    await arm.delete("aks-a")
    (second,) = await azure.make(Nic(name="aks-a"))
    await azure.advance(10)
    # The delete was of the first one.
    assert [(one.guid, one.state) for one in await azure.there()] == [(second, "Succeeded")]
    assert first != second


async def test_a_machine_is_as_old_as_it_was_made(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.set_rate(1)
    await azure.make(Vm(name="young"), Vm(name="old", age=600))
    young, old = [(await arm.compute.virtual_machines.get(GROUP, name)).time_created for name in ("young", "old")]
    assert 599 < (young - old).total_seconds() < 601
    assert (await arm.compute.virtual_machines.get(GROUP, "old")).time_created == old


async def test_a_machine_that_is_updated_without_an_interface_releases_it(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Nic(name="aks-a"), Vm(name="aks-a", nics=("aks-a",)))
    machine = {"location": "westeurope", "properties": {"networkProfile": {"networkInterfaces": []}}}
    await arm.compute.virtual_machines.begin_create_or_update(GROUP, "aks-a", machine)
    assert (await arm.get("aks-a")).virtual_machine is None
    assert await arm.delete("aks-a") == 202
