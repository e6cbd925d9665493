"""Reused names: a NodeClaim, a machine or an interface of the same name is another one, and stays."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.engine.views.deletions import DeletionView
from service.sources.karpenter_azure import resource_name
from standins.azure import Vm
from tests.azure_kinds import AZURE_KINDS
from tests.scenarios.azure.azure_scenario import NIC, TAGS, VM, AzureScenario

pytestmark = pytest.mark.long


async def test_a_claim_that_is_made_again_before_the_plan_keeps_machine_and_interface(scenario: AzureScenario) -> None:
    await scenario.start(works=False)
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.vm(claim)
    await scenario.unclaimed(claim)

    async def published() -> bool:
        return await scenario.record(uid) is not None

    await scenario.until("its deletion is published", published)
    again = await scenario.claimed(claim)
    assert again != uid
    await scenario.start(watches=False)
    record = await scenario.until_done(uid)
    assert f"another NodeClaim is named {claim} by now" in record.policy
    assert await scenario.asked() == []
    assert {one.kind for one in await scenario.there()} == {"vm", "nic"}


async def test_a_claim_that_is_made_again_while_its_interface_waits_keeps_it_until_it_goes_itself(
    scenario: AzureScenario,
) -> None:
    await scenario.azure.behave(refusal_renews=True)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    guid = await scenario.nic(claim)
    await scenario.trouble("gate", "nic.delete")
    await scenario.unclaimed(claim)
    await scenario.until_reserved(claim, guid, 15)
    await scenario.until_told(claim, "NicReservedForAnotherVm")
    again = await scenario.claimed(claim, launched=False)
    withdrawn = await _until_withdrawn(scenario, uid)
    assert "lives by now" in withdrawn.withdrawn
    assert await scenario.names("nic") == {resource_name(claim)}
    assert {one.code for one in await scenario.deletes()} == {"NicReservedForAnotherVm"}
    await scenario.azure.behave(refusal_renews=False)
    await scenario.unclaimed(claim)
    await scenario.until_done(again)
    assert await scenario.names() == set()


async def test_a_claim_that_is_made_again_right_before_its_machine_would_go_keeps_it(scenario: AzureScenario) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.vm(claim)
    await scenario.trouble("gate", "vm.get")
    await scenario.unclaimed(claim)
    # The first look; the second one is right before the call.
    await scenario.until_delayed("vm.get")
    await scenario.azure.open()
    await scenario.until_delayed("vm.get")
    await asyncio.to_thread(scenario.claim, claim)
    await scenario.azure.set_faults()
    await scenario.azure.open()
    await _until_withdrawn(scenario, uid)
    assert await scenario.deletes() == []
    assert {one.kind for one in await scenario.there()} == {"vm", "nic"}


@pytest.mark.parametrize("kind", [VM, NIC])
async def test_what_was_made_again_under_the_same_name_stays_and_the_old_one_is_gone(
    scenario: AzureScenario, kind: str
) -> None:
    """A user deleted it, and created another one, between the read and the call."""
    await scenario.start()
    claim = scenario.name("a")
    name = resource_name(claim)
    uid = await scenario.claimed(claim)
    row = AZURE_KINDS[kind]
    given = {"tags": TAGS, "subscription": scenario.subscription}
    first = await row.make(scenario.azure, name, **given)
    await scenario.trouble("gate", row.read)
    await scenario.unclaimed(claim)
    await scenario.until_delayed(row.read)
    await scenario.azure.open()
    await scenario.until_delayed(row.read)
    await scenario.azure.remove(row.short, name, subscription=scenario.subscription)
    second = await row.make(scenario.azure, name, **given)
    assert second != first
    await scenario.azure.set_faults()
    await scenario.azure.open()
    record = await scenario.until_done(uid)
    (job,) = [job for job in await scenario.all_jobs(record) if job.kind == kind]
    assert (job.state, second in job.detail) == ("gone", True)
    assert [there.guid for there in await scenario.there()] == [second]
    assert await scenario.deletes() == []


async def test_an_interface_made_again_while_its_job_waits_for_a_reservation_stays(scenario: AzureScenario) -> None:
    await scenario.azure.behave(refusal_renews=True)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    guid = await scenario.nic(claim)
    await scenario.trouble("gate", "nic.delete")
    await scenario.unclaimed(claim)
    await scenario.until_reserved(claim, guid, 15)
    await scenario.until_told(claim, "NicReservedForAnotherVm")
    # In the place of the old one: at no time there was none of this name.
    another = await scenario.nic(claim)
    record = await scenario.until_done(uid)
    (job,) = [job for job in await scenario.all_jobs(record) if job.kind == NIC]
    assert job.state == "gone"
    assert "another one has its name" in job.detail
    assert [one.guid for one in await scenario.there()] == [another]
    assert {one.code for one in await scenario.deletes()} == {"NicReservedForAnotherVm"}


@pytest.mark.parametrize("before", ["vm.get", "nic.get", "nic.delete"])
async def test_an_interface_whose_machine_appears_between_the_look_and_the_call_stays(
    scenario: AzureScenario, before: str
) -> None:
    """Azure made it in the last moment: `before` the read of the machine, that of the interface, or the call itself,
    which is the one that Azure has to refuse. Its Node is Ready."""
    await scenario.start()
    claim = scenario.name("a")
    await scenario.claimed(claim, launched=False)
    await scenario.nic(claim)
    await scenario.trouble("gate", before)
    await scenario.unclaimed(claim)
    await scenario.until_delayed(before)
    if before != "nic.delete":
        await scenario.azure.open()
        await scenario.until_delayed(before)
    name = resource_name(claim)
    await asyncio.to_thread(scenario.node, claim)
    await scenario.azure.make(Vm(name=name, tags=TAGS, subscription=scenario.subscription, nics=(name,)))
    await scenario.azure.set_faults()
    await scenario.azure.open()
    await scenario.until_told(claim, f"{name} stays", "is Ready")
    assert [one.code for one in await scenario.deletes()] == (["NicInUse"] if before == "nic.delete" else [])
    await scenario.stays("both are there", partial(_both, scenario), timedelta(milliseconds=500))


async def test_a_machine_that_appears_while_its_interface_waits_goes_first_and_takes_it_along(
    scenario: AzureScenario,
) -> None:
    """A launch was under way when the claim went; the stage of machines was over by then."""
    await scenario.azure.behave(refusal_renews=True)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    guid = await scenario.nic(claim)
    await scenario.trouble("gate", "nic.delete")
    await scenario.unclaimed(claim)
    await scenario.until_reserved(claim, guid, 15)
    await scenario.until_told(claim, "NicReservedForAnotherVm")
    name = resource_name(claim)
    await scenario.azure.make(Vm(name=name, tags=TAGS, subscription=scenario.subscription, nics=(name,)))
    await scenario.until_done(uid)
    assert await scenario.names() == set()
    *refused, last = [(one.operation, one.code) for one in await scenario.deletes()]
    assert set(refused) == {("nic.delete", "NicReservedForAnotherVm")}
    assert last == ("vm.delete", "")


async def _both(scenario: AzureScenario) -> bool:
    return {one.kind for one in await scenario.there()} == {"vm", "nic"}


async def _until_withdrawn(scenario: AzureScenario, uid: str) -> DeletionView:
    async def look() -> DeletionView | None:
        record = await scenario.record(uid)
        return record if record is not None and record.withdrawn and record.state == "done" else None

    found = await scenario.until("consent is withdrawn", look)
    assert isinstance(found, DeletionView)
    return found
