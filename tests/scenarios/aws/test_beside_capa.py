"""Cluster API Provider AWS with its own collector on, as by default: both work on the same cluster at the same time.
It also removes the network as soon as that is empty, whichever of them emptied it."""

import pytest

from standins.aws import AwsFault
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import a_few

pytestmark = pytest.mark.long


async def test_what_the_other_collector_took_meanwhile_counts_as_gone_and_so_does_the_vpc(
    scenario: AwsScenario,
) -> None:
    await scenario.aws.behave(drain=0)
    await scenario.aws.set_faults(
        AwsFault(what="slow", action="elbv2.DeleteLoadBalancer", account=scenario.account, seconds=4)
    )
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    nothing = await scenario.account_contents()
    theirs = await a_few(scenario.builder, infra.tag, infra.vpc)
    (classic, net), (group,) = theirs.balancers, theirs.groups
    (target,) = theirs.ids - {classic, net, group}
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until("a call of ours is on its way", scenario.aws.delayed)
    await scenario.builder.elb.delete_load_balancer(LoadBalancerName=classic)
    await scenario.builder.elbv2.delete_load_balancer(LoadBalancerArn=net)
    await scenario.builder.elbv2.delete_target_group(TargetGroupArn=target)
    await scenario.builder.ec2.delete_security_group(GroupId=group)
    for subnet in infra.vpc.subnets:
        await scenario.builder.ec2.delete_subnet(SubnetId=subnet)
    await scenario.builder.ec2.delete_vpc(VpcId=infra.vpc.id)
    await scenario.until_released(infra)
    gone = {id_ for id_, text in nothing.items() if infra.vpc.id in text}
    assert_gone(nothing, await scenario.account_contents(), gone)
    record = await scenario.record(infra)
    assert record is not None
    assert (record.state, record.abandoned, record.given_up) == ("done", 0, 0)
