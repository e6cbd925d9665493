"""A balancer that can't be removed keeps what it uses, and nothing that has nothing to do with it."""

from contextlib import AsyncExitStack

import pytest

from service.local.aws.networks import Vpc
from service.local.aws.tags import by_cloud_provider
from service.local.aws.world import REGION
from tests.integration.clustered import Clustered, marked

OURS, SERVED = by_cloud_provider("prod"), by_cloud_provider("prod", "default/web")


async def until_gone(clustered: Clustered, *ids: str) -> None:
    async def gone() -> bool:
        return not {*ids} & await clustered.resources.standing()

    await clustered.until(f"{ids} are gone", gone)


@pytest.mark.long
async def test_what_a_protected_balancer_does_not_use_goes_meanwhile_and_the_object_waits(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    build = clustered.resources
    used, apart, of_classic = [await build.group(vpc, OURS) for _ in range(3)]
    balancer = await build.balancer(vpc, SERVED, of="net", groups=[used])
    behind = await build.target_group(vpc, SERVED, behind=balancer)
    classic = await build.classic(vpc, SERVED, groups=[of_classic])
    loose = await build.target_group(vpc, SERVED)
    await build.protect(balancer)
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.balancer", "protect")
    await until_gone(clustered, apart, of_classic, classic, loose)
    # What it uses is not even tried, and the last look waits for all of it.
    assert {balancer, behind, used} <= await build.standing()
    asked = await clustered.actions()
    assert (asked["elbv2.DeleteTargetGroup"], asked["ec2.DeleteSecurityGroup"]) == (1, 2)
    assert clustered.read(made) is not None
    await build.protect(balancer, protected=False)
    await clustered.until_done(one)
    assert not {balancer, behind, used} & await build.standing()
    assert clustered.read(made) is None


@pytest.mark.parametrize("egress", [False, True])
async def test_groups_that_refer_to_each_other_go_whatever_each_of_them_waits_for(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc, egress: bool
) -> None:
    build = clustered.resources
    used, apart, of_classic = [await build.group(vpc, OURS) for _ in range(3)]
    for on in (used, apart, of_classic):
        for of in (used, apart, of_classic):
            if on != of:
                await build.rule(on, of, egress=egress)
    balancer = await build.balancer(vpc, SERVED, groups=[used])
    await build.classic(vpc, SERVED, groups=[of_classic])
    await build.protect(balancer)
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await until_gone(clustered, apart, of_classic)
    assert {used, balancer} <= await build.standing()
    await build.protect(balancer, protected=False)
    await clustered.until_done(one)
    assert not {used, balancer} & await build.standing()
