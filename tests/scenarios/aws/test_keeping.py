"""Resources that an operator decided to keep: they stay after their job was abandoned, and after the next cluster of
that name is deleted."""

import asyncio
from typing import Final

import pytest

from service.contract.kept import RETAINED_TAG
from service.contract.names import DELETION_POLICY, PREFIX
from service.engine.kept_store import KeptStore
from service.engine.views.jobs import list_jobs
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider
from tests.aws_kinds import AWS_KINDS
from tests.capi import CLUSTERS
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.capi_clusters import Infra
from tests.scenarios.aws.cluster_resources import a_few

pytestmark = pytest.mark.long

RETAIN: Final = f"{PREFIX}/{DELETION_POLICY}"


async def job_of(scenario: AwsScenario, target: str) -> str:
    """The id of the open job about one resource."""

    async def look() -> str:
        found = await list_jobs(scenario.installation, state=None, lane=None, limit=1000)
        return next((job.id for job in found.jobs if job.target == target), "")

    return str(await scenario.until(f"there is a job about {target}", look))


async def abandon(scenario: AwsScenario, infra: Infra, target: str) -> None:
    job = await job_of(scenario, target)
    answer = await asyncio.to_thread(scenario.knell, "jobs", "abandon", job, "--yes")
    assert answer.code == 0, answer
    await scenario.until_released(infra)


@pytest.mark.invariant(10)
async def test_an_abandoned_group_stays_and_its_object_is_released(scenario: AwsScenario) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    (group,), users = had.groups, await scenario.builder.group(infra.vpc, name="database")
    rule = await scenario.builder.rule(users, group, port=5432)
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until_told(infra, group, f"ingress rule of {users} (database) for tcp 5432")
    await abandon(scenario, infra, group)
    await scenario.builder.ec2.revoke_security_group_ingress(GroupId=users, SecurityGroupRuleIds=[rule])
    # Another one of the same account shows that the service goes on.
    other = await scenario.unmanaged("other")
    await a_few(scenario.builder, other.tag, other.vpc)
    await scenario.until_marked(other)
    await scenario.delete(other)
    await scenario.until_released(other)
    standing = await scenario.builder.standing()
    assert group in standing
    assert not {*had.ids} & standing - {group}
    assert group not in {one for entry in await scenario.changes() for one in entry.ids if "Delete" in entry.action}


@pytest.mark.invariant(9)
@pytest.mark.invariant(10)
async def test_what_retain_kept_does_not_go_with_the_next_cluster_of_that_name(scenario: AwsScenario) -> None:
    """Remembered by name, and, once that is forgotten, by the tag; also after Redis is lost."""
    scenario.document["aws"] |= {"mark_retained": True, "tasks": ["load-balancer", "security-group", "volume"]}
    await scenario.start()
    vpc = await scenario.builder.vpc()
    first = await scenario.unmanaged("prod", vpc, annotations={RETAIN: "retain"})
    had = await a_few(scenario.builder, first.tag, vpc)
    volume = await scenario.builder.volume(by_cloud_provider(first.tag))
    await scenario.until_marked(first)
    await scenario.delete(first)
    await scenario.until_released(first)
    kept = {*had.ids, volume}
    assert kept <= await scenario.builder.standing() | await volumes(scenario)
    # The first of them carry the tag, whatever kind they are of.
    found = {one: text for one, text in (await scenario.account_contents()).items() if one in kept}
    value = f"{first.crd.resource}/{first.namespace}/{first.name}/{first.uid}"
    assert all(RETAINED_TAG in text and value in text for text in found.values()), found
    assert len(found) == len(kept)

    second = await again(scenario, "prod", vpc)
    extra = await scenario.builder.group(vpc, by_cloud_provider(second.tag))
    await scenario.until_marked(second)
    await scenario.delete(second)
    name = f"aws/{scenario.account}/{REGION}/prod"
    await scenario.until_told(second, "CleanupHeld", first.uid, f"knell kept forget {name}")
    listed = await asyncio.to_thread(scenario.knell, "kept", "list", "--output", "json")
    ((one,),) = [entry["decisions"] for entry in listed.json["kept"] if entry["name"] == name]
    assert (one["uid"], {resource["id"] for resource in one["resources"]}) == (first.uid, kept)
    assert DELETION_POLICY in one["why"]
    answer = await asyncio.to_thread(scenario.knell, "kept", "forget", name, "--yes", "--record-only")
    assert answer.code == 0, answer
    assert f"aws ec2 delete-tags --region {REGION} --resources {volume} --tags Key={RETAINED_TAG}" in answer.out
    scenario.nudge(second)
    await scenario.until_released(second)
    standing = await scenario.builder.standing() | await volumes(scenario)
    assert extra not in standing
    assert kept <= standing


@pytest.mark.invariant(9)
async def test_what_retain_kept_goes_with_the_next_cluster_once_its_tags_and_its_record_are_forgotten(
    scenario: AwsScenario,
) -> None:
    scenario.document["aws"] |= {
        "mark_retained": True,
        "tasks": ["load-balancer", "target-group", "security-group", "volume"],
    }
    await scenario.start()
    vpc = await scenario.builder.vpc()
    first = await scenario.unmanaged("prod", vpc, annotations={RETAIN: "retain"})
    had = await a_few(scenario.builder, first.tag, vpc)
    volume = await scenario.builder.volume(by_cloud_provider(first.tag))
    await scenario.until_marked(first)
    await scenario.delete(first)
    await scenario.until_released(first)
    kept = {*had.ids, volume}
    name = f"aws/{scenario.account}/{REGION}/prod"
    answer = await asyncio.to_thread(scenario.knell, "kept", "forget", name, "--yes")
    assert answer.code == 0, answer
    assert f"taken off {len(kept)} resources" in answer.out
    found = {one: text for one, text in (await scenario.account_contents()).items() if one in kept}
    assert len(found) == len(kept)
    assert not any(RETAINED_TAG in text for text in found.values())
    second = await again(scenario, "prod", vpc)
    await scenario.until_marked(second)
    await scenario.delete(second)
    await scenario.until_released(second)
    assert not kept & (await scenario.builder.standing() | await volumes(scenario))


async def again(scenario: AwsScenario, name: str, vpc: Vpc) -> Infra:
    """Another one of that name, once the first is gone with its Cluster."""
    scenario.capi.delete(CLUSTERS, name)
    await scenario.until("its Cluster is gone", lambda: scenario.capi.get(CLUSTERS, name) is None)
    return await scenario.unmanaged(name, vpc)


async def volumes(scenario: AwsScenario) -> set[str]:
    return set(await AWS_KINDS["aws.volume"].there(scenario.builder))


@pytest.mark.invariant(10)
async def test_what_is_dropped_stays_and_its_object_is_released(scenario: AwsScenario) -> None:
    scenario.document["aws"]["mark_retained"] = True
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    had = await a_few(scenario.builder, infra.tag, infra.vpc)
    await scenario.until_marked(infra)
    scenario.annotate(infra, {RETAIN: "perhaps"})
    await scenario.delete(infra)
    await scenario.until_told(infra, "CleanupHeld", "perhaps")
    (deletion,) = await scenario.deletions()
    name = f"deletion:{deletion.id}"

    async def dropped() -> bool:
        # While it is looked at again it is not held for a moment.
        return (await asyncio.to_thread(scenario.knell, "held", "drop", name, "--yes")).code == 0

    await scenario.until("it is dropped", dropped)
    await scenario.until("its object is gone", lambda: scenario.is_gone(infra))
    assert had.ids <= await scenario.builder.standing()
    (decision,) = await KeptStore(scenario.installation).decisions(f"aws/{scenario.account}/{REGION}", "prod")
    assert {resource.id for resource in decision.resources} == had.ids
    assert "knell held drop" in decision.why
