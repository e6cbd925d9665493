"""What the demo says of the interface on Azure is what the stand-in's journal and lists say: when it was refused and
asked for again, whether it is gone, and whether anybody else's was touched."""

import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from standins.azure import Behaviour, Fault, LocalAzure, LocalAzureFailed
from standins.demo.karpenter import INTERFACE
from standins.demo.reservation import Reservation, judge_azure, read, reckon_azure
from standins.demo.subscription import BEHAVIOUR, RATE, RESERVED, Subscription
from tests.azure import Arm, arm_on, refusal

pytestmark = pytest.mark.long

FOREIGN = "aks-web-p8d2s"
GOES = Behaviour().nic_goes + 1


@pytest.fixture
async def azure() -> AsyncIterator[LocalAzure]:
    """Its clock stands until a test moves it, as far as it would have come at the demo's pace."""
    async with LocalAzure(BEHAVIOUR, rate=0) as running:
        yield running


@pytest.fixture
async def subscription(azure: LocalAzure) -> Subscription:
    made = Subscription(azure)
    await made.build()
    await made.reserve()
    return made


@pytest.fixture
async def arm(azure: LocalAzure) -> AsyncIterator[Arm]:
    async with arm_on(azure) as made:
        yield made


async def told(subscription: Subscription) -> Reservation:
    await subscription.look()
    return read(subscription.entries, subscription.ours)


async def refused(arm: Arm) -> None:
    with refusal("NicReservedForAnotherVm", 400):
        await arm.delete(INTERFACE)


async def test_the_interface_is_reserved_from_when_it_is_said_and_however_late_that_is(
    azure: LocalAzure, arm: Arm, subscription: Subscription
) -> None:
    await azure.advance(2 * RESERVED)
    await subscription.reserve()
    await azure.advance(RESERVED - 1)
    await refused(arm)


async def test_a_reservation_that_is_waited_for_is_not_faulted(
    azure: LocalAzure, arm: Arm, subscription: Subscription
) -> None:
    assert await told(subscription) == Reservation()
    await refused(arm)
    killed = time.time()
    waiting = await told(subscription)
    assert (len(waiting.refused), waiting.called, waiting.late) == (1, None, None)
    assert waiting.until == pytest.approx(waiting.refused[0].real + 12)
    await azure.advance(RESERVED + 0.5 * RATE)
    assert await arm.delete(INTERFACE) == 202
    assert (await told(subscription)).gone is None
    await azure.advance(GOES)
    assert (await told(subscription)).gone is not None
    summary = reckon_azure(subscription, killed=[killed], took=None)
    assert (summary.refused, summary.early, summary.gone, summary.across_kill) == (1, 0, True, True)
    assert summary.late == timedelta(seconds=0.5)
    assert (summary.kept, summary.to_keep, summary.calls) == (4, 4, 2)
    assert judge_azure(summary) == []
    assert not reckon_azure(subscription, killed=[time.time()], took=None).across_kill


async def test_who_comes_early_is_seen_and_waits_for_all_of_it_again(
    azure: LocalAzure, arm: Arm, subscription: Subscription
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
    (problem,) = judge_azure(reckon_azure(subscription, killed=[], took=None))
    assert "2 deletes" in problem


async def test_what_was_throttled_did_not_come_early_and_is_not_the_call_that_was_waited_for(
    azure: LocalAzure, arm: Arm, subscription: Subscription
) -> None:
    await refused(arm)
    await azure.advance(RESERVED)
    await azure.trouble(Fault(what="throttle", operation="nic.delete", times=1))
    with refusal("TooManyRequests", 429):
        await arm.delete(INTERFACE)
    assert (await told(subscription)).called is None
    await azure.advance(RATE)
    assert await arm.delete(INTERFACE) == 202
    found = await told(subscription)
    assert (found.early, found.late) == (0, timedelta(seconds=1))


async def test_what_is_left_and_what_was_touched_on_azure_is_told_by_azure(
    azure: LocalAzure, arm: Arm, subscription: Subscription
) -> None:
    await arm.get(FOREIGN)
    await subscription.look()
    assert subscription.touched == set()
    # One that has its name in another group is another one.
    assert await arm.delete(INTERFACE, group="mc_elsewhere") == 202
    assert await arm.delete(FOREIGN) == 202
    await azure.advance(GOES)
    await subscription.look()
    summary = reckon_azure(subscription, killed=[], took=None)
    assert (summary.kept, summary.to_keep, summary.gone, summary.refused) == (2, 4, False, 0)
    assert {one.rpartition("/")[2] for one in summary.touched} == {FOREIGN, INTERFACE}
    assert subscription.ours not in summary.touched
    assert len(judge_azure(summary)) == 4


async def test_a_stand_in_for_azure_that_dies_is_named(azure: LocalAzure, subscription: Subscription) -> None:
    os.kill(azure.pid, signal.SIGKILL)
    with pytest.raises(LocalAzureFailed, match="the stand-in for Azure does not answer"):
        await subscription.look()
