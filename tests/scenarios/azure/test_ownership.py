"""Resources with similar names that belong to another cluster, AKS, a user or no owner: they are never changed, and the
records say why. The same holds for what an operator has marked to stay."""

import asyncio
from typing import Any

import pytest

from service.sources.azure import KEEP_TAG
from service.sources.karpenter_azure import AKS_MACHINE_TAG, CLUSTER_TAG, NODEPOOL_TAG, resource_name
from standins.azure import Disk, PublicIp, Vm
from tests.scenarios.azure.azure_scenario import DISK, NIC, TAGS, VM, AzureScenario

pytestmark = pytest.mark.long

FOREIGN = {CLUSTER_TAG: "staging", NODEPOOL_TAG: "default"}
OF_AKS = {**TAGS, AKS_MACHINE_TAG: "somebody"}
KEPT = {**TAGS, KEEP_TAG: "true"}
CASED = {CLUSTER_TAG.upper(): "prod", "Karpenter.sh_NodePool": "default"}


@pytest.mark.parametrize(
    ("tags", "words"),
    [(FOREIGN, "names cluster 'staging', not 'prod'"), (OF_AKS, "a machine of AKS")],
    ids=["of another cluster", "of AKS"],
)
async def test_resources_of_others_are_left_alone_and_the_deletion_is_done(
    scenario: AzureScenario, tags: dict[str, str], words: str
) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    await scenario.vm(claim, tags=tags)
    await scenario.nic(claim, tags=tags, vm=resource_name(claim))
    await scenario.unclaimed(claim)
    record = await scenario.until_done(uid)
    jobs = {job.kind: job for job in await scenario.all_jobs(record)}
    assert (jobs[VM].verdict, jobs[NIC].verdict) == ("left", "left")
    assert words in jobs[VM].detail
    assert record.given_up == 2
    assert await scenario.deletes() == []
    assert {one.kind for one in await scenario.there()} == {"vm", "nic"}


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({}, f"it has no tag {CLUSTER_TAG} and no tag {NODEPOOL_TAG}"),
        ({CLUSTER_TAG: "prod"}, f"it has no tag {NODEPOOL_TAG}"),
        (KEPT, f"its tag {KEEP_TAG} is 'true'"),
    ],
    ids=["without tags", "without a node pool", "marked to stay"],
)
async def test_unclear_ownership_or_a_protection_mark_holds_until_an_operator_changes_it(
    scenario: AzureScenario, tags: dict[str, str], words: str
) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    guid = await scenario.nic(claim, tags=tags)
    await scenario.unclaimed(claim)
    job = await scenario.until_told(claim, words)
    assert job.held
    assert await scenario.deletes() == []
    await scenario.nic(claim, guid=guid, tags=TAGS)
    await scenario.until_done(uid)
    assert await scenario.names() == set()


async def test_more_tags_that_settings_demand_must_be_there_as_well(scenario: AzureScenario) -> None:
    scenario.document["azure"]["nodes"]["nodeclaims"][0]["tags"] = {"owner": "platform"}
    await scenario.start()
    claim, other = scenario.name("a"), scenario.name("b")
    await scenario.claimed(claim)
    uid = await scenario.claimed(other)
    await scenario.nic(claim)
    await scenario.nic(other, tags={**TAGS, "Owner": "platform"})
    await asyncio.gather(scenario.unclaimed(claim), scenario.unclaimed(other))
    await scenario.until_told(claim, "its tag owner is None, not 'platform'")
    await scenario.until_done(uid)
    assert await scenario.names() == {resource_name(claim)}


async def test_the_casing_of_tags_names_does_not_matter(scenario: AzureScenario) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.nic(claim, tags=CASED)
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == set()


@pytest.mark.parametrize("tag", ["kubernetes.io-created-for-pvc-name", "k8s-azure-created-by"])
async def test_a_volume_of_a_csi_driver_stays_although_it_is_named_and_tagged_like_ours(
    scenario: AzureScenario, tag: str
) -> None:
    await scenario.start()
    claim = scenario.name("a")
    await scenario.claimed(claim)
    name = resource_name(claim)
    await scenario.azure.make(Disk(name=name, tags={**TAGS, tag: "data"}, subscription=scenario.subscription))
    await scenario.nic(claim)
    await scenario.unclaimed(claim)
    await scenario.until_told(claim, "volume of a CSI driver", kind=DISK)
    assert {one.kind for one in await scenario.there()} == {"disk"}
    assert {one.operation for one in await scenario.deletes()} == {"nic.delete"}


async def test_a_machine_that_would_take_a_users_volume_along_is_held_until_that_is_detached(
    scenario: AzureScenario,
) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    volume = Disk(name="pvc-1", tags={"kubernetes.io-created-for-pvc-name": "data"}, subscription=scenario.subscription)
    await scenario.azure.make(volume)
    guid = await scenario.vm(claim, data_disks=("pvc-1",))
    await scenario.unclaimed(claim)
    await scenario.until_told(claim, "its data disk pvc-1 would be deleted with it", kind=VM)
    assert await scenario.deletes() == []
    name = resource_name(claim)
    detaching: dict[str, Any] = {"data_disks": ("pvc-1",), "keeps": ("pvc-1",), "guid": guid, "nics": (name,)}
    await scenario.azure.make(Vm(name=name, tags=TAGS, subscription=scenario.subscription, **detaching))
    await scenario.until_done(uid)
    assert await scenario.names() == {"pvc-1"}


async def test_a_machine_that_keeps_what_it_has_is_followed_by_its_interface_disk_and_address(
    scenario: AzureScenario,
) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    name = resource_name(claim)
    mine: dict[str, Any] = {"tags": TAGS, "subscription": scenario.subscription}
    await scenario.azure.make(Disk(name=name, **mine), PublicIp(name=name, **mine))
    await scenario.nic(claim, vm=name, public_ip=name)
    await scenario.azure.make(
        Vm(name=name, nics=(name,), disk=name, nic_delete="Detach", disk_delete="Detach", **mine)
    )  # fmt: skip
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == set()
    operations = [one.operation for one in await scenario.deletes()]
    assert operations[:2] == ["vm.delete", "nic.delete"]
    assert sorted(operations[2:]) == ["disk.delete", "ip.delete"]


async def test_a_claim_of_another_provider_is_none_of_ours(scenario: AzureScenario) -> None:
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False, group="karpenter.k8s.aws")
    await scenario.nic(claim)
    await scenario.unclaimed(claim)
    record = await scenario.until_done(uid)
    assert "karpenter.k8s.aws" in record.policy
    assert await scenario.asked() == []
    assert await scenario.names() == {resource_name(claim)}
