"""Listeners that use a target group in deletion: those of load balancers that stay are left to an operator."""

from contextlib import AsyncExitStack

import pytest

from service.sources.capa import EXTERNAL_RESOURCE_TASKS
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider
from tests import capi
from tests.integration.capi_fixture import CapiFixture, marked


async def test_a_listener_of_a_balancer_that_stays_is_left_and_named_until_an_operator_decides(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    clusters.set(tasks=("target-group",))
    balancer = await clusters.resources.balancer(vpc, by_cloud_provider("prod", "default/web"), of="net")
    target_group = await clusters.resources.target_group(vpc, by_cloud_provider("prod", "default/web"), behind=balancer)
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    (listener,) = (await clusters.resources.elbv2.describe_listeners(LoadBalancerArn=balancer))["Listeners"]
    arn = listener["ListenerArn"]
    await clusters.until_job(one, "aws.target-group", arn, "load-balancer", EXTERNAL_RESOURCE_TASKS)
    assert await clusters.calls("elbv2.DeleteListener") == 0
    assert {balancer, target_group} <= await clusters.resources.standing()
    # One solution is to delete the load balancer as well.
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer,target-group"})
    await clusters.until_done(one)
    assert not {balancer, target_group} & await clusters.resources.standing()


@pytest.mark.long
async def test_once_balancers_are_not_to_go_any_more_their_listeners_stay(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    served = by_cloud_provider("prod", "default/web")
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    balancer = await clusters.resources.balancer(vpc, served, groups=[group])
    target_group = await clusters.resources.target_group(vpc, served, behind=balancer)
    await clusters.resources.protect(balancer)
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.balancer", "protect")
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "target-group"})
    (listener,) = (await clusters.resources.elbv2.describe_listeners(LoadBalancerArn=balancer))["Listeners"]
    await clusters.until_job(one, "aws.target-group", listener["ListenerArn"], "not to go")
    assert await clusters.calls("elbv2.DeleteListener") == 0
    # Another is to delete the listener by hand.
    await clusters.resources.elbv2.delete_listener(ListenerArn=listener["ListenerArn"])
    await clusters.until_done(one)
    left = await clusters.resources.standing()
    assert {balancer, group} <= left
    assert target_group not in left
