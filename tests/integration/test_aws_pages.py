"""EC2 answers in pages, and a question to it has 200 values at most: every reader turns them all, and asks in parts.
The stand-in's pages are of two things here, and what is missed on a later one would be taken for gone."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from service.contract.aws import AWS_CLUSTERS, CLUSTER_NAME, ownership_tag
from standins.aws.networks import Vpc
from standins.aws.tags import by_cloud_provider
from standins.aws.world import World
from tests.integration.aws_removing import Removing, named, removing
from workers.handlers.aws.evidence import Evidence, Held
from workers.handlers.aws.groups import interfaces_of, references_to
from workers.handlers.aws.model import Calls, Owner, Turn
from workers.handlers.aws.owners import Subject, subject_of
from workers.handlers.aws.reading.ec2 import matching
from workers.handlers.aws.snapshots import OF_VOLUME, of_volumes

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
KEY = ownership_tag("c1")
FEW, MANY = 5, 450


async def nat_gateway(world: World, vpc: Vpc) -> str:
    return await world.nat_gateway(vpc, await world.elastic_ip(), OURS)


MAKE: dict[str, Callable[[World, Vpc], Awaitable[str]]] = {
    "aws.security-group": lambda world, vpc: world.group(vpc, OURS),
    "aws.network-interface": lambda world, vpc: world.interface(vpc, (), OURS),
    "aws.vpc-endpoint": lambda world, vpc: world.endpoint(vpc, (), OURS),
    "aws.nat-gateway": nat_gateway,
    "aws.elastic-ip": lambda world, vpc: world.elastic_ip(OURS),
    "aws.volume": lambda world, vpc: world.volume(OURS),
}
UNPAGED = "aws.elastic-ip"


@pytest.fixture
async def calls(removing: Removing) -> Calls:
    """Pages are of two, and no bucket is ever empty."""
    await removing.cloud.aws.behave(ec2_page_size=2, buckets=False)
    return await removing.reach.calls(removing.owner().whose)


@pytest.fixture
async def vpc(removing: Removing) -> Vpc:
    return await removing.cloud.world.vpc()


async def read_by_id(calls: Calls, kind: str, ids: list[str]) -> set[str]:
    return set(await named(kind).read(calls, ids))


async def listed(calls: Calls, kind: str, keys: list[str]) -> set[str]:
    return {found.id async for found in named(kind).list_all(calls, keys)}


def missing(like: str) -> list[str]:
    """Ids that look like that one, of nothing that is there; some sort before it and some after."""
    front = like.rpartition("-")[0]
    return [f"{front}-{number * (16**17 // MANY):017x}" for number in range(MANY)]


def cluster(name: str, vpc: Vpc) -> Subject:
    metadata = {"name": name, "namespace": "tenant", "uid": name, "labels": {CLUSTER_NAME: name}}
    document = {"metadata": metadata, "spec": {"region": "eu-west-1", "network": {"vpc": {"id": vpc.id}}}}
    return subject_of(AWS_CLUSTERS, msgspec.json.encode(document))


# ---- pages


@pytest.mark.parametrize("kind", MAKE)
async def test_all_pages_of_a_kind_are_read_and_listed(removing: Removing, calls: Calls, vpc: Vpc, kind: str) -> None:
    made = [await MAKE[kind](removing.cloud.world, vpc) for _ in range(FEW)]
    assert await read_by_id(calls, kind, made) == set(made)
    assert await listed(calls, kind, [KEY]) == set(made)
    pages = 1 if kind == UNPAGED else 3
    assert len(await removing.asked()) == 2 * pages


async def test_all_pages_of_what_uses_a_group_are_read(removing: Removing, calls: Calls, vpc: Vpc) -> None:
    build = removing.cloud.world
    group = await build.group(vpc, OURS)
    others = [await build.group(vpc, OURS) for _ in range(FEW)]
    rules = set[str]()
    for other in others:
        rules |= {await build.rule(other, group), await build.rule(other, group, egress=True, port=80)}
    interfaces = {await build.interface(vpc, [group]) for _ in range(FEW)}
    found = await interfaces_of(calls, [group])
    assert {one.id for one in found[group]} == interfaces
    for egress in (False, True):
        references = await references_to(calls, [group], egress=egress)
        assert {one.group.id for one in references[group]} == set(others)
    shown = matching(calls, "describe_security_group_rules", "SecurityGroupRules", "group-id", others)
    assert rules <= {item["SecurityGroupRuleId"] async for item in shown}


async def test_all_pages_of_a_volumes_snapshots_are_read(removing: Removing, calls: Calls) -> None:
    build = removing.cloud.world
    volumes = [await build.volume(OURS) for _ in range(FEW)]
    for volume in volumes:
        tags = [{"ResourceType": "snapshot", "Tags": [{"Key": OF_VOLUME, "Value": volume}]}]
        await build.ec2.create_snapshot(VolumeId=volume, TagSpecifications=tags)
    seen = await of_volumes(await turns(removing, calls, volumes))
    assert {volume for volume, _ in seen} == set(volumes)


async def turns(removing: Removing, calls: Calls, volumes: list[str]) -> list[Turn]:
    owner: Owner = removing.owner(snapshot=True)
    hand = removing.hand(owner, "aws.volume", *volumes)
    found = await named("aws.volume").read(calls, volumes)
    return [Turn(job, owner, found[job.target], calls, hand, removing.aws) for job in hand.jobs]


async def test_all_pages_of_instances_are_waited_for(removing: Removing, calls: Calls, vpc: Vpc) -> None:
    made = [await removing.cloud.world.instance(vpc, tags=OURS) for _ in range(FEW)]
    evidence = Evidence()
    for left in range(FEW, 0, -1):
        with pytest.raises(Held, match="too early") as held:
            await evidence.nothing_runs(cluster("c1", vpc), calls, apart=True)
        words = str(held.value)
        more = int(found.group(1)) if (found := re.search(r"and (\d+) more", words)) else 0
        assert words.count("instance i-") + more == left
        await removing.cloud.world.ec2.terminate_instances(InstanceIds=[made.pop(0)])
    await evidence.nothing_runs(cluster("c1", vpc), calls, apart=True)


async def test_all_pages_of_vpcs_are_known(removing: Removing, calls: Calls) -> None:
    vpcs = [await removing.cloud.world.vpc() for _ in range(FEW)]
    evidence = Evidence()
    await asyncio.gather(*(evidence.vpc(cluster(f"c{number}", vpc), calls, "") for number, vpc in enumerate(vpcs)))


# ---- values


@pytest.mark.parametrize("kind", MAKE)
async def test_no_more_than_200_values_are_asked_for_at_once(
    removing: Removing, calls: Calls, vpc: Vpc, kind: str
) -> None:
    made = await MAKE[kind](removing.cloud.world, vpc)
    assert await read_by_id(calls, kind, sorted([made, *missing(made)])) == {made}
    assert await listed(calls, kind, [*(ownership_tag(f"other-{number}") for number in range(MANY)), KEY]) == {made}
    asked = await removing.journal()
    assert [one.status for one in asked] == [200] * 6
    assert max(len(one.ids) for one in asked) == 200


async def test_many_clusters_that_wait_together_are_asked_for_in_parts(
    removing: Removing, calls: Calls, vpc: Vpc
) -> None:
    """Three tags each, and the states besides: the values of all filters of a call count together."""
    vpcs = [await removing.cloud.world.vpc() for _ in range(3)]
    last = "c999"
    await removing.cloud.world.instance(vpc, tags=by_cloud_provider(last))
    clusters = [cluster(f"c{number}", vpc) for number in range(100)]
    evidence = Evidence()
    answers = await asyncio.gather(
        *(evidence.nothing_runs(one, calls, apart=True) for one in [*clusters, cluster(last, vpc)]),
        return_exceptions=True,
    )
    assert answers[:-1] == [None] * 100
    assert isinstance(answers[-1], Held)
    spread = [cluster(f"v{number}", vpcs[number % 3]) for number in range(3)]
    unknown = [Vpc(id=one, subnets=()) for one in missing(vpc.id)]
    looks = (evidence.vpc(one, calls, "") for one in [*spread, *(cluster("gone", one) for one in unknown)])
    answers = await asyncio.gather(*looks, return_exceptions=True)
    assert answers[:3] == [None] * 3
    assert all(isinstance(one, Held) and "is not in account" in str(one) for one in answers[3:])
    # EKS, which is asked for each name, knows none of them.
    assert {one.status for one in await removing.journal() if one.action != "eks.DescribeCluster"} == {200}
