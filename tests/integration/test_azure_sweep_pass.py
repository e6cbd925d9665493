"""Passes of a sweep: resources without an owner in two passes, and for long enough, are published, and no others."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.kubernetes import KubernetesClient, ListPage, ServedResource
from service.settings import PolicySettings
from service.sources.karpenter_azure import NODECLAIMS
from tests.integration.azure_removal import SOURCE, azure, own_api, removing
from tests.integration.azure_sweep import AGE, AzureSweepFixture, by_claim, sweeping
from workers.collectors.karpenter_azure.collector import OrphanIds
from workers.sweeps.kept_owners import UnreadableRecord

__all__ = ["azure", "own_api", "removing", "sweeping"]


# ---- when it is told


async def test_an_orphan_is_published_once_after_two_passes_and_the_waiting_period(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    first = await sweeping.sweep()
    assert [(one.owner, one.passes, one.becomes) for one in first.orphans] == [(claim, 1, "waits")]
    await sweeping.jump(AGE - timedelta(seconds=30))
    assert (await sweeping.found())[claim].becomes == "waits"
    await sweeping.jump(timedelta(seconds=30))
    third = await sweeping.sweep()
    assert (third.published, by_claim(third)[claim].becomes, by_claim(third)[claim].passes) == (1, "told", 3)
    fourth = await sweeping.sweep()
    assert (fourth.published, fourth.known, by_claim(fourth)[claim].becomes) == (0, 1, "known")
    assert len(await sweeping.published()) == 1


async def test_one_pass_is_never_enough_however_long_ago(sweeping: AzureSweepFixture) -> None:
    sweeping.sweeps(age=timedelta(0))
    await sweeping.nic()
    assert (await sweeping.sweep()).published == 0
    assert (await sweeping.sweep()).published == 1


async def test_the_event_names_what_was_checked_and_has_background_priority(
    sweeping: AzureSweepFixture,
) -> None:
    claim = sweeping.cloud.name("a")
    vm = await sweeping.cloud.vm(f"aks-{claim}", nics=(f"aks-{claim}",))
    await sweeping.cloud.nic(f"aks-{claim}", vm=f"aks-{claim}")
    alone = await sweeping.nic("b")
    await sweeping.ripe()
    told = {view.name: view for view in (await sweeping.published()).values()}
    assert set(told) == {claim, alone}
    one = told[claim]
    assert (one.uid, one.reason, one.source, one.resource) == (sweeping.uid(claim), "orphan", SOURCE, NODECLAIMS)
    assert (one.urgent, one.cluster) == (False, sweeping.identity)
    seen = msgspec.json.decode(one.data, type=OrphanIds)
    assert (seen.subscription, seen.vm, seen.nic) == (sweeping.cloud.subscription, vm, "")
    assert msgspec.json.decode(told[alone].data, type=OrphanIds).nic


async def test_what_gets_an_owner_between_passes_begins_anew(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    await sweeping.sweep()
    await sweeping.jump(AGE)
    sweeping.cloud.claim(claim)
    assert (await sweeping.sweep()).found == 0
    assert await sweeping.sightings() == {}
    sweeping.cloud.unclaim(claim)
    assert (await sweeping.found())[claim].passes == 1
    sweeping.cloud.clear()


async def test_another_one_of_the_same_name_begins_anew(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    await sweeping.sweep()
    await sweeping.jump(AGE)
    name = f"aks-{claim}"
    await sweeping.cloud.azure.remove("nic", name, subscription=sweeping.cloud.subscription)
    await sweeping.nic()
    assert (await sweeping.found())[claim].passes == 1
    assert len(await sweeping.sightings()) == 1


async def test_a_dry_run_shows_what_would_be_published_and_writes_nothing(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    assert (await sweeping.found(rehearse=True))[claim].becomes == "waits"
    assert await sweeping.sightings() == {}
    await sweeping.sweep()
    await sweeping.jump(AGE)
    before = await sweeping.sightings(), await sweeping.hash(sweeping.installation.keys.of(0, f"source:{SOURCE}"))
    assert (await sweeping.found(rehearse=True))[claim].becomes == "would be told"
    after = await sweeping.sightings(), await sweeping.hash(sweeping.installation.keys.of(0, f"source:{SOURCE}"))
    assert after == before
    assert await sweeping.published() == {}


async def test_a_rehearsal_knows_what_is_under_way_and_what_stays_by_policy(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    await sweeping.ripe()
    found = await sweeping.sweep(rehearse=True)
    assert (by_claim(found)[claim].becomes, found.known, found.published) == ("known", 1, 0)
    later = await sweeping.nic("later")
    await sweeping.sweep()
    await sweeping.jump(AGE)
    for policy in (PolicySettings(deletion_policy="retain"), PolicySettings(paused=True)):
        sweeping.settings = msgspec.structs.replace(sweeping.settings, policy=policy)
        shown = await sweeping.found(rehearse=True)
        assert {name: one.becomes for name, one in shown.items()} == {claim: "known", later: "stays"}
    sweeping.settings = msgspec.structs.replace(sweeping.settings, policy=PolicySettings())
    assert (await sweeping.found(rehearse=True))[later].becomes == "would be told"
    assert len(await sweeping.published()) == 1


async def test_another_one_of_the_same_name_gets_no_deletion_of_its_own_while_one_is_open(
    sweeping: AzureSweepFixture,
) -> None:
    """And when that is over it gets the next round, for nothing has been done about it."""
    claim = await sweeping.nic()
    await sweeping.ripe()
    await sweeping.cloud.azure.remove("nic", f"aks-{claim}", subscription=sweeping.cloud.subscription)
    await sweeping.nic()
    swept = await sweeping.ripe()
    assert (swept.published, by_claim(swept)[claim].becomes) == (0, "known")
    await sweeping.cloud.azure.set_rate(100.0)
    await sweeping.work()
    # It was planned for the one that was judged first, and that is gone.
    await sweeping.until_state("done")
    assert await sweeping.cloud.names("nic") == {f"aks-{claim}"}
    await sweeping.sweep()
    await sweeping.until_state("done", 2)
    uid = sweeping.uid(claim)
    assert set(await sweeping.published()) == {f"{uid}/1", f"{uid}/2"}
    assert await sweeping.cloud.names("nic") == set()


async def test_many_orphans_are_published_in_steps_as_fast_as_they_are_planned(
    sweeping: AzureSweepFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.sweeps.orphan_events.PATIENCE", timedelta(milliseconds=100))
    await sweeping.installation.shards[0].pause("*", stop=True, who="test")
    await sweeping.cloud.azure.make(*sweeping.many(1203))
    # Nobody plans: what somebody waits for would stand behind all of them.
    swept = await sweeping.ripe()
    assert (swept.found, swept.published, swept.listed) == (1203, 500, 1203)
    assert len(await sweeping.sightings()) == 1203
    # However long a busy machine takes to plan them.
    monkeypatch.setattr("workers.sweeps.orphan_events.PATIENCE", timedelta(minutes=2))
    await sweeping.work()
    swept = await sweeping.sweep()
    assert (swept.published, swept.known) == (703, 500)


# ---- what is no orphan


async def test_what_has_an_owner_a_machine_or_another_cluster_is_none(sweeping: AzureSweepFixture) -> None:
    owned = await sweeping.nic("owned")
    sweeping.cloud.claim(owned, launched=False)
    await sweeping.nic("used", vm="somebody")
    await sweeping.nic("going", state="Deleting")
    await sweeping.nic("foreign", tags={"karpenter.azure.com_cluster": "staging", "karpenter.sh_nodepool": "x"})
    await sweeping.cloud.nic("k8s-unnamed")
    swept = await sweeping.sweep()
    assert (swept.found, swept.orphans) == (0, [])
    sweeping.cloud.unclaim(owned)


async def test_a_claim_that_comes_between_the_lists_is_seen(sweeping: AzureSweepFixture) -> None:
    """Candidates are listed first and signs of life last."""
    claim = await sweeping.nic()

    class ClaimCreatingPages(KubernetesClient):
        def pages(
            self, served: ServedResource, namespace: str | None, *words: Any, **how: Any
        ) -> AsyncGenerator[ListPage, None]:
            sweeping.cloud.claim(claim, launched=False)
            return super().pages(served, namespace, *words, **how)

    meddled = ClaimCreatingPages("here", sweeping.cluster._calls)
    assert (await sweeping.sweep(cluster=meddled)).found == 0
    sweeping.cloud.unclaim(claim)


@pytest.mark.parametrize("given", [{"kept": "retain: so"}, {"gone": 7}, {"held": "the CRD was replaced"}])
async def test_what_the_inventory_knows_of_is_its_own_deletions_or_stays(
    sweeping: AzureSweepFixture, given: dict[str, Any]
) -> None:
    claim = await sweeping.nic()
    other = await sweeping.nic("b")
    await sweeping.remember(claim, **given)
    assert set(by_claim(await sweeping.ripe())) == {other}


async def test_a_claim_whose_deletion_is_not_noticed_yet_is_left_to_the_watcher(sweeping: AzureSweepFixture) -> None:
    """Its marks may say that something stays, however long who watches is away."""
    claim = await sweeping.nic()
    uid = await sweeping.remember(claim, annotations={"knell.dev/deletion-policy": "retain"})
    assert (await sweeping.ripe()).found == 0
    await sweeping.inventory.remove([uid])
    assert set(await sweeping.found()) == {claim}


async def test_an_undecodable_record_may_be_about_kept_resources(sweeping: AzureSweepFixture) -> None:
    await sweeping.nic()
    await sweeping.client.hset(sweeping.inventory.records_key, "u", "{")
    with pytest.raises(UnreadableRecord, match="the inventory's record of uid u can't be read"):
        await sweeping.sweep()
    assert await sweeping.sightings() == {}


async def test_what_stays_is_forgotten_when_reads_of_it_say_that_nothing_is_left(sweeping: AzureSweepFixture) -> None:
    """A list that shows nothing of it is no proof, by whichever way."""
    there, gone = await sweeping.nic("there"), sweeping.cloud.name("gone")
    for claim in (there, gone):
        await sweeping.remember(claim, kept="retain: so", gone=7)
    lives = await sweeping.remember(sweeping.cloud.name("lives"), kept="out-of-scope: so")
    await sweeping.cloud.azure.behave(graph_omits=[f"aks-{there}"])
    await sweeping.sweep()
    kept = await sweeping.inventory.get_many([f"uid-{there}", f"uid-{gone}", lives])
    assert {one.name for one in kept.values()} == {there, sweeping.cloud.name("lives")}


@pytest.mark.parametrize("given", [{"state": "Deleting"}, {"vm": "somebody"}])
async def test_what_stays_is_not_forgotten_while_something_of_it_is_on_its_way(
    sweeping: AzureSweepFixture, given: dict[str, Any]
) -> None:
    """A delete may fail, and a machine may let go: then it would be an orphan of which nobody knows that it stays."""
    sweeping.sweeps(listing="provider")
    claim = await sweeping.nic(**given)
    await sweeping.remember(claim, kept="retain: so", gone=7)
    await sweeping.sweep()
    assert await sweeping.inventory.size() == 1
