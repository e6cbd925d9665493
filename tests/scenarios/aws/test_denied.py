"""The service's role lacks a permission: what does not need it goes on, and the object says which one is wanting."""

import pytest

from standins.aws import Fault
from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

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
    stage: Stage, action: str, permission: str, proceeds: int
) -> None:
    await stage.aws.trouble(Fault(what="deny", action=action, account=stage.account))
    await stage.start()
    infra = await stage.unmanaged("prod")
    few = await a_few(stage.world, infra.tag, infra.vpc)
    ids = few.ids | {await stage.world.group(infra.vpc, by_cloud_provider(infra.tag))}
    before = await stage.holdings()
    await stage.until_marked(infra)
    await stage.delete(infra)
    said = await stage.until_told(infra, "CleanupHeld", permission, "denied")
    assert "EncodedAuthorizationMessage" not in said

    async def others_are_gone() -> bool:
        return len(ids & await stage.world.standing()) == len(ids) - proceeds

    await stage.until("the others are gone", others_are_gone)
    assert not stage.is_gone(infra)
    await stage.aws.trouble()
    await stage.until_released(infra)
    assert_gone(before, await stage.holdings(), ids)
