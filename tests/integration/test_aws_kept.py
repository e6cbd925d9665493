"""What is kept on AWS: by a person's tag, by the tag that keeping leaves, and by what is remembered of decisions."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

import pytest

from service.contract import Left, Refused
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG
from service.local.aws.tags import by_cloud_provider, pairs
from service.local.aws.world import REGION
from tests.integration.aws_removing import Removing, removing
from tests.integration.clustered import Clustered, marked
from workers.handlers.aws.checking import SETTLED

__all__ = ["removing"]


async def tag(clustered: Clustered, resource: str, tags: Mapping[str, str]) -> None:
    await clustered.resources.ec2.create_tags(Resources=[resource], Tags=pairs(dict(tags)))


@pytest.mark.invariant(10)
async def test_a_persons_tag_keeps_a_resource_until_it_is_taken_off(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    group, other = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    # Its rules are not touched either.
    await clustered.resources.rule(group, other)
    await tag(clustered, group, {PREVENT_DELETE_TAG: "true"})
    one = await clustered.going(clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clustered.work(stack)
    await clustered.until_job(one, "aws.security-group", PREVENT_DELETE_TAG, "jobs abandon")
    await clustered.until_job(one, "aws.security-group", f"ingress rule of {group}", held=False)
    assert {group, other} <= await clustered.resources.standing()
    await clustered.resources.ec2.delete_tags(Resources=[group], Tags=[{"Key": PREVENT_DELETE_TAG}])
    await clustered.until_done(one)
    assert not {group, other} & await clustered.resources.standing()


@pytest.mark.invariant(10)
async def test_what_the_tag_of_an_earlier_object_keeps_is_left_and_the_object_goes_without_it(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    before, free = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    await tag(clustered, before, {RETAINED_TAG: "uid/kind/tenant/prod/1"})
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        targets = await clustered.planned(found, side)
        assert {target.id for target in targets if target.kind != SETTLED} == {free}
    one = clustered.event(found)
    await clustered.publish(one)
    await clustered.work(stack)
    await clustered.until_done(one)
    assert {before, free} & await clustered.resources.standing() == {before}


@pytest.mark.invariant(10)
@pytest.mark.parametrize(("name", "verdict"), [(PREVENT_DELETE_TAG, Refused), (RETAINED_TAG, Left)])
async def test_a_tag_that_comes_after_the_plan_keeps_the_resource_as_well(
    removing: Removing, name: str, verdict: type
) -> None:
    vpc = await removing.cloud.world.vpc()
    group = await removing.cloud.world.group(vpc, {**by_cloud_provider("c1"), name: "true"})
    hand = removing.hand(removing.owner(vpc), "aws.security-group", group)
    found = await removing.attempt(hand)
    assert isinstance(found[group], verdict)
    assert hand.cleared == []
    assert group in await removing.cloud.world.standing()
