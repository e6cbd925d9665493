"""Passes of a sweep that can't read everything publish nothing; if Resource Graph is unusable, the providers' lists are
used."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.kubernetes import ClusterError, KubernetesClient, ListPage, Unreadable, connect
from service.settings import PolicySettings
from standins.azure import GROUP, AzureFault
from standins.kubernetes_api import EmbeddedApi
from tests.api_servers import TestApi
from tests.integration.azure_removal import azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, by_claim, sweeping
from tests.karpenter import NODECLAIMS as CRD
from tests.karpenter import install
from workers.handlers.orphans import ListingFailed
from workers.providers.azure.errors import AzureError
from workers.sweeps.sweep_pass import SweepAborted

__all__ = ["azure", "own_api", "removing", "sweeping"]


def azure_error(failed: ListingFailed) -> AzureError:
    assert isinstance(failed.__cause__, AzureError)
    return failed.__cause__


# ---- when nothing is known


@pytest.mark.parametrize(
    "fault", [AzureFault(what="throttle"), AzureFault(what="html", status=200), AzureFault(what="close")]
)
@pytest.mark.parametrize("way", ["graph", "provider"])
async def test_a_list_that_fails_ends_the_pass_without_a_word(
    sweeping: AzureSweepFixture, fault: AzureFault, way: str
) -> None:
    sweeping.sweeps(listing=way)
    await sweeping.nic()
    await sweeping.sweep()
    before = await sweeping.sightings(), await sweeping.orphans.last_pass_at()
    await sweeping.cloud.azure.set_faults(fault)
    with pytest.raises(ListingFailed):
        await sweeping.sweep()
    assert (await sweeping.sightings(), await sweeping.orphans.last_pass_at()) == before


@pytest.mark.invariant(1)
@pytest.mark.parametrize("way", ["graph", "provider"])
@pytest.mark.parametrize(
    "elsewhere", [{"resource_group": "mc_none"}, {"subscription": "0aaaaaaa-0000-4000-8000-00000000dead"}]
)
async def test_a_group_or_a_subscription_that_is_not_there_is_an_error_and_never_empty(
    sweeping: AzureSweepFixture, elsewhere: dict[str, str], way: str
) -> None:
    """Resource Graph has no rows of it, as of an empty one."""
    await sweeping.nic()
    await sweeping.sweep()
    before = await sweeping.sightings(), await sweeping.orphans.last_pass_at()
    sweeping.sweeps(listing=way)
    for places in ((sweeping.nodes(**elsewhere),), (sweeping.nodes(), sweeping.nodes(**elsewhere))):
        sweeping.places(*places)
        with pytest.raises(ListingFailed) as caught:
            await sweeping.sweep()
        assert azure_error(caught.value).what == "nowhere"
    assert (await sweeping.sightings(), await sweeping.orphans.last_pass_at()) == before


async def test_a_group_that_may_not_be_read_is_not_empty_because_resource_graph_shows_nothing(
    sweeping: AzureSweepFixture,
) -> None:
    claim = await sweeping.nic()
    await sweeping.cloud.azure.behave(graph_omits=[f"aks-{claim}"])
    await sweeping.cloud.azure.set_faults(AzureFault(what="deny", operation="nic.list"))
    with pytest.raises(ListingFailed) as caught:
        await sweeping.sweep()
    assert azure_error(caught.value).what == "denied"
    assert await sweeping.orphans.last_pass_at() == 0


@pytest.mark.parametrize("ending", ["/nodeclaims", "/kube-system", "/nodeclaims.karpenter.sh"])
async def test_a_cluster_that_does_not_answer_ends_the_pass_without_a_word(
    sweeping: AzureSweepFixture, ending: str
) -> None:
    await sweeping.nic()
    sweeping.cloud.proxy.refuse(403, lambda _method, path: path.endswith(ending))
    with pytest.raises(ClusterError):
        await sweeping.sweep()
    assert await sweeping.sightings() == {}


@pytest.mark.invariant(7)
async def test_a_nodeclaim_that_cannot_be_read_ends_the_pass_without_a_word(sweeping: AzureSweepFixture) -> None:
    await sweeping.nic()

    class BlurredPages(KubernetesClient):
        async def pages(self, *words: Any, **how: Any) -> AsyncGenerator[ListPage, None]:
            async for page in super().pages(*words, **how):
                yield msgspec.structs.replace(page, unreadable=("one without a uid",))

    with pytest.raises(Unreadable, match="not every NodeClaim could be read: one without a uid"):
        await sweeping.sweep(cluster=BlurredPages("here", sweeping.cluster._calls))
    assert await sweeping.sightings() == {}


async def test_a_crd_that_is_going_or_gone_proves_nothing(sweeping: AzureSweepFixture, tmp_path: Path) -> None:
    claim = await sweeping.nic()
    with EmbeddedApi() as server:
        api = TestApi("embedded", server)
        install(api.kube)
        api.kube.create(CRD.path(), CRD.body(claim, finalizers=["example.com/stays"]))
        async with await connect("here", api.settings(tmp_path)) as cluster:
            await sweeping.sweep(cluster=cluster)
            assert await sweeping.sightings() == {}
            api.kube.delete(CRD.own_path)
            with pytest.raises(SweepAborted, match=r"the CRD of nodeclaims\.karpenter\.sh is going"):
                await sweeping.sweep(cluster=cluster)
            api.kube.patch(CRD.path("", claim), {"metadata": {"finalizers": []}})
            with pytest.raises(ClusterError):
                await sweeping.sweep(cluster=cluster)
    assert await sweeping.sightings() == {}


async def test_without_a_way_to_the_cluster_there_is_no_pass(sweeping: AzureSweepFixture) -> None:
    with pytest.raises(SweepAborted, match="no way to the cluster"):
        await sweeping.sweep(clusters={})


@pytest.mark.parametrize("key", ["selector", "opt_in", "opt_out"])
async def test_a_source_that_chooses_its_objects_is_not_swept(sweeping: AzureSweepFixture, key: str) -> None:
    await sweeping.nic()
    sweeping.source(**{key: "team=a"})
    with pytest.raises(SweepAborted, match=f"chooses its objects by {key}"):
        await sweeping.sweep()


async def test_with_a_policy_that_keeps_them_orphans_are_found_but_not_published(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    for policy, kind in (
        (PolicySettings(dry_run=True), "dry-run"),
        (PolicySettings(paused=True), "paused"),
        (PolicySettings(deletion_policy="retain"), "retain"),
    ):
        sweeping.settings = msgspec.structs.replace(sweeping.settings, policy=policy)
        swept = await sweeping.ripe()
        assert (swept.decision.kind, swept.found, swept.published) == (kind, 1, 0)
        assert by_claim(swept)[claim].becomes == "stays"
    assert await sweeping.published() == {}
    sweeping.settings = msgspec.structs.replace(sweeping.settings, policy=PolicySettings())
    assert (await sweeping.sweep()).published == 1


# ---- by which list


async def test_where_resource_graph_is_denied_the_providers_are_asked(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    await sweeping.cloud.azure.set_faults(AzureFault(what="deny", operation="graph.query"))
    swept = await sweeping.sweep()
    assert (swept.method, list(by_claim(swept))) == ("provider", [claim])
    await sweeping.cloud.azure.set_faults(AzureFault(what="deny"))
    with pytest.raises(ListingFailed):
        await sweeping.sweep()


async def test_where_rows_of_resource_graph_vanish_between_its_pages_the_providers_are_asked(
    sweeping: AzureSweepFixture,
) -> None:
    await sweeping.cloud.azure.make(*sweeping.many(1001))
    await sweeping.cloud.azure.set_faults(AzureFault(what="gate", operation="graph.query", about="$skiptoken"))
    sweep = asyncio.create_task(sweeping.sweep())

    async def waits() -> bool:
        return await sweeping.cloud.azure.delayed() == ["graph.query"]

    await sweeping.until("the second page is asked for", waits)
    await sweeping.cloud.azure.remove("nic", "aks-many-1000", subscription=sweeping.cloud.subscription)
    await sweeping.cloud.azure.open()
    swept = await sweep
    assert (swept.method, swept.found) == ("provider", 1000)


async def test_what_resource_graph_does_not_show_is_found_by_the_providers(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic()
    await sweeping.cloud.azure.behave(graph_omits=[f"aks-{claim}"])
    assert await sweeping.found() == {}
    sweeping.sweeps(listing="provider")
    assert set(await sweeping.found()) == {claim}


async def test_two_groups_are_swept_and_one_that_fails_ends_the_pass(sweeping: AzureSweepFixture) -> None:
    here = await sweeping.nic("here")
    there = await sweeping.nic("there", group="mc_two")
    sweeping.places(sweeping.nodes(), sweeping.nodes(resource_group="MC_two"))
    found = await sweeping.found()
    assert {claim: one.place for claim, one in found.items()} == {here: 0, there: 1}
    sweeping.sweeps(listing="provider")
    await sweeping.cloud.azure.set_faults(AzureFault(what="throttle", about="mc_two"))
    with pytest.raises(ListingFailed):
        await sweeping.sweep()


# ---- whose nodes a group has


async def test_machines_in_a_group_in_which_no_node_of_this_cluster_runs_are_doubted_and_interfaces_are_not(
    sweeping: AzureSweepFixture,
) -> None:
    """Another cluster's settings would make orphans of all its machines; an interface without one serves nobody."""
    machine = sweeping.cloud.name("machine")
    await sweeping.cloud.vm(f"aks-{machine}")
    alone = await sweeping.nic("alone")
    sweeping.cloud.clear()
    elsewhere = sweeping.cloud.provider_id("other").lower().replace(f"/{GROUP.lower()}/", "/mc_other/")
    sweeping.cloud.node("other", name=sweeping.cloud.name("other"), provider_id=elsewhere)
    swept = await sweeping.ripe()
    assert {claim: one.becomes for claim, one in by_claim(swept).items()} == {machine: "doubted", alone: "told"}
    assert (swept.published, swept.doubted) == (1, 1)
    assert [view.name for view in (await sweeping.published()).values()] == [alone]
    # A rehearsal says the same.
    assert (await sweeping.found(rehearse=True))[machine].becomes == "doubted"
    # When a Node runs there, nothing has to be waited for a second time.
    sweeping.cloud.settle()
    assert (await sweeping.found())[machine].becomes == "told"


# ---- rows without an id


async def test_rows_without_an_id_are_counted_and_the_pass_says_so(sweeping: AzureSweepFixture) -> None:
    known, unknown = await sweeping.nic("known"), await sweeping.nic("unknown")
    await sweeping.cloud.azure.behave(graph_without_guid=(f"aks-{unknown}",))
    swept = await sweeping.sweep()
    assert [one.owner for one in swept.orphans] == [known]
    assert swept.unidentified == 1
    (trouble,) = swept.trouble
    assert "1 resources have no id" in trouble
    assert "azure.sweep.listing: provider" in trouble
    sweeping.sweeps(listing="provider")
    swept = await sweeping.sweep()
    assert {one.owner for one in swept.orphans} == {known, unknown}
    assert swept.trouble == []
