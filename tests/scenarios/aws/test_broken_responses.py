"""Broken responses of AWS: proxies answer in its place, connections end before and after the call, responses are late.
A response that can't be parsed proves nothing, and a call whose response was lost may have been executed."""

import pytest

from standins.aws import AwsFault
from standins.aws.behaviour import AwsFaultKind
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import bystanders, one_of_each

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
    scenario: AwsScenario, what: AwsFaultKind
) -> None:
    # What planning meets is looked at again after ten seconds: its calls are spared, but for the first.
    scenario.document["aws"]["finding"] = "tagging"
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    theirs = await one_of_each(scenario.builder, infra.tag, infra.vpc)
    await bystanders(scenario.builder, infra.tag, infra.vpc)
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    troubles = [AwsFault(what=what, action=one, account=scenario.account, times=2) for one in ACTIONS]
    # The first calls of balancers wait, so that the plan is through when the trouble with the others begins.
    first = [one for one in troubles if one.action.endswith(".DeleteLoadBalancer")]
    slow = AwsFault(what="slow", action="*.DeleteLoadBalancer", account=scenario.account, seconds=3)
    await scenario.aws.set_faults(slow, *first)
    await scenario.delete(infra)
    await scenario.until("it is planned", scenario.aws.delayed)
    await scenario.aws.set_faults(*troubles)
    await scenario.until_released(infra)
    assert_gone(before, await scenario.account_contents(), theirs.ids)
    hit = {entry.action for entry in await scenario.asked() if entry.status == 0 or entry.code == "html"}
    assert hit == set(ACTIONS)
    (record,) = await scenario.deletions()
    assert (record.state, record.abandoned, record.given_up) == ("done", 0, 0)
