"""Names come back: a NodeClaim, a machine or an interface of the same name is another one, and stays."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.contract.azure import resource_name
from service.engine.views.deletions import DeletionView
from standins.azure import Nic, Vm
from tests.scenarios.azure.stage import NIC, TAGS, VM, Stage


async def test_a_claim_that_is_made_again_before_the_plan_keeps_machine_and_interface(stage: Stage) -> None:
    await stage.start(works=False)
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.vm(claim)
    await stage.unclaimed(claim)

    async def published() -> bool:
        return await stage.record(uid) is not None

    await stage.until("its deletion is published", published)
    again = await stage.claimed(claim)
    assert again != uid
    await stage.start(watches=False)
    record = await stage.until_done(uid)
    assert f"another NodeClaim is named {claim} by now" in record.policy
    assert await stage.asked() == []
    assert {one.kind for one in await stage.there()} == {"vm", "nic"}


async def test_a_claim_that_is_made_again_while_its_interface_waits_keeps_it_until_it_goes_itself(stage: Stage) -> None:
    await stage.azure.behave(refusal_renews=True)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    guid = await stage.nic(claim)
    await stage.trouble("gate", "nic.delete")
    await stage.unclaimed(claim)
    await stage.until_reserved(claim, guid, 15)
    await stage.until_told(claim, "NicReservedForAnotherVm")
    again = await stage.claimed(claim, launched=False)
    withdrawn = await _until_withdrawn(stage, uid)
    assert "lives by now" in withdrawn.withdrawn
    assert await stage.names("nic") == {resource_name(claim)}
    assert {one.code for one in await stage.deletes()} == {"NicReservedForAnotherVm"}
    await stage.azure.behave(refusal_renews=False)
    await stage.unclaimed(claim)
    await stage.until_done(again)
    assert await stage.names() == set()


async def test_a_claim_that_is_made_again_right_before_its_machine_would_go_keeps_it(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.vm(claim)
    await stage.trouble("gate", "vm.get")
    await stage.unclaimed(claim)
    # The first look; the second one is right before the call.
    await stage.until_delayed("vm.get")
    await stage.azure.open()
    await stage.until_delayed("vm.get")
    await asyncio.to_thread(stage.claim, claim)
    await stage.azure.trouble()
    await stage.azure.open()
    await _until_withdrawn(stage, uid)
    assert await stage.deletes() == []
    assert {one.kind for one in await stage.there()} == {"vm", "nic"}


@pytest.mark.parametrize("kind", ["vm", "nic"])
async def test_what_was_made_again_under_the_same_name_stays_and_the_old_one_is_gone(stage: Stage, kind: str) -> None:
    """Somebody removed it by hand, and made another one, between the look and the call."""
    await stage.start()
    claim = stage.name("a")
    name = resource_name(claim)
    uid = await stage.claimed(claim)
    made = Nic if kind == "nic" else Vm
    one = made(name=name, tags=TAGS, subscription=stage.subscription)
    (first,) = await stage.azure.make(one)
    await stage.trouble("gate", f"{kind}.get")
    await stage.unclaimed(claim)
    await stage.until_delayed(f"{kind}.get")
    await stage.azure.open()
    await stage.until_delayed(f"{kind}.get")
    await stage.azure.remove(kind, name, subscription=stage.subscription)  # type: ignore[arg-type] # as it says
    (second,) = await stage.azure.make(one)
    assert second != first
    await stage.azure.trouble()
    await stage.azure.open()
    record = await stage.until_done(uid)
    (job,) = [job for job in await stage.all_jobs(record) if job.kind == {"vm": VM, "nic": NIC}[kind]]
    assert (job.state, second in job.detail) == ("gone", True)
    assert [there.guid for there in await stage.there()] == [second]
    assert await stage.deletes() == []


async def test_an_interface_made_again_while_its_job_waits_for_a_reservation_stays(stage: Stage) -> None:
    await stage.azure.behave(refusal_renews=True)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    guid = await stage.nic(claim)
    await stage.trouble("gate", "nic.delete")
    await stage.unclaimed(claim)
    await stage.until_reserved(claim, guid, 15)
    await stage.until_told(claim, "NicReservedForAnotherVm")
    # In the place of the old one: at no time there was none of this name.
    another = await stage.nic(claim)
    record = await stage.until_done(uid)
    (job,) = [job for job in await stage.all_jobs(record) if job.kind == NIC]
    assert job.state == "gone"
    assert "another one has its name" in job.detail
    assert [one.guid for one in await stage.there()] == [another]
    assert {one.code for one in await stage.deletes()} == {"NicReservedForAnotherVm"}


@pytest.mark.parametrize("before", ["vm.get", "nic.get", "nic.delete"])
async def test_an_interface_whose_machine_appears_between_the_look_and_the_call_stays(
    stage: Stage, before: str
) -> None:
    """Azure made it in the last moment: `before` the read of the machine, that of the interface, or the call itself,
    which is the one that Azure has to refuse. Its Node is Ready."""
    await stage.start()
    claim = stage.name("a")
    await stage.claimed(claim, launched=False)
    await stage.nic(claim)
    await stage.trouble("gate", before)
    await stage.unclaimed(claim)
    await stage.until_delayed(before)
    if before != "nic.delete":
        await stage.azure.open()
        await stage.until_delayed(before)
    name = resource_name(claim)
    await asyncio.to_thread(stage.node, claim)
    await stage.azure.make(Vm(name=name, tags=TAGS, subscription=stage.subscription, nics=(name,)))
    await stage.azure.trouble()
    await stage.azure.open()
    await stage.until_told(claim, f"{name} stays", "is Ready")
    assert [one.code for one in await stage.deletes()] == (["NicInUse"] if before == "nic.delete" else [])
    await stage.stays("both are there", partial(_both, stage), timedelta(milliseconds=500))


async def test_a_machine_that_appears_while_its_interface_waits_goes_first_and_takes_it_along(stage: Stage) -> None:
    """A launch was under way when the claim went; the stage of machines was over by then."""
    await stage.azure.behave(refusal_renews=True)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    guid = await stage.nic(claim)
    await stage.trouble("gate", "nic.delete")
    await stage.unclaimed(claim)
    await stage.until_reserved(claim, guid, 15)
    await stage.until_told(claim, "NicReservedForAnotherVm")
    name = resource_name(claim)
    await stage.azure.make(Vm(name=name, tags=TAGS, subscription=stage.subscription, nics=(name,)))
    await stage.until_done(uid)
    assert await stage.names() == set()
    *refused, last = [(one.operation, one.code) for one in await stage.deletes()]
    assert set(refused) == {("nic.delete", "NicReservedForAnotherVm")}
    assert last == ("vm.delete", "")


async def _both(stage: Stage) -> bool:
    return {one.kind for one in await stage.there()} == {"vm", "nic"}


async def _until_withdrawn(stage: Stage, uid: str) -> DeletionView:
    async def look() -> DeletionView | None:
        record = await stage.record(uid)
        return record if record is not None and record.withdrawn and record.state == "done" else None

    found = await stage.until("consent is withdrawn", look)
    assert isinstance(found, DeletionView)
    return found
