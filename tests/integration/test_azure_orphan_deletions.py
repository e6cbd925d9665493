"""Deletion of an orphan that a sweep published: a worker checks everything again, and so does the next pass."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from service.contract import Event
from service.engine.guard import Guard
from service.settings import GuardSettings
from service.sources.karpenter_azure import NODECLAIMS
from tests.integration.azure_removal import SOURCE, TAGS, azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, by_claim, sweeping
from tests.integration.command_line import knell
from workers.collectors.karpenter_azure.collector import OrphanIds
from workers.providers.azure.kinds import NIC

__all__ = ["azure", "own_api", "removing", "sweeping"]

QUICK = 100.0


@pytest.fixture(autouse=True)
async def clock(sweeping: AzureSweepFixture) -> None:
    """What takes Azure ten seconds is done in a tenth of one."""
    await sweeping.cloud.azure.set_rate(QUICK)


async def test_a_machine_and_all_that_it_has_goes(sweeping: AzureSweepFixture) -> None:
    name = f"aks-{sweeping.cloud.name('a')}"
    await sweeping.cloud.vm(name, nics=(name,))
    await sweeping.cloud.nic(name, vm=name)
    await sweeping.cloud.disk(name)
    await sweeping.work()
    assert (await sweeping.ripe()).published == 1
    await sweeping.until_state("done")
    assert await sweeping.cloud.names() == set()


async def test_an_interface_goes_by_one_delete_and_a_look_before_and_after(sweeping: AzureSweepFixture) -> None:
    await sweeping.nic()
    await sweeping.ripe()
    sweeping.cloud.since = len(await sweeping.cloud.azure.journal())
    await sweeping.work()
    await sweeping.until_state("done")
    assert await sweeping.cloud.names() == set()
    machine, interface, removal, *looks = await sweeping.cloud.asked()
    assert (machine, interface, removal) == ("vm.get", "nic.get", "nic.delete")
    # One look, where Azure is done by then.
    assert set(looks) == {"nic.get"}


async def test_what_comes_to_life_before_its_turn_stays(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    await sweeping.ripe()
    sweeping.cloud.claim(claim, launched=False)
    await sweeping.work()
    (done,) = await sweeping.until_state("done")
    assert "lives, so that what has its name is no orphan" in done.policy
    assert await sweeping.cloud.names() == {f"aks-{claim}"}
    sweeping.cloud.unclaim(claim)


async def test_what_comes_to_life_between_plan_and_call_stays(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    shard = sweeping.installation.shards[0]
    await shard.pause("*", stop=True, who="test")
    await sweeping.ripe()
    await sweeping.work()

    async def planned() -> bool:
        return all(view.planned_at is not None for view in (await sweeping.published()).values())

    await sweeping.until("it is planned", planned)
    sweeping.cloud.claim(claim, launched=False)
    await shard.pause("*", stop=False, who="test")
    (done,) = await sweeping.until_state("done")
    assert "lives, so that what has its name is no orphan" in done.withdrawn
    assert await sweeping.cloud.names() == {f"aks-{claim}"}
    # Something spoke for it then; when nothing does any more, it is a new reason to act.
    sweeping.cloud.unclaim(claim)
    sweeping.sweeps(listing="provider")
    await sweeping.ripe()
    await sweeping.until_state("done", 2)
    assert await sweeping.cloud.names() == set()


async def test_a_source_that_chooses_its_objects_has_its_orphans_held(sweeping: AzureSweepFixture) -> None:
    await sweeping.nic()
    await sweeping.ripe()
    sweeping.source(selector="team=a")
    await sweeping.work()
    (held,) = await sweeping.until_state("held")
    assert "chooses by selector" in held.held_why
    assert len(await sweeping.cloud.names()) == 1


@pytest.mark.invariant(1)
async def test_an_orphan_is_held_while_the_name_of_its_cluster_leads_to_another(sweeping: AzureSweepFixture) -> None:
    """There the NodeClaim is missing, too, whatever is alive in its own cluster."""
    await sweeping.nic()
    await sweeping.ripe()
    (name,) = sweeping.settings.clusters
    await sweeping.client.hset(sweeping.installation.keys.of(0, "clusters"), name, "the-one-before")
    await sweeping.work()
    (held,) = await sweeping.until_state("held")
    assert "has always had uid the-one-before" in held.held_why
    assert len(await sweeping.cloud.names()) == 1


async def test_an_orphan_of_a_source_that_is_not_swept_is_held(sweeping: AzureSweepFixture) -> None:
    """An event is a hint: a forged one moves nothing."""
    sweeping.source(collector="none")
    data = OrphanIds(subscription=sweeping.cloud.subscription, group="any", nic="n")
    forged = Event(
        cluster=sweeping.identity, resource=NODECLAIMS, uid="nic-n", name="a", source=SOURCE, reason="orphan",
        data=msgspec.json.encode(data).decode(),
    )  # fmt: skip
    await sweeping.publish(forged)
    await sweeping.work()
    (held,) = await sweeping.until_state("held")
    assert "which has no sweep" in held.held_why


# ---- the next passes


async def test_rows_of_what_was_proven_gone_are_a_lag(sweeping: AzureSweepFixture) -> None:
    await sweeping.nic()
    await sweeping.ripe()
    # Seen, and from now on Resource Graph learns of nothing.
    await sweeping.cloud.azure.behave(graph_lag=100_000.0)
    await sweeping.work()
    await sweeping.until_state("done")
    # What comes now it shows at once. Two lists of one pass are still one pass.
    await sweeping.cloud.azure.behave(graph_lag=0.0)
    sweeping.sweeps(age=timedelta(0))
    claim = await sweeping.nic("new")
    swept = await sweeping.sweep()
    assert (swept.method, swept.found, swept.published) == ("provider", 1, 0)
    assert by_claim(swept)[claim].passes == 1
    assert len(await sweeping.published()) == 1


async def test_what_a_current_list_shows_after_its_deletion_ended_is_published_again(
    sweeping: AzureSweepFixture,
) -> None:
    guid = "0aaaaaaa-0000-4000-8000-000000000009"
    claim = await sweeping.nic(guid=guid)
    await sweeping.ripe()
    await sweeping.work()
    await sweeping.until_state("done")
    await sweeping.nic(guid=guid)
    swept = await sweeping.sweep()
    assert (swept.method, swept.published, by_claim(swept)[claim].becomes) == ("provider", 1, "told")
    uid = sweeping.uid(claim)
    assert set(await sweeping.published()) == {f"{uid}/1", f"{uid}/2"}
    assert (await sweeping.sightings())[uid].round == 2
    await sweeping.until_state("done", 2)
    assert await sweeping.cloud.names() == set()
    # And what was told as the second round is not told as the first again.
    await sweeping.sweep()
    assert len(await sweeping.published()) == 2


async def given_up(sweeping: AzureSweepFixture) -> str:
    """An interface whose deletion a person dropped; answers the claim's name."""
    claim = await sweeping.nic(tags={**TAGS, "knell.dev_prevent-delete": "true"})
    sweeping.source(selector="team=a")
    await sweeping.work()
    sweeping.source(selector="")
    await sweeping.ripe()

    async def dropped() -> bool:
        # It is planned anew now and then, and is not held meanwhile.
        (held,) = await sweeping.until_state("held")
        return (await knell(sweeping, "held", "drop", f"deletion:{held.id}", "--yes")).code == 0

    await sweeping.until("it is dropped", dropped)
    return claim


async def test_what_a_person_gave_up_is_left(sweeping: AzureSweepFixture) -> None:
    claim = await given_up(sweeping)
    for listing in ("graph", "provider", "graph"):
        sweeping.sweeps(listing=listing)
        swept = await sweeping.sweep()
        assert (swept.published, by_claim(swept)[claim].becomes) == (0, "left")
    assert len(await sweeping.published()) == 1


async def test_another_one_of_the_name_of_what_a_person_gave_up_is_not_left(sweeping: AzureSweepFixture) -> None:
    claim = await given_up(sweeping)
    await sweeping.nic()
    swept = await sweeping.ripe()
    assert (swept.published, by_claim(swept)[claim].becomes) == (1, "told")
    uid = sweeping.uid(claim)
    assert set(await sweeping.published()) == {f"{uid}/1", f"{uid}/2"}


async def test_one_that_cannot_be_deleted_yet_is_known_and_not_published_again(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic(tags={**TAGS, "knell.dev_prevent-delete": "true"})
    await sweeping.ripe()
    await sweeping.work()
    (one,) = (await sweeping.published()).values()
    await sweeping.until_refused(one, NIC)
    swept = await sweeping.sweep()
    assert (swept.published, swept.known, by_claim(swept)[claim].becomes) == (0, 1, "known")
    assert await sweeping.cloud.names() == {f"aks-{claim}"}


# ---- the guard


async def test_many_orphans_are_held_by_a_guard_of_their_own_until_an_operator_releases_it(
    sweeping: AzureSweepFixture,
) -> None:
    sweeping.source(guard=GuardSettings(most=2, percent=100))
    for number in range(5):
        await sweeping.nic(str(number))
    assert (await sweeping.ripe()).published == 5
    await sweeping.work()
    held = await sweeping.until_state("held", 3)
    await sweeping.until_state("done", 2)
    assert all(view.held_why.startswith("guard: more than 2 deletions of source nodeclaims.orphans") for view in held)
    assert len(await sweeping.cloud.names()) == 3
    guards = {view.source: view for view in await Guard(sweeping.install()).status()}
    assert (guards[f"{SOURCE}.orphans"].held, guards[f"{SOURCE}.orphans"].limit) == (3, 2)
    # The source's own has neither counted nor held any of it.
    assert (guards[SOURCE].tripped, guards[SOURCE].counted, guards[SOURCE].held) == (None, 0, 0)
    assert await Guard(sweeping.installation).held(SOURCE) == []
    answer = await knell(sweeping, "guard", "release", f"{SOURCE}.orphans", "--yes")
    # How many the command itself planned again depends on how many a planner took up before it.
    assert (answer.code, "orphans is released" in answer.out) == (0, True), answer
    await sweeping.until_state("done", 5)
    assert await sweeping.cloud.names() == set()


async def test_resources_of_a_deleted_claim_are_removed_while_orphans_are_held(sweeping: AzureSweepFixture) -> None:
    sweeping.source(guard=GuardSettings(most=1, percent=100))
    for number in range(3):
        await sweeping.nic(str(number))
    await sweeping.ripe()
    await sweeping.work()
    await sweeping.until_state("held", 2)
    claim = await sweeping.nic("deleted")
    uid = await sweeping.remember(claim, gone=1, at=1, data='{"group":"karpenter.azure.com"}')
    await sweeping.publish(Event(cluster=sweeping.identity, resource=NODECLAIMS, uid=uid, name=claim, source=SOURCE))
    await sweeping.until_state("done", 2)
    assert f"aks-{claim}" not in await sweeping.cloud.names()
    assert await Guard(sweeping.installation).held(SOURCE) == []


async def test_a_source_that_is_dropped_leaves_nothing_under_its_orphans_name(sweeping: AzureSweepFixture) -> None:
    sweeping.source(guard=GuardSettings(most=1, percent=100))
    for number in range(2):
        await sweeping.nic(str(number))
    await sweeping.ripe()
    await sweeping.work()
    await sweeping.until_state("held")

    async def listed() -> set[str]:
        """Without the settings that declared it."""
        answer = await knell(sweeping, "sources", "list", "--output", "json")
        assert answer.code == 0, answer.err
        return {one["name"] for one in answer.json["sources"]}

    assert SOURCE in await listed()
    await asyncio.gather(*(one.crash() for one in sweeping.running))
    answer = await knell(sweeping, "sources", "drop", SOURCE, "--yes")
    assert answer.code == 0, answer.err
    assert await listed() == set()


# ---- what is to stay


async def test_what_an_object_said_stays_is_remembered_when_its_deletion_is_over(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    marks = {"knell.dev/deletion-policy": "retain"}
    uid = await sweeping.remember(claim, gone=1, at=1, annotations=marks)
    one = Event(cluster=sweeping.identity, resource=NODECLAIMS, uid=uid, name=claim, source=SOURCE)
    await sweeping.publish(one)
    await sweeping.work()
    await sweeping.until_done(one)
    record = await sweeping.inventory.get(uid)
    assert record is not None
    assert record.kept.startswith("retain: ")
    assert (await sweeping.ripe()).found == 0
    assert await sweeping.cloud.names() == {f"aks-{claim}"}
    # When nothing is left of it, nobody need remember.
    await sweeping.cloud.azure.remove("nic", f"aks-{claim}", subscription=sweeping.cloud.subscription)
    sweeping.sweeps(listing="provider")
    await sweeping.sweep()
    assert await sweeping.inventory.size() == 0


async def test_what_went_with_its_object_is_forgotten(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    uid = await sweeping.remember(claim, gone=1, at=1)
    one = Event(cluster=sweeping.identity, resource=NODECLAIMS, uid=uid, name=claim, source=SOURCE)
    await sweeping.publish(one)
    await sweeping.work()
    await sweeping.until_done(one)
    assert await sweeping.inventory.get(uid) is None
    assert await sweeping.cloud.names() == set()
