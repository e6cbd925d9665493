"""Orphans found by sweeps without an event: deleted once orphaned in two passes and for long enough. Resources
that have an owner, had one in between, or are kept stay. Passes of the command are the same as those of workers."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.engine.views.deletions import DeletionView
from service.sources.azure import KEEP_TAG
from service.sources.karpenter_azure import AKS_MACHINE_TAG, CLUSTER_TAG, NODEPOOL_TAG, resource_name
from standins.azure import GROUP, Vm, id_of
from tests.scenarios.azure.azure_scenario import SOURCE, TAGS, VM, AzureScenario
from tests.scenarios.watch.service import KnellReplica

pytestmark = pytest.mark.long

AT_ONCE = "0s"
"""An age that everything has: what counts is the number of passes."""


async def test_an_orphan_goes_after_two_passes_in_the_background_and_an_attached_one_with_its_machine(
    scenario: AzureScenario,
) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    nic, machine = scenario.name("a"), scenario.name("b")
    await scenario.nic(nic)
    await scenario.vm(machine)
    await scenario.start()
    first = await scenario.sweep()
    assert {(one["claim"], one["becomes"]) for one in first["orphans"]} == {(nic, "waits"), (machine, "waits")}
    assert await scenario.deletions() == []
    second = await scenario.sweep()
    assert {(one["claim"], one["becomes"]) for one in second["orphans"]} == {(nic, "told"), (machine, "told")}
    await scenario.until_gone(nic, machine)
    found = await _all_done(scenario, 2)
    assert {(one.reason, one.urgent) for one in found} == {("orphan", False)}
    assert sorted(one.operation for one in await scenario.deletes()) == ["nic.delete", "vm.delete"]


async def test_a_rehearsal_shows_what_would_go_and_writes_nothing(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.nic(claim)
    await scenario.start()
    assert (await scenario.sweep("--dry-run"))["orphans"][0]["becomes"] == "waits"
    assert await scenario.orphans.size() == 0
    await scenario.sweep()
    assert (await scenario.sweep("--dry-run"))["orphans"][0]["becomes"] == "would be told"
    assert await scenario.deletions() == []
    assert await scenario.names() == {resource_name(claim)}


async def test_an_orphan_must_be_one_for_its_age_which_a_restart_does_not_begin_anew(scenario: AzureScenario) -> None:
    scenario.sweeping(age="4s")
    claim = scenario.name("a")
    await scenario.nic(claim)
    service = await scenario.start()

    firsts: set[int] = set()

    async def seen_twice() -> bool:
        known = await scenario.sighting(claim)
        if known is not None:
            firsts.add(known.first)
        return known is not None and known.passes >= 2

    async def told() -> list[DeletionView]:
        await seen_twice()
        return await scenario.deletions()

    await scenario.until("it was seen twice", seen_twice)
    await service.stop()
    await scenario.start()
    (record,) = await scenario.until("it is published", told)
    (first,) = firsts
    assert record.published_at.timestamp() * 1000 - first >= 4000
    await scenario.until_gone(claim)


async def test_what_comes_to_life_in_between_is_forgotten_and_counts_anew(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.nic(claim)
    assert len((await scenario.sweep())["orphans"]) == 1
    await asyncio.to_thread(scenario.claim, claim)
    assert (await scenario.sweep())["orphans"] == []
    assert await scenario.orphans.size() == 0
    await scenario.unclaimed(claim)
    (again,) = (await scenario.sweep())["orphans"]
    assert (again["passes"], again["becomes"]) == (1, "waits")
    assert await scenario.deletions() == []


@pytest.mark.parametrize("listing", ["graph", "provider"])
async def test_a_claim_that_lives_protects_what_has_its_name_in_whatever_case(
    scenario: AzureScenario, listing: str
) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE, listing=listing)
    alive, dead = scenario.name("a"), scenario.name("b")
    for claim in (alive, dead):
        name = resource_name(claim).upper()
        await scenario.nic(claim, name=name)
    await asyncio.to_thread(partial(scenario.claim, alive, launched=False))
    await scenario.start()
    for _ in range(2):
        found = await scenario.sweep()
        assert {one["claim"] for one in found["orphans"]} == {dead}
    (record,) = await _all_done(scenario, 1)
    assert record.name == dead
    assert await scenario.names() == {resource_name(alive).upper()}


async def test_resources_of_others_or_without_tags_are_not_listed(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    others = {
        "foreign": {CLUSTER_TAG: "staging", NODEPOOL_TAG: "default"},
        "untagged": {},
        "aks": {**TAGS, AKS_MACHINE_TAG: "somebody"},
        "cased": {CLUSTER_TAG: "PROD", NODEPOOL_TAG: "default"},
    }
    for suffix, tags in others.items():
        await scenario.nic(scenario.name(suffix), tags=tags)
    await scenario.nic(scenario.name("other"), name="not-named-by-karpenter")
    await scenario.nic(scenario.name("ours"))
    await scenario.start()
    for _ in range(2):
        assert {one["claim"] for one in (await scenario.sweep())["orphans"]} == {scenario.name("ours")}
    await _all_done(scenario, 1)
    assert await scenario.names() == {*(resource_name(scenario.name(one)) for one in others), "not-named-by-karpenter"}
    assert await scenario.orphans.size() == 1


async def test_a_tag_that_says_so_keeps_an_orphan_until_it_is_taken_off(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    guid = await scenario.nic(claim, tags={**TAGS, KEEP_TAG: "true"})
    await scenario.start()
    for _ in range(2):
        await scenario.sweep()
    assert (await scenario.until_told(claim, KEEP_TAG)).held
    assert await scenario.deletes() == []
    await scenario.nic(claim, guid=guid)
    await scenario.until_gone(claim)


async def test_an_orphaned_machine_whose_node_is_ready_is_held(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.vm(claim)
    node = await asyncio.to_thread(scenario.node, claim)
    await scenario.start()
    for _ in range(2):
        await scenario.sweep()
    assert (await scenario.until_told(claim, f"Node {node}", kind=VM)).held
    assert await scenario.deletes() == []
    await asyncio.to_thread(scenario.unnode, node)
    await scenario.until_gone(claim)


async def test_leftovers_of_a_deleted_claim_belong_to_its_own_deletion_and_are_not_published_twice(
    scenario: AzureScenario,
) -> None:
    scenario.sweeping(age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.start()
    uid = await scenario.claimed(claim)
    await scenario.nic(claim)
    await scenario.azure.behave(locks=(resource_name(claim),))
    await scenario.unclaimed(claim)
    await scenario.until_told(claim, "ScopeLocked")
    await scenario.passes(3)
    assert [one.uid for one in await scenario.deletions()] == [uid]
    await scenario.azure.behave(locks=())
    await scenario.until_done(uid)
    await scenario.passes(2)
    assert [one.uid for one in await scenario.deletions()] == [uid]
    assert await scenario.names() == set()


@pytest.mark.parametrize(
    "marks", [{"knell.dev/deletion-policy": "retain"}, {"knell.dev/gc": "disabled"}], ids=["retained", "opted out"]
)
async def test_what_is_meant_to_stay_after_its_claim_is_not_swept_either(
    scenario: AzureScenario, marks: dict[str, str]
) -> None:
    scenario.sweeping(age=AT_ONCE)
    kept, other = scenario.name("a"), scenario.name("b")
    service = await scenario.start()
    await scenario.claimed(kept, launched=False, annotations=marks)
    await scenario.nic(kept)
    await scenario.unclaimed(kept)
    await scenario.passes(3)
    # Neither by another process, which lists all anew.
    await service.stop()
    await scenario.start()
    await scenario.nic(other)
    await scenario.until_gone(other)
    await scenario.passes(3)
    assert await scenario.names() == {resource_name(kept)}
    assert {one.name for one in await scenario.deletes()} == {resource_name(other)}


async def test_a_machine_that_appears_while_its_interface_waits_keeps_it_and_is_swept_itself_in_its_time(
    scenario: AzureScenario,
) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    name = resource_name(claim)
    await scenario.azure.behave(refusal_renews=True)
    guid = await scenario.nic(claim)
    await scenario.trouble("gate", "nic.delete")
    await scenario.start()
    for _ in range(2):
        await scenario.sweep()
    await scenario.until_reserved(claim, guid, 10)
    await scenario.until_told(claim, "NicReservedForAnotherVm")
    await scenario.azure.make(Vm(name=name, tags=TAGS, subscription=scenario.subscription, nics=(name,)))
    await scenario.until_told(claim, f"virtual machine {name}")
    await scenario.stays("both are there", partial(_has, scenario, "vm", "nic"), timedelta(milliseconds=400))
    (seen,) = (await scenario.sweep())["orphans"]
    assert ("machine" in seen["what"], seen["passes"], seen["becomes"]) == (True, 1, "waits")
    await scenario.sweep()
    await scenario.until_gone(claim)
    *refused, last = [(one.operation, one.code) for one in await scenario.deletes()]
    assert set(refused) == {("nic.delete", "NicReservedForAnotherVm")}
    assert last == ("vm.delete", "")


async def test_a_claim_that_comes_to_life_while_an_orphans_job_waits_withdraws_it(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.azure.behave(refusal_renews=True)
    guid = await scenario.nic(claim)
    await scenario.trouble("gate", "nic.delete")
    await scenario.start()
    for _ in range(2):
        await scenario.sweep()
    await scenario.until_reserved(claim, guid, 10)
    await scenario.until_told(claim, "NicReservedForAnotherVm")
    await scenario.claimed(claim)
    (record,) = await _all_done(scenario, 1)
    assert "lives" in record.withdrawn
    assert await scenario.names() == {resource_name(claim)}
    assert {one.code for one in await scenario.deletes()} == {"NicReservedForAnotherVm"}


async def test_what_a_person_gave_up_is_not_brought_up_again(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.nic(claim)
    await scenario.azure.behave(locks=(id_of(scenario.subscription, GROUP, "nic", resource_name(claim)),))
    await scenario.start()
    for _ in range(2):
        await scenario.sweep()
    job = await scenario.until_told(claim, "ScopeLocked")
    await asyncio.to_thread(scenario.knell, "jobs", "abandon", job.id, "--yes")
    await _all_done(scenario, 1)
    await scenario.azure.behave(locks=())
    for _ in range(2):
        await scenario.sweep()
    (seen,) = (await scenario.sweep())["orphans"]
    assert seen["becomes"] == "left"
    assert len(await scenario.deletions()) == 1
    assert await scenario.names() == {resource_name(claim)}


async def test_one_replica_sweeps_and_another_takes_over_when_it_is_killed(scenario: AzureScenario) -> None:
    scenario.sweeping(every="200ms", age="1h")
    # Long enough for a holder that a busy machine has wait.
    scenario.document["watch"]["lease"] = "8s"
    replicas = [scenario.launch("work"), scenario.launch("work")]
    for replica in replicas:
        await replica.until_ready()
    await scenario.passes(5)
    sweeping = [replica for replica in replicas if _swept(replica)]
    assert len(sweeping) == 1
    (other,) = (replica for replica in replicas if replica not in sweeping)
    sweeping[0].kill()
    await scenario.until("the other one sweeps", partial(_swept, other))


def _swept(replica: KnellReplica) -> bool:
    """Whether it has made a pass."""
    return bool(replica.process.said("swept"))


async def _has(scenario: AzureScenario, *kinds: str) -> bool:
    return {one.kind for one in await scenario.there()} == set(kinds)


async def _all_done(scenario: AzureScenario, number: int) -> list[DeletionView]:
    """So many deletions there are, all of them over."""

    async def look() -> list[DeletionView]:
        found = await scenario.deletions()
        return found if [one.state for one in found] == ["done"] * number else []

    found: list[DeletionView] = await scenario.until(f"{number} deletions of {SOURCE} are done", look)
    return found
