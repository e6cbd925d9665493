"""Missing permission in the service's role: resources that don't need it are deleted, and the object names it."""

import pytest

from standins.aws import AwsFault
from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import a_few

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("action", "permission", "proceeds"),
    [
        # Balancers hold nothing up but what they use: the group that is in both waits for either, the other for none.
        ("elbv2.*", "elasticloadbalancing:DescribeLoadBalancers", 2),
        ("elb.*", "elasticloadbalancing:DescribeLoadBalancers", 3),
        ("ec2.DeleteSecurityGroup", "ec2:DeleteSecurityGroup", 3),
    ],
)
async def test_what_is_denied_is_named_on_the_object_and_the_rest_goes_on(
    scenario: AwsScenario, action: str, permission: str, proceeds: int
) -> None:
    await scenario.aws.set_faults(AwsFault(what="deny", action=action, account=scenario.account))
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    few = await a_few(scenario.builder, infra.tag, infra.vpc)
    ids = few.ids | {await scenario.builder.group(infra.vpc, by_cloud_provider(infra.tag))}
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    said = await scenario.until_told(infra, "CleanupHeld", permission, "denied")
    assert "EncodedAuthorizationMessage" not in said

    async def others_are_gone() -> bool:
        return len(ids & await scenario.builder.standing()) == len(ids) - proceeds

    await scenario.until("the others are gone", others_are_gone)
    assert not scenario.is_gone(infra)
    await scenario.aws.set_faults()
    await scenario.until_released(infra)
    assert_gone(before, await scenario.account_contents(), ids)
