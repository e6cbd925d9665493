"""A bad day at AWS: proxies answer in its place, connections end before and after the deed, answers come late.
An answer that nobody understands is no finding, and a call whose answer was lost may have been carried out."""

import pytest

from standins.aws import Fault
from standins.aws.behaviour import Trouble
from tests.scenarios.aws.belongings import bystanders, one_of_each
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long

ACTIONS = (
    "tagging.GetResources", "elb.DescribeLoadBalancers", "elbv2.DescribeLoadBalancers", "elbv2.DescribeTags",
    "elbv2.DescribeTargetGroups", "ec2.DescribeSecurityGroups", "ec2.DescribeNetworkInterfaces",
    "ec2.DescribeSecurityGroupRules", "elb.DeleteLoadBalancer", "elbv2.DeleteLoadBalancer",
    "elbv2.DeleteTargetGroup", "ec2.RevokeSecurityGroupIngress", "ec2.RevokeSecurityGroupEgress",
    "ec2.DeleteSecurityGroup",
)  # fmt: skip


@pytest.mark.parametrize("what", ["lost", "html"])
async def test_every_kind_of_call_goes_wrong_and_everything_is_collected_all_the_same(
    stage: Stage, what: Trouble
) -> None:
    # What planning meets is looked at again after ten seconds: its calls are spared, but for the first.
    stage.document["aws"]["finding"] = "tagging"
    await stage.start()
    infra = await stage.unmanaged("prod")
    theirs = await one_of_each(stage.world, infra.tag, infra.vpc)
    await bystanders(stage.world, infra.tag, infra.vpc)
    before = await stage.holdings()
    await stage.until_marked(infra)
    troubles = [Fault(what=what, action=one, account=stage.account, times=2) for one in ACTIONS]
    # The first calls of balancers wait, so that the plan is through when the trouble with the others begins.
    first = [one for one in troubles if one.action.endswith(".DeleteLoadBalancer")]
    slow = Fault(what="slow", action="*.DeleteLoadBalancer", account=stage.account, seconds=3)
    await stage.aws.trouble(slow, *first)
    await stage.delete(infra)
    await stage.until("it is planned", stage.aws.delayed)
    await stage.aws.trouble(*troubles)
    await stage.until_released(infra)
    assert_gone(before, await stage.holdings(), theirs.ids)
    hit = {entry.action for entry in await stage.asked() if entry.status == 0 or entry.code == "html"}
    assert hit == set(ACTIONS)
    (record,) = await stage.deletions()
    assert (record.state, record.abandoned, record.given_up) == ("done", 0, 0)
