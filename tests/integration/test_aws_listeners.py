"""Listeners that use a target group which is to go: those of balancers that stay are theirs, and a person decides."""

from contextlib import AsyncExitStack

import pytest

from service.contract.aws import EXTERNAL_RESOURCE_TASKS
from service.local.aws.networks import Vpc
from service.local.aws.tags import by_cloud_provider
from service.local.aws.world import REGION
from tests import capi
from tests.integration.clustered import Clustered, marked


async def test_a_listener_of_a_balancer_that_is_not_to_go_is_left_and_named_until_somebody_decides(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    clustered.set(tasks=("target-group",))
    balancer = await clustered.resources.balancer(vpc, by_cloud_provider("prod", "default/web"), of="net")
    target_group = await clustered.resources.target_group(
        vpc, by_cloud_provider("prod", "default/web"), behind=balancer
    )
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    (listener,) = (await clustered.resources.elbv2.describe_listeners(LoadBalancerArn=balancer))["Listeners"]
    arn = listener["ListenerArn"]
    await clustered.until_job(one, "aws.target-group", arn, "load-balancer", EXTERNAL_RESOURCE_TASKS)
    assert await clustered.calls("elbv2.DeleteListener") == 0
    assert {balancer, target_group} <= await clustered.resources.standing()
    # One way out is to let the balancer go as well.
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer,target-group"})
    await clustered.until_done(one)
    assert not {balancer, target_group} & await clustered.resources.standing()


@pytest.mark.long
async def test_once_balancers_are_not_to_go_any_more_their_listeners_stay(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    served = by_cloud_provider("prod", "default/web")
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    balancer = await clustered.resources.balancer(vpc, served, groups=[group])
    target_group = await clustered.resources.target_group(vpc, served, behind=balancer)
    await clustered.resources.protect(balancer)
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.balancer", "protect")
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "target-group"})
    (listener,) = (await clustered.resources.elbv2.describe_listeners(LoadBalancerArn=balancer))["Listeners"]
    await clustered.until_job(one, "aws.target-group", listener["ListenerArn"], "not to go")
    assert await clustered.calls("elbv2.DeleteListener") == 0
    # Another is to take the listener away oneself.
    await clustered.resources.elbv2.delete_listener(ListenerArn=listener["ListenerArn"])
    await clustered.until_done(one)
    left = await clustered.resources.standing()
    assert {balancer, group} <= left
    assert target_group not in left
