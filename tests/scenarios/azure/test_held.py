"""What Azure refuses is held or waits, says why, and goes once the reason is gone; everything else goes on."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.contract.azure import resource_name
from standins.azure import GROUP, Vm, id_of
from tests.scenarios.azure.stage import NIC, SOURCE, VM, Stage


async def test_a_locked_interface_is_held_with_the_lock_named_and_goes_when_it_is_lifted(stage: Stage) -> None:
    await stage.start()
    claim, other = stage.name("a"), stage.name("b")
    uid, free = await stage.claimed(claim), await stage.claimed(other)
    for one in (claim, other):
        await stage.nic(one)
    scope = id_of(stage.subscription, GROUP, "nic", resource_name(claim))
    await stage.azure.behave(locks=(scope,))
    await asyncio.gather(stage.unclaimed(claim), stage.unclaimed(other))
    job = await stage.until_told(claim, "ScopeLocked", "lock", scope)
    assert job.held
    # The other one is not held up.
    await stage.until_done(free)
    shown = await asyncio.to_thread(stage.knell, "jobs", "list", "--output", "json")
    assert [(one["target"], one["held"]) for one in shown.json["jobs"] if one["kind"] == NIC] == [
        (resource_name(claim), True)
    ]
    held = await asyncio.to_thread(stage.knell, "held", "list", "--output", "json")
    (only,) = held.json["held"]
    assert "ScopeLocked" in only["why"]
    await stage.azure.behave(locks=())
    await stage.until_done(uid)
    assert await stage.names() == set()
    assert (await asyncio.to_thread(stage.knell, "held", "list", "--output", "json")).json["held"] == []


async def test_a_lock_on_the_whole_group_holds_the_machine_too_and_what_it_would_take_along(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.vm(claim)
    await stage.azure.behave(locks=(f"/subscriptions/{stage.subscription}/resourceGroups/{GROUP}",))
    await stage.unclaimed(claim)
    await stage.until_told(claim, "ScopeLocked", kind=VM)
    assert {one.kind for one in await stage.there()} == {"vm", "nic"}
    assert {one.operation for one in await stage.deletes()} == {"vm.delete"}
    await stage.azure.behave(locks=())
    await stage.until_done(uid)
    assert await stage.names() == set()


@pytest.mark.parametrize(
    ("operation", "kind", "permission"),
    [
        ("vm.get", VM, "Microsoft.Compute/virtualMachines/read"),
        ("vm.delete", VM, "Microsoft.Compute/virtualMachines/delete"),
        ("nic.get", NIC, "Microsoft.Network/networkInterfaces/read"),
        ("nic.delete", NIC, "Microsoft.Network/networkInterfaces/delete"),
    ],
)
async def test_a_denied_permission_is_named_and_nothing_is_taken_for_gone(
    stage: Stage, operation: str, kind: str, permission: str
) -> None:
    await stage.trouble("deny", operation)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await (stage.vm(claim) if kind == VM else stage.nic(claim))
    await stage.unclaimed(claim)
    job = await stage.until_told(claim, "AuthorizationFailed", permission, "deploy/azure", kind=kind)
    assert job.held
    assert resource_name(claim) in await stage.names()
    await stage.azure.trouble()
    await stage.until_done(uid)
    assert await stage.names() == set()


async def test_a_deny_assignment_is_told_apart_and_the_interface_goes_when_it_is_taken_away(stage: Stage) -> None:
    await stage.trouble("deny-assignment", "nic.delete")
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.nic(claim)
    await stage.unclaimed(claim)
    assert (await stage.until_told(claim, "DenyAssignmentAuthorizationFailed", "deny assignment")).held
    await stage.azure.trouble()
    await stage.until_done(uid)


async def test_an_interface_of_a_foreign_machine_waits_and_names_it_and_the_rest_goes_on(stage: Stage) -> None:
    await stage.start()
    claim, other = stage.name("a"), stage.name("b")
    uid, free = await stage.claimed(claim), await stage.claimed(other)
    await stage.nic(claim, vm="foreign")
    await stage.azure.make(Vm(name="foreign", subscription=stage.subscription, nics=(resource_name(claim),)))
    await stage.nic(other)
    await asyncio.gather(stage.unclaimed(claim), stage.unclaimed(other))
    await stage.until_done(free)
    # Where Azure has to refuse it is shown by the stories of machines that appear in the last moment.
    await stage.until_told(claim, "microsoft.compute/virtualmachines/foreign")
    await stage.stays("both are there", partial(_has, stage, "foreign", claim), timedelta(milliseconds=400))
    await stage.azure.remove("vm", "foreign", subscription=stage.subscription)
    await stage.until_done(uid)
    assert await stage.names() == set()
    assert {one.name for one in await stage.deletes()} == {resource_name(claim), resource_name(other)}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"resource_group": "mc_elsewhere"}, "ResourceGroupNotFound"),
        ({"subscription": "99999999-9999-4999-8999-999999999999"}, "SubscriptionNotFound"),
    ],
)
async def test_a_place_that_is_not_there_holds_with_words_and_is_never_taken_for_empty(
    stage: Stage, changes: dict[str, str], code: str
) -> None:
    stage.document["azure"]["nodes"] = {SOURCE: [stage.nodes(**changes)]}
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    await stage.nic(claim)
    await stage.unclaimed(claim)
    job = await stage.until_told(claim, code, "azure.nodes", "says nothing about the resource", kind=VM)
    assert job.held
    record = await stage.record(uid)
    assert record is not None
    assert (record.state, record.left) == ("running", record.jobs)
    assert await stage.names() == {resource_name(claim)}


@pytest.mark.invariant(11)
async def test_a_machine_in_a_place_that_settings_do_not_name_is_held_before_anything_is_asked(stage: Stage) -> None:
    stage.document["azure"]["nodes"] = {SOURCE: [stage.nodes(resource_group="mc_other")]}
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.vm(claim)
    await stage.unclaimed(claim)

    async def held() -> str:
        record = await stage.record(uid)
        return record.held_why if record is not None else ""

    why = await stage.until("it is held", held)
    assert GROUP in why
    assert "azure.nodes" in why
    assert await stage.asked() == []


async def _has(stage: Stage, foreign: str, claim: str) -> bool:
    return {foreign, resource_name(claim)} <= await stage.names()
