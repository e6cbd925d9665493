"""Resources on AWS that an operator abandoned, when their deletion is planned anew."""

from contextlib import AsyncExitStack

import pytest

from service.contract import Event
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider
from tests.integration.capi_fixture import CapiFixture, marked

DENIED = "elb.DeleteLoadBalancer"
GROUP_DENIED = "ec2.DeleteSecurityGroup"


async def deny(clusters: CapiFixture, *actions: str) -> None:
    await clusters.aws.set_faults(*(AwsFault(what="deny", action=one, account=clusters.account) for one in actions))


async def standing_still(clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc) -> tuple[str, str, str, Event]:
    """A cluster whose deletion stands still: two groups and a balancer of a name, neither of which may be deleted."""
    group, other = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    name = await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"))
    await deny(clusters, DENIED, GROUP_DENIED)
    one = await clusters.going(clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clusters.work(stack)
    await clusters.until_job(one, "aws.classic-balancer", "is denied")
    await clusters.until_job(one, "aws.security-group", "is denied")
    return group, other, name, one


async def stop_lanes(clusters: CapiFixture, *, stop: bool = True) -> None:
    await clusters.installation.shards[0].pause("*", stop=stop, who="test")


@pytest.mark.invariant(10)
async def test_an_abandoned_group_and_an_abandoned_balancer_stay_when_their_deletion_is_planned_anew(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    group, other, name, one = await standing_still(clusters, stack, vpc)
    await stop_lanes(clusters)
    for target in (group, name):
        await clusters.abandon(one, target)
    await clusters.aws.set_faults()
    await clusters.lose_plan(one)
    await clusters.until_next_plan(one)
    assert {group, other, name} & {target for _, target in await clusters.targets_of(one)} == {other}
    begun = len(await clusters.aws.journal())
    await stop_lanes(clusters, stop=False)
    await clusters.until_done(one)
    standing = await clusters.resources.standing()
    assert {group, name} <= standing
    assert other not in standing
    deleted = [entry for entry in await clusters.aws.requests(since=begun) if "Delete" in entry.action]
    assert [entry.ids for entry in deleted if {group, name} & {*entry.ids}] == []


@pytest.mark.invariant(9)
@pytest.mark.invariant(10)
@pytest.mark.parametrize("later", [False, True], ids=["the abandoned one", "a later one of its name"])
async def test_of_a_name_that_cant_be_read_when_it_is_planned_anew_the_abandoned_balancer_stays(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc, later: bool
) -> None:
    """The new plan does not know which one it is. The attempt does, and leaves the one that was abandoned."""
    _, _, name, one = await standing_still(clusters, stack, vpc)
    await stop_lanes(clusters)
    await clusters.abandon(one, name)
    if later:
        await clusters.resources.elb.delete_load_balancer(LoadBalancerName=name)
        await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"), name=name)
    await deny(clusters, "elb.DescribeTags", "elb.DescribeLoadBalancers")
    await clusters.lose_plan(one)
    await clusters.until_next_plan(one)
    (job,) = [job for job, target in await clusters.targets_of(one) if target == name]
    assert "incarnation" not in await clusters.job(job)
    await clusters.aws.set_faults()
    await stop_lanes(clusters, stop=False)
    await clusters.until_done(one)
    assert (name in await clusters.resources.standing()) == (not later)
    if not later:
        record = await clusters.job(job)
        assert (record["state"], record["verdict"]) == ("dead", "left")
