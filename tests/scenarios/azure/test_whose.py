"""What is named like ours and is not: of another cluster, of AKS, of nobody, of a user. It is never touched, and the
records say why. The same holds for what a person has marked to stay."""

import asyncio
from typing import Any

import pytest

from service.contract.azure import AKS_MACHINE_TAG, CLUSTER_TAG, KEEP_TAG, NODEPOOL_TAG, resource_name
from standins.azure import Disk, PublicIp, Vm
from tests.scenarios.azure.stage import DISK, NIC, TAGS, VM, Stage

FOREIGN = {CLUSTER_TAG: "staging", NODEPOOL_TAG: "default"}
OF_AKS = {**TAGS, AKS_MACHINE_TAG: "somebody"}
KEPT = {**TAGS, KEEP_TAG: "true"}
CASED = {CLUSTER_TAG.upper(): "prod", "Karpenter.sh_NodePool": "default"}


@pytest.mark.parametrize(
    ("tags", "words"),
    [(FOREIGN, "names cluster 'staging', not 'prod'"), (OF_AKS, "a machine of AKS")],
    ids=["of another cluster", "of AKS"],
)
async def test_what_is_somebody_elses_is_left_alone_and_the_deletion_is_over(
    stage: Stage, tags: dict[str, str], words: str
) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    await stage.vm(claim, tags=tags)
    await stage.nic(claim, tags=tags, vm=resource_name(claim))
    await stage.unclaimed(claim)
    record = await stage.until_done(uid)
    jobs = {job.kind: job for job in await stage.all_jobs(record)}
    assert (jobs[VM].verdict, jobs[NIC].verdict) == ("left", "left")
    assert words in jobs[VM].detail
    assert record.given_up == 2
    assert await stage.deletes() == []
    assert {one.kind for one in await stage.there()} == {"vm", "nic"}


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({}, f"it has no tag {CLUSTER_TAG} and no tag {NODEPOOL_TAG}"),
        ({CLUSTER_TAG: "prod"}, f"it has no tag {NODEPOOL_TAG}"),
        (KEPT, f"its tag {KEEP_TAG} is 'true'"),
    ],
    ids=["without tags", "without a node pool", "marked to stay"],
)
async def test_what_nobody_can_tell_or_is_marked_to_stay_is_held_until_a_person_changes_it(
    stage: Stage, tags: dict[str, str], words: str
) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    guid = await stage.nic(claim, tags=tags)
    await stage.unclaimed(claim)
    job = await stage.until_told(claim, words)
    assert job.held
    assert await stage.deletes() == []
    await stage.nic(claim, guid=guid, tags=TAGS)
    await stage.until_done(uid)
    assert await stage.names() == set()


async def test_more_tags_that_settings_demand_must_be_there_as_well(stage: Stage) -> None:
    stage.document["azure"]["nodes"]["nodeclaims"][0]["tags"] = {"owner": "platform"}
    await stage.start()
    claim, other = stage.name("a"), stage.name("b")
    await stage.claimed(claim)
    uid = await stage.claimed(other)
    await stage.nic(claim)
    await stage.nic(other, tags={**TAGS, "Owner": "platform"})
    await asyncio.gather(stage.unclaimed(claim), stage.unclaimed(other))
    await stage.until_told(claim, "its tag owner is None, not 'platform'")
    await stage.until_done(uid)
    assert await stage.names() == {resource_name(claim)}


async def test_the_casing_of_tags_names_does_not_matter(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.nic(claim, tags=CASED)
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == set()


@pytest.mark.parametrize("tag", ["kubernetes.io-created-for-pvc-name", "k8s-azure-created-by"])
async def test_a_volume_of_a_csi_driver_stays_although_it_is_named_and_tagged_like_ours(stage: Stage, tag: str) -> None:
    await stage.start()
    claim = stage.name("a")
    await stage.claimed(claim)
    name = resource_name(claim)
    await stage.azure.make(Disk(name=name, tags={**TAGS, tag: "data"}, subscription=stage.subscription))
    await stage.nic(claim)
    await stage.unclaimed(claim)
    await stage.until_told(claim, "volume of a CSI driver", kind=DISK)
    assert {one.kind for one in await stage.there()} == {"disk"}
    assert {one.operation for one in await stage.deletes()} == {"nic.delete"}


async def test_a_machine_that_would_take_a_users_volume_along_is_held_until_that_is_detached(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    volume = Disk(name="pvc-1", tags={"kubernetes.io-created-for-pvc-name": "data"}, subscription=stage.subscription)
    await stage.azure.make(volume)
    guid = await stage.vm(claim, data_disks=("pvc-1",))
    await stage.unclaimed(claim)
    await stage.until_told(claim, "its data disk pvc-1 would be deleted with it", kind=VM)
    assert await stage.deletes() == []
    name = resource_name(claim)
    detaching: dict[str, Any] = {"data_disks": ("pvc-1",), "keeps": ("pvc-1",), "guid": guid, "nics": (name,)}
    await stage.azure.make(Vm(name=name, tags=TAGS, subscription=stage.subscription, **detaching))
    await stage.until_done(uid)
    assert await stage.names() == {"pvc-1"}


async def test_a_machine_that_keeps_what_it_has_is_followed_by_its_interface_disk_and_address(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    name = resource_name(claim)
    mine: dict[str, Any] = {"tags": TAGS, "subscription": stage.subscription}
    await stage.azure.make(Disk(name=name, **mine), PublicIp(name=name, **mine))
    await stage.nic(claim, vm=name, public_ip=name)
    await stage.azure.make(
        Vm(name=name, nics=(name,), disk=name, nic_delete="Detach", disk_delete="Detach", **mine)
    )  # fmt: skip
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == set()
    operations = [one.operation for one in await stage.deletes()]
    assert operations[:2] == ["vm.delete", "nic.delete"]
    assert sorted(operations[2:]) == ["disk.delete", "ip.delete"]


async def test_a_claim_of_another_provider_is_none_of_ours(stage: Stage) -> None:
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False, group="karpenter.k8s.aws")
    await stage.nic(claim)
    await stage.unclaimed(claim)
    record = await stage.until_done(uid)
    assert "karpenter.k8s.aws" in record.policy
    assert await stage.asked() == []
    assert await stage.names() == {resource_name(claim)}
