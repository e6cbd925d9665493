"""Cluster API Provider AWS has a collector of its own, on by default: both work on the same cluster at the same time.
It also goes on to remove the network as soon as that is empty, whoever emptied it."""

import pytest

from standins.aws import Fault
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long


async def test_what_the_other_collector_took_meanwhile_counts_as_gone_and_so_does_the_vpc(stage: Stage) -> None:
    await stage.aws.behave(drain=0)
    await stage.aws.trouble(Fault(what="slow", action="elbv2.DeleteLoadBalancer", account=stage.account, seconds=4))
    await stage.start()
    infra = await stage.unmanaged("prod")
    nothing = await stage.holdings()
    theirs = await a_few(stage.world, infra.tag, infra.vpc)
    (classic, net), (group,) = theirs.balancers, theirs.groups
    (target,) = theirs.ids - {classic, net, group}
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until("a call of ours is on its way", stage.aws.delayed)
    await stage.world.elb.delete_load_balancer(LoadBalancerName=classic)
    await stage.world.elbv2.delete_load_balancer(LoadBalancerArn=net)
    await stage.world.elbv2.delete_target_group(TargetGroupArn=target)
    await stage.world.ec2.delete_security_group(GroupId=group)
    for subnet in infra.vpc.subnets:
        await stage.world.ec2.delete_subnet(SubnetId=subnet)
    await stage.world.ec2.delete_vpc(VpcId=infra.vpc.id)
    await stage.until_released(infra)
    gone = {id_ for id_, text in nothing.items() if infra.vpc.id in text}
    assert_gone(nothing, await stage.holdings(), gone)
    record = await stage.record(infra)
    assert record is not None
    assert (record.state, record.abandoned, record.given_up) == ("done", 0, 0)
