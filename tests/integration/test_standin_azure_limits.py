"""Limits of the stand-in for Azure, layer by layer as in Azure: ARM's buckets, those of network and compute, and
Resource Graph's window. Every response says what is left."""

import os
import re
from collections.abc import AsyncIterator

import pytest
from azure.identity.aio import ManagedIdentityCredential

from standins.azure import GROUP, BucketSize, LocalAzure, Nic, Vm
from tests.azure import ArmClients, arm_on, refusal, said

pytestmark = pytest.mark.long

DELETES = "x-ms-ratelimit-remaining-subscription-deletes"
TOGETHER = "x-ms-ratelimit-remaining-subscription-global-deletes"
READS = "x-ms-ratelimit-remaining-subscription-reads"
ALL_NICS = "Resources | where type =~ 'Microsoft.Network/networkInterfaces'"


@pytest.fixture
async def azure() -> AsyncIterator[LocalAzure]:
    """Its clock stands until a test moves it."""
    async with LocalAzure() as made:
        await made.set_rate(0)
        await made.make(*(Nic(name=f"aks-{number}") for number in range(4)))
        yield made


@pytest.fixture
async def arm(azure: LocalAzure) -> AsyncIterator[ArmClients]:
    async with arm_on(azure) as made:
        yield made


async def test_arm_has_two_hundred_deletes_and_ten_more_each_second(azure: LocalAzure, arm: ArmClients) -> None:
    for _ in range(200):
        await arm.delete("nobody")
    assert arm.headers[DELETES] == "0"
    assert arm.headers[TOGETHER] == "2800"
    with refusal("SubscriptionRequestsThrottled", 429) as caught:
        await arm.delete("nobody")
    assert said(caught, "Retry-After") == "1"
    await azure.advance(1)
    for _ in range(10):
        await arm.delete("nobody")
    with refusal("SubscriptionRequestsThrottled", 429):
        await arm.delete("nobody")
    statuses = [one.status for one in await azure.requests("nic.delete")]
    assert statuses == [*[204] * 200, 429, *[204] * 10, 429]


async def test_deletes_leave_reads_and_other_principals_and_regions_their_own(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.behave(arm_deletes=BucketSize(2, 0))
    await azure.make(Nic(name="far", group="far", region="eastus"))
    for _ in range(2):
        await arm.delete("aks-0")
    with refusal("SubscriptionRequestsThrottled", 429):
        await arm.delete("aks-0")
    await arm.get("aks-0")
    assert arm.headers[READS] == "249"
    assert await arm.delete("far", group="far") == 202
    async with arm_on(azure, principal="another") as other:
        assert await other.delete("aks-1") == 202
        assert (other.headers[DELETES], other.headers[TOGETHER]) == ("1", "27")


async def test_all_principals_together_have_fifteen_times_one_s_share(azure: LocalAzure) -> None:
    await azure.behave(arm_deletes=BucketSize(2, 0), arm_together=1.5)
    async with arm_on(azure, principal="one") as one, arm_on(azure, principal="two") as two:
        await one.delete("aks-0")
        await one.delete("aks-1")
        await two.delete("aks-2")
        with refusal("SubscriptionRequestsThrottled", 429):
            await two.delete("aks-3")


async def test_the_network_has_a_thousand_changes_in_five_minutes_and_its_refusal_costs_a_token_of_arm_s(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.behave(arm_deletes=BucketSize(2000, 0))
    for _ in range(1000):
        await arm.delete("nobody")
    with refusal("TooManyRequests", 429) as caught:
        await arm.delete("nobody")
    assert said(caught, "Retry-After") is None
    assert said(caught, DELETES) == "999"
    await azure.behave(network_retry_after=17)
    with refusal("TooManyRequests", 429) as caught:
        await arm.delete("nobody")
    assert said(caught, "Retry-After") == "17"
    assert said(caught, DELETES) == "998"
    await azure.advance(3)
    # 3.33 in a second.
    for _ in range(10):
        assert await arm.delete("nobody") == 204
    with refusal("TooManyRequests", 429):
        await arm.delete("nobody")


async def test_what_arm_refuses_costs_nothing_and_a_wait_in_the_callers_seconds_is_enough(
    azure: LocalAzure, arm: ArmClients
) -> None:
    await azure.behave(arm_deletes=BucketSize(1, 0.5), arm_retry_after=2)
    await arm.delete("nobody")
    for _ in range(5):
        with refusal("SubscriptionRequestsThrottled", 429) as caught:
            await arm.delete("nobody")
        assert said(caught, "Retry-After") == "2"
    await azure.advance(2)
    assert await arm.delete("nobody") == 204


async def test_compute_counts_deletes_of_machines_and_of_each_machine(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.make(Vm(name="aks-0"), Vm(name="aks-1"))
    await azure.behave(vm_goes=1000)
    for _ in range(12):
        await arm.delete_vm("aks-0")
    left = "Microsoft.Compute/DeleteVMSubscriptionMaximum;1488,Microsoft.Compute/DeleteVMResource;0"
    assert arm.headers["x-ms-ratelimit-remaining-resource"] == left
    with refusal("OperationNotAllowed", 429) as caught:
        await arm.delete_vm("aks-0")
    assert [one.code for one in caught[0].error.details] == ["TooManyRequests"]  # type: ignore[union-attr]
    assert said(caught, "Retry-After") == "15"
    assert await arm.delete_vm("aks-1") == 202
    await azure.advance(15)
    assert await arm.delete_vm("aks-0") == 202


async def test_resource_graph_answers_fifteen_queries_in_five_seconds_to_each_principal(
    azure: LocalAzure, arm: ArmClients
) -> None:
    for left in reversed(range(15)):
        await arm.query(ALL_NICS)
        assert arm.headers["x-ms-user-quota-remaining"] == str(left)
    assert arm.headers["x-ms-user-quota-resets-after"] == "00:00:05"
    await azure.advance(2)
    with refusal("RateLimiting", 429) as caught:
        await arm.query(ALL_NICS)
    assert said(caught, "Retry-After") == "3"
    assert said(caught, "x-ms-user-quota-remaining") == "0"
    assert said(caught, "x-ms-user-quota-resets-after") == "00:00:03"
    async with arm_on(azure, principal="another") as other:
        assert (await other.query(ALL_NICS)).count == 4
    await azure.advance(3)
    assert (await arm.query(ALL_NICS)).count == 4
    # A window that lasts less than a second of the caller's is told to the millisecond.
    await azure.set_rate(1000)
    await arm.query(ALL_NICS)
    assert re.fullmatch(r"00:00:00\.00\d", arm.headers["x-ms-user-quota-resets-after"])


async def test_asking_for_a_delete_that_goes_on_costs_a_read(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.behave(arm_reads=BucketSize(2, 0))
    await azure.set_rate(1000)
    poller = await arm.network.network_interfaces.begin_delete(GROUP, "aks-0", polling_interval=0)
    await poller.result()
    polls = len(await azure.requests("operation.get"))
    assert polls > 0
    for _ in range(2 - polls):
        await arm.get("aks-1")
    with refusal("SubscriptionRequestsThrottled", 429):
        await arm.get("aks-1")


async def test_limits_can_be_off_and_builders_are_never_limited(azure: LocalAzure, arm: ArmClients) -> None:
    await azure.behave(arm_deletes=BucketSize(1, 0), arm_reads=BucketSize(1, 0), delete_quotas=False, read_quotas=False)
    for _ in range(3):
        await arm.delete("nobody")
        await arm.get("aks-1")
    await azure.behave(delete_quotas=True, read_quotas=True)
    for _ in range(3):
        await arm.network.network_interfaces.get(GROUP, "aks-1", headers={"x-knell-setup": "1"})
    await arm.get("aks-1")
    with refusal("SubscriptionRequestsThrottled", 429):
        await arm.get("aks-1")
    entries = [one for one in await azure.journal() if one.operation == "nic.get"]
    assert [one.setup for one in entries] == [*[False] * 3, *[True] * 3, False, False]
    assert len(await azure.requests("nic.get")) == 5


async def test_a_managed_identity_is_a_principal_of_its_own(azure: LocalAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in os.environ if one.startswith(("AZURE_", "IDENTITY_", "MSI_"))]:
        monkeypatch.delenv(name)
    for name, value in azure.identity().items():
        monkeypatch.setenv(name, value)
    for client_id in (None, "00000000-0000-4000-8000-0000000000aa"):
        async with (
            ManagedIdentityCredential(client_id=client_id) as credential,
            arm_on(azure, credential=credential) as arm,
        ):
            await arm.get("aks-0")
    principals = [one.principal for one in await azure.requests("nic.get")]
    assert principals == ["default", "00000000-0000-4000-8000-0000000000aa"]
