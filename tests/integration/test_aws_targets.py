"""A load balancer that can't be deleted blocks only what it uses."""

from contextlib import AsyncExitStack

import pytest

from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider
from tests.integration.capi_fixture import CapiFixture, marked

OURS, SERVED = by_cloud_provider("prod"), by_cloud_provider("prod", "default/web")


async def until_gone(clusters: CapiFixture, *ids: str) -> None:
    async def gone() -> bool:
        return not {*ids} & await clusters.resources.standing()

    await clusters.until(f"{ids} are gone", gone)


@pytest.mark.long
async def test_what_a_protected_balancer_does_not_use_goes_meanwhile_and_the_object_waits(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    build = clusters.resources
    used, apart, of_classic = [await build.group(vpc, OURS) for _ in range(3)]
    balancer = await build.balancer(vpc, SERVED, of="net", groups=[used])
    behind = await build.target_group(vpc, SERVED, behind=balancer)
    classic = await build.classic(vpc, SERVED, groups=[of_classic])
    loose = await build.target_group(vpc, SERVED)
    await build.protect(balancer)
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.balancer", "protect")
    await until_gone(clusters, apart, of_classic, classic, loose)
    # What it uses is not even tried, and the final check waits for all of it.
    assert {balancer, behind, used} <= await build.standing()
    asked = await clusters.actions()
    assert (asked["elbv2.DeleteTargetGroup"], asked["ec2.DeleteSecurityGroup"]) == (1, 2)
    assert clusters.read(made) is not None
    await build.protect(balancer, protected=False)
    await clusters.until_done(one)
    assert not {balancer, behind, used} & await build.standing()
    assert clusters.read(made) is None


@pytest.mark.parametrize("egress", [False, True])
async def test_groups_that_refer_to_each_other_go_whatever_each_of_them_waits_for(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc, egress: bool
) -> None:
    build = clusters.resources
    used, apart, of_classic = [await build.group(vpc, OURS) for _ in range(3)]
    for on in (used, apart, of_classic):
        for of in (used, apart, of_classic):
            if on != of:
                await build.rule(on, of, egress=egress)
    balancer = await build.balancer(vpc, SERVED, groups=[used])
    await build.classic(vpc, SERVED, groups=[of_classic])
    await build.protect(balancer)
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await until_gone(clusters, apart, of_classic)
    assert {used, balancer} <= await build.standing()
    await build.protect(balancer, protected=False)
    await clusters.until_done(one)
    assert not {used, balancer} & await build.standing()
