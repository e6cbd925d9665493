"""What no event told is found by sweeps: it goes once it was orphaned in two passes and for long enough, and nothing
goes that has an owner, had one in between, or was meant to stay. Passes by hand are as those that workers make."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.contract.azure import AKS_MACHINE_TAG, CLUSTER_TAG, KEEP_TAG, NODEPOOL_TAG, resource_name
from service.engine.views.deletions import DeletionView
from standins.azure import GROUP, Vm, id_of
from tests.scenarios.azure.stage import SOURCE, TAGS, VM, Stage
from tests.scenarios.watch.service import Replica

AT_ONCE = "0s"
"""An age that everything has: what counts is the number of passes."""


async def test_an_orphan_goes_after_two_passes_in_the_background_and_an_attached_one_with_its_machine(
    stage: Stage,
) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    nic, machine = stage.name("a"), stage.name("b")
    await stage.nic(nic)
    await stage.vm(machine)
    await stage.start()
    first = await stage.sweep()
    assert {(one["claim"], one["becomes"]) for one in first["orphans"]} == {(nic, "waits"), (machine, "waits")}
    assert await stage.deletions() == []
    second = await stage.sweep()
    assert {(one["claim"], one["becomes"]) for one in second["orphans"]} == {(nic, "told"), (machine, "told")}
    await stage.until_gone(nic, machine)
    found = await _all_done(stage, 2)
    assert {(one.reason, one.urgent) for one in found} == {("orphan", False)}
    assert sorted(one.operation for one in await stage.deletes()) == ["nic.delete", "vm.delete"]


async def test_a_rehearsal_shows_what_would_go_and_writes_nothing(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    await stage.nic(claim)
    await stage.start()
    assert (await stage.sweep("--dry-run"))["orphans"][0]["becomes"] == "waits"
    assert await stage.orphans.size() == 0
    await stage.sweep()
    assert (await stage.sweep("--dry-run"))["orphans"][0]["becomes"] == "would be told"
    assert await stage.deletions() == []
    assert await stage.names() == {resource_name(claim)}


@pytest.mark.long
async def test_an_orphan_must_be_one_for_its_age_which_a_restart_does_not_begin_anew(stage: Stage) -> None:
    stage.sweeping(age="4s")
    claim = stage.name("a")
    await stage.nic(claim)
    service = await stage.start()

    firsts: set[int] = set()

    async def seen_twice() -> bool:
        known = await stage.sighting(claim)
        if known is not None:
            firsts.add(known.first)
        return known is not None and known.passes >= 2

    async def told() -> list[DeletionView]:
        await seen_twice()
        return await stage.deletions()

    await stage.until("it was seen twice", seen_twice)
    await service.stop()
    await stage.start()
    (record,) = await stage.until("it is told", told)
    (first,) = firsts
    assert record.published_at.timestamp() * 1000 - first >= 4000
    await stage.until_gone(claim)


async def test_what_comes_to_life_in_between_is_forgotten_and_counts_anew(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    await stage.nic(claim)
    assert len((await stage.sweep())["orphans"]) == 1
    await asyncio.to_thread(stage.claim, claim)
    assert (await stage.sweep())["orphans"] == []
    assert await stage.orphans.size() == 0
    await stage.unclaimed(claim)
    (again,) = (await stage.sweep())["orphans"]
    assert (again["passes"], again["becomes"]) == (1, "waits")
    assert await stage.deletions() == []


@pytest.mark.parametrize("listing", ["graph", "provider"])
async def test_a_claim_that_lives_protects_what_has_its_name_in_whatever_case(stage: Stage, listing: str) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE, listing=listing)
    alive, dead = stage.name("a"), stage.name("b")
    for claim in (alive, dead):
        name = resource_name(claim).upper()
        await stage.nic(claim, name=name)
    await asyncio.to_thread(partial(stage.claim, alive, launched=False))
    await stage.start()
    for _ in range(2):
        found = await stage.sweep()
        assert {one["claim"] for one in found["orphans"]} == {dead}
    (record,) = await _all_done(stage, 1)
    assert record.name == dead
    assert await stage.names() == {resource_name(alive).upper()}


async def test_what_is_somebody_elses_or_untagged_is_not_even_seen(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    others = {
        "foreign": {CLUSTER_TAG: "staging", NODEPOOL_TAG: "default"},
        "untagged": {},
        "aks": {**TAGS, AKS_MACHINE_TAG: "somebody"},
        "cased": {CLUSTER_TAG: "PROD", NODEPOOL_TAG: "default"},
    }
    for suffix, tags in others.items():
        await stage.nic(stage.name(suffix), tags=tags)
    await stage.nic(stage.name("other"), name="not-named-by-karpenter")
    await stage.nic(stage.name("ours"))
    await stage.start()
    for _ in range(2):
        assert {one["claim"] for one in (await stage.sweep())["orphans"]} == {stage.name("ours")}
    await _all_done(stage, 1)
    assert await stage.names() == {*(resource_name(stage.name(one)) for one in others), "not-named-by-karpenter"}
    assert await stage.orphans.size() == 1


async def test_a_tag_that_says_so_keeps_an_orphan_until_it_is_taken_off(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    guid = await stage.nic(claim, tags={**TAGS, KEEP_TAG: "true"})
    await stage.start()
    for _ in range(2):
        await stage.sweep()
    assert (await stage.until_told(claim, KEEP_TAG)).held
    assert await stage.deletes() == []
    await stage.nic(claim, guid=guid)
    await stage.until_gone(claim)


async def test_an_orphaned_machine_whose_node_is_ready_is_held(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    await stage.vm(claim)
    node = await asyncio.to_thread(stage.node, claim)
    await stage.start()
    for _ in range(2):
        await stage.sweep()
    assert (await stage.until_told(claim, f"Node {node}", kind=VM)).held
    assert await stage.deletes() == []
    await asyncio.to_thread(stage.unnode, node)
    await stage.until_gone(claim)


async def test_what_a_gone_claim_left_is_its_own_deletions_and_is_not_told_twice(stage: Stage) -> None:
    stage.sweeping(age=AT_ONCE)
    claim = stage.name("a")
    await stage.start()
    uid = await stage.claimed(claim)
    await stage.nic(claim)
    await stage.azure.behave(locks=(resource_name(claim),))
    await stage.unclaimed(claim)
    await stage.until_told(claim, "ScopeLocked")
    await stage.passes(3)
    assert [one.uid for one in await stage.deletions()] == [uid]
    await stage.azure.behave(locks=())
    await stage.until_done(uid)
    await stage.passes(2)
    assert [one.uid for one in await stage.deletions()] == [uid]
    assert await stage.names() == set()


@pytest.mark.parametrize(
    "marks", [{"knell.dev/deletion-policy": "retain"}, {"knell.dev/gc": "disabled"}], ids=["retained", "opted out"]
)
async def test_what_is_meant_to_stay_after_its_claim_is_not_swept_either(stage: Stage, marks: dict[str, str]) -> None:
    stage.sweeping(age=AT_ONCE)
    kept, other = stage.name("a"), stage.name("b")
    service = await stage.start()
    await stage.claimed(kept, launched=False, annotations=marks)
    await stage.nic(kept)
    await stage.unclaimed(kept)
    await stage.passes(3)
    # Neither by another process, which lists all anew.
    await service.stop()
    await stage.start()
    await stage.nic(other)
    await stage.until_gone(other)
    await stage.passes(3)
    assert await stage.names() == {resource_name(kept)}
    assert {one.name for one in await stage.deletes()} == {resource_name(other)}


async def test_a_machine_that_appears_while_its_interface_waits_keeps_it_and_is_swept_itself_in_its_time(
    stage: Stage,
) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    name = resource_name(claim)
    await stage.azure.behave(refusal_renews=True)
    guid = await stage.nic(claim)
    await stage.trouble("gate", "nic.delete")
    await stage.start()
    for _ in range(2):
        await stage.sweep()
    await stage.until_reserved(claim, guid, 10)
    await stage.until_told(claim, "NicReservedForAnotherVm")
    await stage.azure.make(Vm(name=name, tags=TAGS, subscription=stage.subscription, nics=(name,)))
    await stage.until_told(claim, f"virtual machine {name}")
    await stage.stays("both are there", partial(_has, stage, "vm", "nic"), timedelta(milliseconds=400))
    (seen,) = (await stage.sweep())["orphans"]
    assert ("machine" in seen["what"], seen["passes"], seen["becomes"]) == (True, 1, "waits")
    await stage.sweep()
    await stage.until_gone(claim)
    *refused, last = [(one.operation, one.code) for one in await stage.deletes()]
    assert set(refused) == {("nic.delete", "NicReservedForAnotherVm")}
    assert last == ("vm.delete", "")


async def test_a_claim_that_comes_to_life_while_an_orphans_job_waits_withdraws_it(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    await stage.azure.behave(refusal_renews=True)
    guid = await stage.nic(claim)
    await stage.trouble("gate", "nic.delete")
    await stage.start()
    for _ in range(2):
        await stage.sweep()
    await stage.until_reserved(claim, guid, 10)
    await stage.until_told(claim, "NicReservedForAnotherVm")
    await stage.claimed(claim)
    (record,) = await _all_done(stage, 1)
    assert "lives" in record.withdrawn
    assert await stage.names() == {resource_name(claim)}
    assert {one.code for one in await stage.deletes()} == {"NicReservedForAnotherVm"}


async def test_what_a_person_gave_up_is_not_brought_up_again(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    await stage.nic(claim)
    await stage.azure.behave(locks=(id_of(stage.subscription, GROUP, "nic", resource_name(claim)),))
    await stage.start()
    for _ in range(2):
        await stage.sweep()
    job = await stage.until_told(claim, "ScopeLocked")
    await asyncio.to_thread(stage.knell, "jobs", "abandon", job.id, "--yes")
    await _all_done(stage, 1)
    await stage.azure.behave(locks=())
    for _ in range(2):
        await stage.sweep()
    (seen,) = (await stage.sweep())["orphans"]
    assert seen["becomes"] == "left"
    assert len(await stage.deletions()) == 1
    assert await stage.names() == {resource_name(claim)}


@pytest.mark.long
async def test_one_replica_sweeps_and_another_takes_over_when_it_is_killed(stage: Stage) -> None:
    stage.sweeping(every="200ms", age="1h")
    # Long enough for a holder that a busy machine has wait.
    stage.document["watch"]["lease"] = "8s"
    replicas = [stage.launch("work"), stage.launch("work")]
    for replica in replicas:
        await replica.until_ready()
    await stage.passes(5)
    sweeping = [replica for replica in replicas if _swept(replica)]
    assert len(sweeping) == 1
    (other,) = (replica for replica in replicas if replica not in sweeping)
    sweeping[0].kill()
    await stage.until("the other one sweeps", partial(_swept, other))


def _swept(replica: Replica) -> bool:
    """Whether it has made a pass."""
    return bool(replica.process.said("swept"))


async def _has(stage: Stage, *kinds: str) -> bool:
    return {one.kind for one in await stage.there()} == set(kinds)


async def _all_done(stage: Stage, number: int) -> list[DeletionView]:
    """So many deletions there are, all of them over."""

    async def look() -> list[DeletionView]:
        found = await stage.deletions()
        return found if [one.state for one in found] == ["done"] * number else []

    found: list[DeletionView] = await stage.until(f"{number} deletions of {SOURCE} are done", look)
    return found
