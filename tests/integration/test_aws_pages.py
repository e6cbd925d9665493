"""Pages of EC2, and its limit of 200 values per request: every reader reads all pages and splits its requests. The
stand-in's pages hold two items here; one missed on a later page would count as gone."""

import asyncio
import re

import msgspec
import pytest

from service.policy.capi import CLUSTER_NAME
from service.sources.capa import AWS_CLUSTERS, ownership_tag
from standins.aws.builder import Vpc
from standins.aws.tags import by_cloud_provider
from tests.aws_kinds import EC2_KINDS
from tests.integration.aws_removal import AwsRemovalFixture, named, removing
from workers.collectors.capa.capa_object import CapaObject, parse_capa_object
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.preconditions import AwsPreconditions, PreconditionFailed
from workers.providers.aws.kinds.declaration import AwsAttempt
from workers.providers.aws.kinds.security_group_dependencies import interfaces_of, references_to
from workers.providers.aws.kinds.snapshots import VOLUME_TAG, find_snapshots
from workers.providers.aws.model import AwsClient
from workers.providers.aws.reading.ec2 import matching

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
KEY = ownership_tag("c1")
FEW, MANY = 5, 450


@pytest.fixture
async def client(removing: AwsRemovalFixture) -> AwsClient:
    """Pages hold two items, and no bucket is ever empty."""
    await removing.cloud.aws.behave(ec2_page_size=2, buckets=False)
    return await removing.reach.client(removing.owner().scope)


@pytest.fixture
async def vpc(removing: AwsRemovalFixture) -> Vpc:
    return await removing.cloud.builder.vpc()


async def read_by_id(client: AwsClient, kind: str, ids: list[str]) -> set[str]:
    return set(await named(kind).read(client, ids))


async def listed(client: AwsClient, kind: str, keys: list[str]) -> set[str]:
    list_all = named(kind).list_all
    assert list_all is not None
    return {found.id async for found in list_all(client, keys)}


def missing(like: str) -> list[str]:
    """Ids of the same form that do not exist; some sort before it and some after."""
    front = like.rpartition("-")[0]
    return [f"{front}-{number * (16**17 // MANY):017x}" for number in range(MANY)]


def cluster(name: str, vpc: Vpc) -> CapaObject:
    metadata = {"name": name, "namespace": "tenant", "uid": name, "labels": {CLUSTER_NAME: name}}
    document = {"metadata": metadata, "spec": {"region": "eu-west-1", "network": {"vpc": {"id": vpc.id}}}}
    return parse_capa_object(AWS_CLUSTERS, msgspec.json.encode(document))


# ---- pages


@pytest.mark.parametrize("kind", EC2_KINDS)
async def test_all_pages_of_a_kind_are_read_and_listed(
    removing: AwsRemovalFixture, client: AwsClient, vpc: Vpc, kind: str
) -> None:
    row = EC2_KINDS[kind]
    made = [await row.make(removing.cloud.builder, vpc, OURS) for _ in range(FEW)]
    assert await read_by_id(client, kind, made) == set(made)
    assert await listed(client, kind, [KEY]) == set(made)
    pages = 3 if row.paged else 1
    assert len(await removing.asked()) == 2 * pages


async def test_all_pages_of_what_uses_a_group_are_read(
    removing: AwsRemovalFixture, client: AwsClient, vpc: Vpc
) -> None:
    build = removing.cloud.builder
    group = await build.group(vpc, OURS)
    others = [await build.group(vpc, OURS) for _ in range(FEW)]
    rules = set[str]()
    for other in others:
        rules |= {await build.rule(other, group), await build.rule(other, group, egress=True, port=80)}
    interfaces = {await build.interface(vpc, [group]) for _ in range(FEW)}
    found = await interfaces_of(client, [group])
    assert {one.id for one in found[group]} == interfaces
    for egress in (False, True):
        references = await references_to(client, [group], egress=egress)
        assert {one.group.id for one in references[group]} == set(others)
    shown = matching(client, "describe_security_group_rules", "SecurityGroupRules", "group-id", others)
    assert rules <= {item["SecurityGroupRuleId"] async for item in shown}


async def test_all_pages_of_a_volumes_snapshots_are_read(removing: AwsRemovalFixture, client: AwsClient) -> None:
    build = removing.cloud.builder
    volumes = [await build.volume(OURS) for _ in range(FEW)]
    for volume in volumes:
        tags = [{"ResourceType": "snapshot", "Tags": [{"Key": VOLUME_TAG, "Value": volume}]}]
        await build.ec2.create_snapshot(VolumeId=volume, TagSpecifications=tags)
    seen = await find_snapshots(await attempts(removing, client, volumes))
    assert {volume for volume, _ in seen} == set(volumes)


async def attempts(removing: AwsRemovalFixture, client: AwsClient, volumes: list[str]) -> list[AwsAttempt]:
    owner: CapaClaim = removing.owner(snapshot=True)
    batch = removing.batch(owner, "aws.volume", *volumes)
    found = await named("aws.volume").read(client, volumes)
    judge, aws = removing.judge, removing.aws
    return [
        AwsAttempt(
            job=job, claim=owner, judge=judge, resource=found[job.target], client=client, batch=batch, settings=aws
        )
        for job in batch.jobs
    ]


async def test_all_pages_of_instances_are_waited_for(removing: AwsRemovalFixture, client: AwsClient, vpc: Vpc) -> None:
    made = [await removing.cloud.builder.instance(vpc, tags=OURS) for _ in range(FEW)]
    preconditions = AwsPreconditions()
    for left in range(FEW, 0, -1):
        with pytest.raises(PreconditionFailed, match="too early") as held:
            await preconditions.require_nothing_running(cluster("c1", vpc), client, all_in_vpc=True)
        words = str(held.value)
        more = int(found.group(1)) if (found := re.search(r"and (\d+) more", words)) else 0
        assert words.count("instance i-") + more == left
        await removing.cloud.builder.ec2.terminate_instances(InstanceIds=[made.pop(0)])
    await preconditions.require_nothing_running(cluster("c1", vpc), client, all_in_vpc=True)


async def test_all_pages_of_vpcs_are_known(removing: AwsRemovalFixture, client: AwsClient) -> None:
    vpcs = [await removing.cloud.builder.vpc() for _ in range(FEW)]
    preconditions = AwsPreconditions()
    await asyncio.gather(
        *(preconditions.require_vpc(cluster(f"c{number}", vpc), client, "") for number, vpc in enumerate(vpcs))
    )


# ---- values


@pytest.mark.parametrize("kind", EC2_KINDS)
async def test_no_request_has_more_than_200_values(
    removing: AwsRemovalFixture, client: AwsClient, vpc: Vpc, kind: str
) -> None:
    made = await EC2_KINDS[kind].make(removing.cloud.builder, vpc, OURS)
    assert await read_by_id(client, kind, sorted([made, *missing(made)])) == {made}
    assert await listed(client, kind, [*(ownership_tag(f"other-{number}") for number in range(MANY)), KEY]) == {made}
    asked = await removing.journal()
    assert [one.status for one in asked] == [200] * 6
    assert max(len(one.ids) for one in asked) == 200


async def test_many_waiting_clusters_are_read_in_parts(
    removing: AwsRemovalFixture, client: AwsClient, vpc: Vpc
) -> None:
    """Three tags each, and the states: the values of all filters of a call count together."""
    vpcs = [await removing.cloud.builder.vpc() for _ in range(3)]
    last = "c999"
    await removing.cloud.builder.instance(vpc, tags=by_cloud_provider(last))
    clusters = [cluster(f"c{number}", vpc) for number in range(100)]
    preconditions = AwsPreconditions()
    answers = await asyncio.gather(
        *(
            preconditions.require_nothing_running(one, client, all_in_vpc=True)
            for one in [*clusters, cluster(last, vpc)]
        ),
        return_exceptions=True,
    )
    assert answers[:-1] == [None] * 100
    assert isinstance(answers[-1], PreconditionFailed)
    spread = [cluster(f"v{number}", vpcs[number % 3]) for number in range(3)]
    unknown = [Vpc(id=one, subnets=()) for one in missing(vpc.id)]
    looks = (
        preconditions.require_vpc(one, client, "") for one in [*spread, *(cluster("gone", one) for one in unknown)]
    )
    answers = await asyncio.gather(*looks, return_exceptions=True)
    assert answers[:3] == [None] * 3
    assert all(isinstance(one, PreconditionFailed) and "is not in account" in str(one) for one in answers[3:])
    # EKS, which is called for each name, knows none of them.
    assert {one.status for one in await removing.journal() if one.action != "eks.DescribeCluster"} == {200}
