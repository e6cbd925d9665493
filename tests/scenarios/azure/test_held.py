"""Refusals of Azure: the job is held or waits, says why, and is done once the reason is gone; other jobs continue."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.sources.karpenter_azure import resource_name
from standins.azure import GROUP, Vm, id_of
from tests.scenarios.azure.azure_scenario import NIC, SOURCE, VM, AzureScenario


async def test_a_locked_interface_is_held_with_the_lock_named_and_goes_when_it_is_lifted(
    scenario: AzureScenario,
) -> None:
    await scenario.start()
    claim, other = scenario.name("a"), scenario.name("b")
    uid, free = await scenario.claimed(claim), await scenario.claimed(other)
    for one in (claim, other):
        await scenario.nic(one)
    scope = id_of(scenario.subscription, GROUP, "nic", resource_name(claim))
    await scenario.azure.behave(locks=(scope,))
    await asyncio.gather(scenario.unclaimed(claim), scenario.unclaimed(other))
    job = await scenario.until_told(claim, "ScopeLocked", "lock", scope)
    assert job.held
    # The other one is not held up.
    await scenario.until_done(free)
    shown = await asyncio.to_thread(scenario.knell, "jobs", "list", "--output", "json")
    assert [(one["target"], one["held"]) for one in shown.json["jobs"] if one["kind"] == NIC] == [
        (resource_name(claim), True)
    ]
    held = await asyncio.to_thread(scenario.knell, "held", "list", "--output", "json")
    (only,) = held.json["held"]
    assert "ScopeLocked" in only["why"]
    await scenario.azure.behave(locks=())
    await scenario.until_done(uid)
    assert await scenario.names() == set()
    assert (await asyncio.to_thread(scenario.knell, "held", "list", "--output", "json")).json["held"] == []


async def test_a_lock_on_the_whole_group_holds_the_machine_too_and_what_it_would_take_along(
    scenario: AzureScenario,
) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.vm(claim)
    await scenario.azure.behave(locks=(f"/subscriptions/{scenario.subscription}/resourceGroups/{GROUP}",))
    await scenario.unclaimed(claim)
    await scenario.until_told(claim, "ScopeLocked", kind=VM)
    assert {one.kind for one in await scenario.there()} == {"vm", "nic"}
    assert {one.operation for one in await scenario.deletes()} == {"vm.delete"}
    await scenario.azure.behave(locks=())
    await scenario.until_done(uid)
    assert await scenario.names() == set()


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
    scenario: AzureScenario, operation: str, kind: str, permission: str
) -> None:
    await scenario.trouble("deny", operation)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await (scenario.vm(claim) if kind == VM else scenario.nic(claim))
    await scenario.unclaimed(claim)
    job = await scenario.until_told(claim, "AuthorizationFailed", permission, "deploy/azure", kind=kind)
    assert job.held
    assert resource_name(claim) in await scenario.names()
    await scenario.azure.set_faults()
    await scenario.until_done(uid)
    assert await scenario.names() == set()


async def test_a_deny_assignment_is_distinguished_and_the_interface_is_deleted_after_its_removal(
    scenario: AzureScenario,
) -> None:
    await scenario.trouble("deny-assignment", "nic.delete")
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.nic(claim)
    await scenario.unclaimed(claim)
    assert (await scenario.until_told(claim, "DenyAssignmentAuthorizationFailed", "deny assignment")).held
    await scenario.azure.set_faults()
    await scenario.until_done(uid)


async def test_an_interface_of_a_foreign_machine_waits_and_names_it_and_the_rest_goes_on(
    scenario: AzureScenario,
) -> None:
    await scenario.start()
    claim, other = scenario.name("a"), scenario.name("b")
    uid, free = await scenario.claimed(claim), await scenario.claimed(other)
    await scenario.nic(claim, vm="foreign")
    await scenario.azure.make(Vm(name="foreign", subscription=scenario.subscription, nics=(resource_name(claim),)))
    await scenario.nic(other)
    await asyncio.gather(scenario.unclaimed(claim), scenario.unclaimed(other))
    await scenario.until_done(free)
    # Where Azure has to refuse it is shown by the stories of machines that appear in the last moment.
    await scenario.until_told(claim, "microsoft.compute/virtualmachines/foreign")
    await scenario.stays("both are there", partial(_has, scenario, "foreign", claim), timedelta(milliseconds=400))
    await scenario.azure.remove("vm", "foreign", subscription=scenario.subscription)
    await scenario.until_done(uid)
    assert await scenario.names() == set()
    assert {one.name for one in await scenario.deletes()} == {resource_name(claim), resource_name(other)}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"resource_group": "mc_elsewhere"}, "ResourceGroupNotFound"),
        ({"subscription": "99999999-9999-4999-8999-999999999999"}, "SubscriptionNotFound"),
    ],
)
async def test_a_place_that_is_not_there_holds_with_words_and_is_never_taken_for_empty(
    scenario: AzureScenario, changes: dict[str, str], code: str
) -> None:
    scenario.document["azure"]["nodes"] = {SOURCE: [scenario.nodes(**changes)]}
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    await scenario.nic(claim)
    await scenario.unclaimed(claim)
    job = await scenario.until_told(claim, code, "azure.nodes", "says nothing about the resource", kind=VM)
    assert job.held
    record = await scenario.record(uid)
    assert record is not None
    assert (record.state, record.left) == ("running", record.jobs)
    assert await scenario.names() == {resource_name(claim)}


@pytest.mark.invariant(11)
async def test_a_machine_in_a_place_that_settings_do_not_name_is_held_before_anything_is_asked(
    scenario: AzureScenario,
) -> None:
    scenario.document["azure"]["nodes"] = {SOURCE: [scenario.nodes(resource_group="mc_other")]}
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.vm(claim)
    await scenario.unclaimed(claim)

    async def held() -> str:
        record = await scenario.record(uid)
        return record.held_why if record is not None else ""

    why = await scenario.until("it is held", held)
    assert GROUP in why
    assert "azure.nodes" in why
    assert await scenario.asked() == []


async def _has(scenario: AzureScenario, foreign: str, claim: str) -> bool:
    return {foreign, resource_name(claim)} <= await scenario.names()
