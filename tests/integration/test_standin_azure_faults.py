"""Faults of the stand-in for Azure: each affects what it names, as often as it says, and a change made before a
connection was lost remains."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

from standins.azure import GROUP, AzureFault, LocalAzure, LocalAzureFailed, Nic, Vm
from tests.azure import ArmClients, arm_on, refusal, said
from tests.engine.waiting import until

pytestmark = pytest.mark.long

NICS = "Resources | where type =~ 'Microsoft.Network/networkInterfaces'"


@pytest.fixture
async def azure() -> AsyncIterator[LocalAzure]:
    """Its clock stands until a test moves it."""
    async with LocalAzure() as made:
        await made.set_rate(0)
        await made.make(Nic(name="aks-a"), Nic(name="aks-b"), Vm(name="aks-v"))
        yield made


@pytest.fixture
async def arm(azure: LocalAzure) -> AsyncIterator[ArmClients]:
    async with arm_on(azure) as made:
        yield made


async def test_a_denial_befalls_what_it_names_and_nothing_else(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.set_faults(
        AzureFault(what="deny", operation="nic.delete", about="AKS-A"),
        AzureFault(what="deny-assignment", operation="vm.*"),
    )
    with refusal("AuthorizationFailed", 403) as caught:
        await arm.delete("aks-a")
    assert "'Microsoft.Network/networkInterfaces/delete'" in str(caught[0])
    with refusal("DenyAssignmentAuthorizationFailed", 403):
        await arm.delete_vm("aks-v")
    assert await arm.delete("aks-b") == 202
    assert (await arm.get("aks-a")).provisioning_state == "Succeeded"


async def test_each_service_is_throttled_in_its_own_way_as_often_as_it_is_said(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.set_faults(AzureFault(what="throttle", times=4))
    with refusal("TooManyRequests", 429):
        await arm.delete("aks-a")
    with refusal("OperationNotAllowed", 429):
        await arm.delete_vm("aks-v")
    with refusal("SubscriptionRequestsThrottled", 429):
        await arm.get("aks-a")
    with refusal("RateLimiting", 429):
        await arm.query(NICS)
    assert await arm.delete("aks-a") == 202


async def test_the_network_s_lock_looks_like_a_throttle_and_says_that_it_is_none(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.set_faults(AzureFault(what="locked", operation="nic.delete", times=1))
    with refusal("RetryableError", 429) as caught:
        await arm.delete("aks-a")
    error = caught[0].error
    assert error is not None
    assert [one.code for one in error.details] == ["RetryableErrorDueToAnotherOperation"]
    assert said(caught, "Retry-After") == "11"
    assert await arm.delete("aks-a") == 202


async def test_any_error_can_be_had(azure: LocalAzure, arm: ArmClients) -> None:
    words = "An error occurred."
    await azure.set_faults(
        AzureFault(
            what="error", operation="graph.query", code="InternalServerError", message=words, status=500, seconds=7
        )
    )
    with refusal("InternalServerError", 500) as caught:
        await arm.query(NICS)
    assert said(caught, "Retry-After") == "7"


async def test_a_delete_that_fails_after_it_was_accepted_leaves_the_resource(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.set_faults(
        AzureFault(what="fails", operation="nic.delete", code="NicInUse", message="It is used.", times=1)
    )
    await azure.set_rate(100)
    poller = await arm.network.network_interfaces.begin_delete(GROUP, "aks-a", polling_interval=0)
    # Its status is that of the poll.
    with refusal("NicInUse", 200):
        await poller.result()
    await azure.set_rate(0)
    assert (await arm.get("aks-a")).provisioning_state == "Failed"
    assert await arm.delete("aks-a") == 202


async def test_a_proxy_s_page_is_no_answer_of_azure_s(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.set_faults(AzureFault(what="html", status=502))
    with pytest.raises(HttpResponseError) as raised:
        await arm.get("aks-a")
    assert (raised.value.status_code, raised.value.error) == (502, None)


async def test_a_connection_can_end_before_the_deed_or_after_it(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.set_faults(
        AzureFault(what="close", operation="nic.delete", about="aks-a"),
        AzureFault(what="lost", operation="nic.delete", about="aks-b"),
    )
    for name in ("aks-a", "aks-b"):
        with pytest.raises((ServiceRequestError, ServiceResponseError)):
            await arm.delete(name)
    assert {one.name: one.state for one in await azure.there("nic")} == {"aks-a": "Succeeded", "aks-b": "Deleting"}
    # aiohttp itself sends a delete once more when its connection was lost.
    asked = [(one.name, one.status) for one in await azure.requests("nic.delete")]
    assert asked == [("aks-a", 0), ("aks-a", 0), ("aks-b", 0), ("aks-b", 0)]


async def test_a_request_at_a_gate_sees_the_world_as_it_is_when_the_gate_opens(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.set_faults(AzureFault(what="gate", operation="nic.delete"))
    deleting = asyncio.ensure_future(arm.delete("aks-a"))

    async def waits() -> bool:
        return await azure.delayed() == ["nic.delete"]

    await until("the delete waits at the gate", waits)
    await azure.reserve("aks-a", "aks-x", 60)
    assert await azure.open("vm.*") == 0
    assert not deleting.done()
    assert await azure.open() == 1
    with refusal("NicReservedForAnotherVm", 400):
        await deleting
    (entry,) = await azure.requests("nic.delete")
    assert entry.delayed > 0
    assert await azure.delayed() == []


async def test_slowness_delays_a_request_and_changes_nothing_else(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.set_faults(
        AzureFault(what="slow", seconds=0.05, operation="nic.get"), AzureFault(what="deny", about="aks-b")
    )
    assert (await arm.get("aks-a")).name == "aks-a"
    with refusal("AuthorizationFailed", 403):
        await arm.get("aks-b")
    assert all(one.delayed >= 0.05 for one in await azure.requests("nic.get"))


async def test_who_brings_no_token_is_not_let_in(azure: LocalAzure) -> None:
    async with arm_on(azure, principal="") as arm:
        with refusal("AuthenticationFailed", 401):
            await arm.get("aks-a")


async def test_what_is_asked_of_the_control_address_in_vain_is_said_to_be_so(azure: LocalAzure) -> None:
    with pytest.raises(LocalAzureFailed, match="aks-none is not there"):
        await azure.remove("nic", "aks-none")
    with pytest.raises(LocalAzureFailed, match="400"):
        await azure.behave(nic_goes="long")
