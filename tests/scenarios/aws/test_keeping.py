"""What a person decided to keep stays: after its job was abandoned, and after the next cluster of that name is gone."""

import asyncio
from typing import Final

import pytest

from service.contract.kept import RETAINED_TAG
from service.contract.names import DELETION_POLICY, PREFIX
from service.local.aws.networks import Vpc
from service.local.aws.tags import by_cloud_provider
from service.local.aws.world import REGION
from service.stream.kept import KeptMemory
from service.stream.views.jobs import list_jobs
from tests.capi import CLUSTERS
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.clusters import Infra
from tests.scenarios.aws.stage import Stage

RETAIN: Final = f"{PREFIX}/{DELETION_POLICY}"


async def job_of(stage: Stage, target: str) -> str:
    """The id of the open job about one resource."""

    async def look() -> str:
        found = await list_jobs(stage.installation, state=None, lane=None, limit=1000)
        return next((job.id for job in found.jobs if job.target == target), "")

    return str(await stage.until(f"there is a job about {target}", look))


async def abandon(stage: Stage, infra: Infra, target: str) -> None:
    job = await job_of(stage, target)
    answer = await asyncio.to_thread(stage.knell, "jobs", "abandon", job, "--yes")
    assert answer.code == 0, answer
    await stage.until_released(infra)


@pytest.mark.invariant(10)
async def test_an_abandoned_group_stays_and_its_object_is_released(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    (group,), users = had.groups, await stage.world.group(infra.vpc, name="database")
    rule = await stage.world.rule(users, group, port=5432)
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_told(infra, group, f"ingress rule of {users} (database) for tcp 5432")
    await abandon(stage, infra, group)
    await stage.world.ec2.revoke_security_group_ingress(GroupId=users, SecurityGroupRuleIds=[rule])
    # Another one of the same account shows that the service goes on.
    other = await stage.unmanaged("other")
    await a_few(stage.world, other.tag, other.vpc)
    await stage.until_marked(other)
    await stage.delete(other)
    await stage.until_released(other)
    standing = await stage.world.standing()
    assert group in standing
    assert not {*had.ids} & standing - {group}
    assert group not in {one for entry in await stage.changes() for one in entry.ids if "Delete" in entry.action}


@pytest.mark.invariant(9)
@pytest.mark.invariant(10)
async def test_what_retain_kept_does_not_go_with_the_next_cluster_of_that_name(stage: Stage) -> None:
    """Remembered by name, and, once that is forgotten, by the tag; also after Redis is lost."""
    stage.document["aws"] |= {"mark_retained": True, "tasks": ["load-balancer", "security-group", "volume"]}
    await stage.start()
    vpc = await stage.world.vpc()
    first = await stage.unmanaged("prod", vpc, annotations={RETAIN: "retain"})
    had = await a_few(stage.world, first.tag, vpc)
    volume = await stage.world.volume(by_cloud_provider(first.tag))
    await stage.until_marked(first)
    await stage.delete(first)
    await stage.until_released(first)
    kept = {*had.ids, volume}
    assert kept <= await stage.world.standing() | await volumes(stage)
    # The first of them carry the tag, whatever kind they are of.
    found = {one: text for one, text in (await stage.holdings()).items() if one in kept}
    value = f"{first.crd.resource}/{first.namespace}/{first.name}/{first.uid}"
    assert all(RETAINED_TAG in text and value in text for text in found.values()), found
    assert len(found) == len(kept)

    second = await again(stage, "prod", vpc)
    extra = await stage.world.group(vpc, by_cloud_provider(second.tag))
    await stage.until_marked(second)
    await stage.delete(second)
    name = f"aws/{stage.account}/{REGION}/prod"
    await stage.until_told(second, "CleanupHeld", first.uid, f"knell kept forget {name}")
    listed = await asyncio.to_thread(stage.knell, "kept", "list", "--output", "json")
    ((one,),) = [entry["decisions"] for entry in listed.json["kept"] if entry["name"] == name]
    assert (one["uid"], {resource["id"] for resource in one["resources"]}) == (first.uid, kept)
    assert DELETION_POLICY in one["why"]
    answer = await asyncio.to_thread(stage.knell, "kept", "forget", name, "--yes", "--record-only")
    assert answer.code == 0, answer
    assert f"aws ec2 delete-tags --region {REGION} --resources {volume} --tags Key={RETAINED_TAG}" in answer.out
    stage.nudge(second)
    await stage.until_released(second)
    standing = await stage.world.standing() | await volumes(stage)
    assert extra not in standing
    assert kept <= standing


@pytest.mark.long
@pytest.mark.invariant(9)
async def test_what_retain_kept_goes_with_the_next_cluster_once_its_tags_and_its_record_are_forgotten(
    stage: Stage,
) -> None:
    stage.document["aws"] |= {
        "mark_retained": True,
        "tasks": ["load-balancer", "target-group", "security-group", "volume"],
    }
    await stage.start()
    vpc = await stage.world.vpc()
    first = await stage.unmanaged("prod", vpc, annotations={RETAIN: "retain"})
    had = await a_few(stage.world, first.tag, vpc)
    volume = await stage.world.volume(by_cloud_provider(first.tag))
    await stage.until_marked(first)
    await stage.delete(first)
    await stage.until_released(first)
    kept = {*had.ids, volume}
    name = f"aws/{stage.account}/{REGION}/prod"
    answer = await asyncio.to_thread(stage.knell, "kept", "forget", name, "--yes")
    assert answer.code == 0, answer
    assert f"taken off {len(kept)} resources" in answer.out
    found = {one: text for one, text in (await stage.holdings()).items() if one in kept}
    assert len(found) == len(kept)
    assert not any(RETAINED_TAG in text for text in found.values())
    second = await again(stage, "prod", vpc)
    await stage.until_marked(second)
    await stage.delete(second)
    await stage.until_released(second)
    assert not kept & (await stage.world.standing() | await volumes(stage))


async def again(stage: Stage, name: str, vpc: Vpc) -> Infra:
    """Another one of that name, once the first is gone with its Cluster."""
    stage.capi.delete(CLUSTERS, name)
    await stage.until("its Cluster is gone", lambda: stage.capi.get(CLUSTERS, name) is None)
    return await stage.unmanaged(name, vpc)


async def volumes(stage: Stage) -> set[str]:
    return {one["VolumeId"] for one in (await stage.world.ec2.describe_volumes())["Volumes"]}


@pytest.mark.invariant(10)
async def test_what_is_dropped_stays_and_its_object_is_released(stage: Stage) -> None:
    stage.document["aws"]["mark_retained"] = True
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    await stage.until_marked(infra)
    stage.annotate(infra, {RETAIN: "perhaps"})
    await stage.delete(infra)
    await stage.until_told(infra, "CleanupHeld", "perhaps")
    (deletion,) = await stage.deletions()
    name = f"deletion:{deletion.id}"

    async def dropped() -> bool:
        # While it is looked at again it is not held for a moment.
        return (await asyncio.to_thread(stage.knell, "held", "drop", name, "--yes")).code == 0

    await stage.until("it is dropped", dropped)
    await stage.until("its object is gone", lambda: stage.is_gone(infra))
    assert had.ids <= await stage.world.standing()
    (decision,) = await KeptMemory(stage.installation).decisions(f"aws/{stage.account}/{REGION}", "prod")
    assert {resource.id for resource in decision.resources} == had.ids
    assert "knell held drop" in decision.why
