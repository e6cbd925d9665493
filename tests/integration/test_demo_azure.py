"""What the demo says of its resources on Azure is what Azure's own list and journal say: when the reserved interface
was refused and deleted, what is left, what was touched, and what was deleted twice."""

import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from standins.azure import AzureBehaviour, AzureFault, LocalAzure, LocalAzureFailed
from standins.demo.azure_subscription import BEHAVIOUR, RATE, RESERVED, AzureSubscription, Reservation
from standins.demo.fleet import make_fleet
from tests.azure import ArmClients, arm_on, refusal

pytestmark = pytest.mark.long

INTERFACE = "aks-web-reserved"
FOREIGN = "aks-web-reserved-2"
ORPHAN = "aks-web-02"
GOES = AzureBehaviour().nic_goes + 1


@pytest.fixture
async def azure() -> AsyncIterator[LocalAzure]:
    """Its clock stands until a test moves it, as far as it would have come at the demo's pace."""
    async with LocalAzure(BEHAVIOUR, rate=0) as running:
        yield running


@pytest.fixture
async def subscription(azure: LocalAzure) -> AzureSubscription:
    made = AzureSubscription(azure, make_fleet(4, 4))
    await made.build()
    await made.reserve()
    return made


@pytest.fixture
async def arm(azure: LocalAzure) -> AsyncIterator[ArmClients]:
    async with arm_on(azure) as made:
        yield made


async def told(subscription: AzureSubscription) -> Reservation:
    await subscription.refresh()
    return subscription.reservation


async def refused(arm: ArmClients) -> None:
    with refusal("NicReservedForAnotherVm", 400):
        await arm.delete(INTERFACE)


async def test_the_interface_is_reserved_from_when_it_is_said_and_however_late_that_is(
    azure: LocalAzure, arm: ArmClients, subscription: AzureSubscription
) -> None:
    await azure.advance(2 * RESERVED)
    await subscription.reserve()
    await azure.advance(RESERVED - 1)
    await refused(arm)


async def test_a_reservation_that_is_waited_for_is_not_faulted(
    azure: LocalAzure, arm: ArmClients, subscription: AzureSubscription
) -> None:
    assert await told(subscription) == Reservation()
    await refused(arm)
    killed = time.time()
    waiting = await told(subscription)
    assert (len(waiting.refused), waiting.called, waiting.late) == (1, None, None)
    assert waiting.until == pytest.approx(waiting.refused[0].real + 12)
    await azure.advance(RESERVED + 0.5 * RATE)
    assert await arm.delete(INTERFACE) == 202
    # Accepted is not gone.
    await subscription.refresh()
    assert (subscription.summary(killed).removed, subscription.nodes_gone) == (0, 0)
    await azure.advance(GOES)
    await subscription.refresh()
    summary = subscription.summary(killed)
    assert (summary.removed, subscription.nodes_gone) == (1, 1)
    assert (summary.reservations, summary.early, summary.across_kill) == (1, 0, True)
    assert summary.late == timedelta(seconds=0.5)
    assert (summary.kept, summary.missing, summary.touched, summary.twice, summary.calls) == (7, [], [], [], 2)
    assert not subscription.summary(time.time()).across_kill
    assert not subscription.summary(None).across_kill


async def test_who_comes_early_is_seen_and_waits_for_all_of_it_again(
    azure: LocalAzure, arm: ArmClients, subscription: AzureSubscription
) -> None:
    await refused(arm)
    await azure.advance(RESERVED - 1)
    await refused(arm)
    await azure.advance(RESERVED - 1)
    await refused(arm)
    await azure.advance(RESERVED)
    assert await arm.delete(INTERFACE) == 202
    await azure.advance(GOES)
    found = await told(subscription)
    assert (found.early, found.late) == (2, timedelta(0))
    assert subscription.summary(None).early == 2


async def test_what_was_throttled_did_not_come_early_and_is_not_the_call_that_was_waited_for(
    azure: LocalAzure, arm: ArmClients, subscription: AzureSubscription
) -> None:
    await refused(arm)
    await azure.advance(RESERVED)
    await azure.set_faults(AzureFault(what="throttle", operation="nic.delete", times=1))
    with refusal("TooManyRequests", 429):
        await arm.delete(INTERFACE)
    assert (await told(subscription)).called is None
    await azure.advance(RATE)
    assert await arm.delete(INTERFACE) == 202
    found = await told(subscription)
    assert (found.early, found.late) == (0, timedelta(seconds=1))


async def test_what_is_left_and_what_was_touched_on_azure_is_reported_from_azure(
    azure: LocalAzure, arm: ArmClients, subscription: AzureSubscription
) -> None:
    await arm.get(FOREIGN)
    await subscription.refresh()
    found = subscription.summary(None)
    assert (found.resources, found.removed, found.kept, found.touched) == (8, 0, 7, [])
    # One that has its name in another group is another one.
    assert await arm.delete(INTERFACE, group="mc_elsewhere") == 202
    assert await arm.delete(FOREIGN) == 202
    assert await arm.delete(ORPHAN) == 202
    await azure.advance(GOES)
    await subscription.refresh()
    found = subscription.summary(None)
    assert (found.removed, len(found.left), found.kept, found.reservations) == (1, 7, 5, 0)
    wrong = [f"mc_elsewhere/networkinterfaces/{INTERFACE}", f"mc_pool/networkinterfaces/{FOREIGN}"]
    assert found.touched == found.missing == wrong
    assert subscription.progress()["network interfaces"] == (1, 4)
    assert not subscription.finished


async def test_a_delete_that_was_accepted_twice_is_seen(
    azure: LocalAzure, arm: ArmClients, subscription: AzureSubscription
) -> None:
    assert await arm.delete(ORPHAN) == 202
    await azure.advance(GOES)
    # Nothing is there any more.
    assert await arm.delete(ORPHAN) == 204
    await subscription.refresh()
    assert subscription.summary(None).twice == []
    (accepted,) = [one for one in subscription.entries if one.operation == "nic.delete" and one.status == 202]
    subscription.entries.append(accepted)
    assert subscription.summary(None).twice == [f"mc_pool/networkinterfaces/{ORPHAN}"]


async def test_a_stand_in_for_azure_that_dies_is_named(azure: LocalAzure, subscription: AzureSubscription) -> None:
    os.kill(azure.pid, signal.SIGKILL)
    with pytest.raises(LocalAzureFailed, match="the stand-in for Azure does not answer"):
        await subscription.refresh()
