"""Reads and lists of the kinds: everything that is there, with its tags, over many pages and in few calls."""

from collections.abc import Sequence

from service.contract.aws import ownership_tag
from service.local.aws.tags import by_cloud_provider
from tests.aws import aws_process, cloud
from tests.integration.aws_removing import Removing, named, removing
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import Found
from workers.handlers.aws.ownership import owned

__all__ = ["aws_process", "cloud", "removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
THEIRS = by_cloud_provider("c2", "default/web")
KEYS = (ownership_tag("c1"), ownership_tag("c0"))


async def listed(removing: Removing, kind: str, keys: Sequence[str] = KEYS) -> dict[str, Found]:
    calls = await removing.reach.calls(removing.owner().whose)
    return {found.id: found async for found in named(kind).list_all(calls, keys)}


async def test_every_kind_is_listed_with_its_tags_and_read_by_the_id_that_the_list_gives(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    address = await build.elastic_ip(OURS)
    balancer = await build.balancer(vpc, SERVED)
    made = {
        "aws.classic-balancer": await build.classic(vpc, SERVED),
        "aws.balancer": balancer,
        "aws.target-group": await build.target_group(vpc, SERVED),
        "aws.security-group": await build.group(vpc, OURS),
        "aws.network-interface": await build.interface(vpc, (), OURS),
        "aws.vpc-endpoint": await build.endpoint(vpc, (), OURS),
        "aws.nat-gateway": await build.nat_gateway(vpc, address, OURS),
        "aws.elastic-ip": address,
        "aws.volume": await build.volume(OURS),
    }
    assert set(made) == {kind.name for kind in KINDS}
    calls = await removing.reach.calls(removing.owner().whose)
    for kind in KINDS:
        id_ = made[kind.name]
        found = (await listed(removing, kind.name))[id_]
        assert owned(found, removing.owner(vpc), kind) is None
        assert (await kind.read(calls, [id_]))[id_] == found


async def test_a_list_of_ec2_has_what_carries_one_of_the_keys_and_nothing_else(removing: Removing) -> None:
    build = removing.cloud.world
    ours, _theirs, _nobodys = [await build.volume(tags) for tags in (OURS, THEIRS, None)]
    assert set(await listed(removing, "aws.volume")) == {ours}
    assert await listed(removing, "aws.volume", [ownership_tag("c3")]) == {}


async def test_a_list_of_balancers_is_whole_over_many_pages(removing: Removing) -> None:
    build = removing.cloud.world
    await removing.cloud.aws.behave(page_size=20)
    vpc = await build.vpc()
    ours = [await build.target_group(vpc, SERVED) for _ in range(45)]
    theirs = await build.target_group(vpc, THEIRS)
    found = await listed(removing, "aws.target-group")
    assert set(found) == {*ours, theirs}
    assert found[theirs].tags == THEIRS
    assert await removing.asked() == ["elbv2.DescribeTargetGroups", "elbv2.DescribeTags"] * 3


async def test_many_are_read_twenty_at_a_time_and_missing_ones_by_one_list(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(45)]
    calls = await removing.reach.calls(removing.owner().whose)
    assert set(await named("aws.target-group").read(calls, arns)) == set(arns)
    assert len(await removing.asked()) == 6
    missing = [f"{arn[:-4]}none" for arn in arns[:10]]
    assert set(await named("aws.target-group").read(calls, [*missing, *arns])) == set(arns)
    # The one that failed, a list of one page, and the tags of those that are there.
    assert len(await removing.asked()) == 6 + 1 + 1 + 3


async def test_where_a_list_is_long_few_are_asked_for_one_by_one(removing: Removing) -> None:
    build = removing.cloud.world
    await removing.cloud.aws.behave(page_size=10)
    vpc = await build.vpc()
    arns = [await build.target_group(vpc, SERVED) for _ in range(45)]
    await listed(removing, "aws.target-group")
    before = len(await removing.asked())
    calls = await removing.reach.calls(removing.owner().whose)
    exists = named("aws.target-group").exists
    assert exists is not None
    assert set(await exists(calls, [arns[0], f"{arns[1][:-4]}none", arns[2]])) == {arns[0], arns[2]}
    assert len(await removing.asked()) - before == 3
