"""Clusters that are deleted while a worker works: what they owned on AWS goes, in order, and nothing else does."""

from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
import pytest

from service.contract.aws import AWS_FINALIZER, DELETE_FOR_MOVE, EXTERNAL_RESOURCE_GC
from service.engine.views.progress import ending
from service.settings import FeedbackSettings
from standins.aws.behaviour import Fault
from standins.aws.tags import by_cloud_provider, by_cluster_api
from standins.aws.world import REGION
from tests import capi
from tests.clusters import TestApi
from tests.integration.clustered import Clustered, marked
from workers.reporting.words import done


@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_an_unmanaged_cluster_takes_its_resources_along_and_nothing_else(
    clustered: Clustered, stack: AsyncExitStack, finding: str
) -> None:
    world = clustered.resources
    vpc = await world.vpc()
    mine = await world.cluster_resources("prod", vpc, entangled=True)
    gateway = await world.balancer(vpc, by_cloud_provider("prod", "default/gw"), of="gwy")
    before = await world.standing()
    await world.cluster_resources("other", vpc)
    await world.group(vpc, by_cluster_api("prod", "lb"))
    await world.group(vpc, name="k8s-elb-prod")
    await world.balancer(vpc, by_cloud_provider("prod"), of="net")
    foreign = await world.standing() - before
    assert gateway in before
    clustered.set(finding=finding)
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_done(one)
    assert clustered.read(made) is None
    left = await world.standing()
    assert left == foreign
    assert not left & set(mine.groups)


async def test_a_managed_cluster_goes_by_the_name_of_its_eks_cluster(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    world = clustered.resources
    vpc = await world.vpc()
    await world.cluster_resources("payments", vpc)
    before = await world.standing()
    await world.cluster_resources("prod", vpc)
    foreign = await world.standing() - before
    made = clustered.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_done(one)
    assert clustered.read(made) is None
    assert await world.standing() == foreign


async def test_a_cluster_with_nothing_outside_is_released_after_an_empty_list(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_done(one)
    assert clustered.read(made) is None
    # One list for the plan, and one that proves it.
    assert await clustered.calls("tagging.GetResources") == 2


async def test_a_cluster_that_is_too_early_is_collected_when_its_machines_are_gone(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    clustered.capi.machine("prod-1", "prod")
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    clustered.settings = msgspec.structs.replace(clustered.settings, feedback=FeedbackSettings())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_waiting(one, "too early", "prod-1")
    assert group in await clustered.resources.standing()

    async def told() -> bool:
        conditions = ((clustered.read(made) or {}).get("status") or {}).get("conditions") or []
        return any(one["reason"] == "CleanupWaiting" and "prod-1" in one["message"] for one in conditions)

    await clustered.until("its condition says that it waits, and for what", told)
    clustered.capi.delete(capi.MACHINES, "prod-1")
    await clustered.jump(timedelta(seconds=11))
    await clustered.until_done(one)
    assert group not in await clustered.resources.standing()
    # The last look at what is left is no resource.
    assert done(await ending(clustered.installation, one.deletion)) == "1 of 1 resources removed"


# ---- in the middle


async def test_a_pause_in_the_middle_stops_every_further_call(clustered: Clustered, stack: AsyncExitStack) -> None:
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    await clustered.installation.shards[0].pause("aws/*", stop=True, who="test")
    one = await clustered.going(made)
    await clustered.work(stack)

    async def planned() -> bool:
        return "plan" in await clustered.deletion(one)

    await clustered.until("it is planned", planned)
    clustered.capi.pause("prod")
    await clustered.installation.shards[0].pause("aws/*", stop=False, who="test")
    await clustered.until_job(one, "aws.security-group", "paused", "spec.paused")
    assert group in await clustered.resources.standing()
    clustered.capi.pause("prod", paused=False)
    await clustered.until_done(one)
    assert group not in await clustered.resources.standing()


@pytest.mark.long
async def test_a_namesake_that_comes_in_the_middle_stops_every_further_call(
    clustered: Clustered, stack: AsyncExitStack, api: TestApi
) -> None:
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    _, one, balancer = await clustered.stopped(stack, vpc, groups=[group])
    elsewhere.unmanaged("prod", region=REGION)
    await clustered.until_job(one, "aws.balancer", f"{elsewhere.namespace}/prod")
    await clustered.resources.protect(balancer, protected=False)
    assert {balancer, group} <= await clustered.resources.standing()
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    await clustered.until_done(one)
    assert not {balancer, group} & await clustered.resources.standing()


@pytest.mark.parametrize("mark", [{EXTERNAL_RESOURCE_GC: "false"}, {DELETE_FOR_MOVE: ""}], ids=["opt-out", "move"])
async def test_who_opts_out_or_moves_in_the_middle_keeps_what_is_left(
    clustered: Clustered, stack: AsyncExitStack, mark: dict[str, str]
) -> None:
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    made, one, balancer = await clustered.stopped(stack, vpc, groups=[group])
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **mark)
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_done(one)
    assert clustered.read(made) is None
    assert {balancer, group} <= await clustered.resources.standing()


async def test_a_denied_permission_on_one_service_is_named_while_the_others_proceed(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    mine = await clustered.resources.cluster_resources("prod", vpc)
    await clustered.aws.trouble(Fault(what="deny", action="elb.*", account=clustered.account))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.classic-balancer", "elasticloadbalancing:DescribeLoadBalancers is denied")

    async def others_gone() -> bool:
        return not set(mine.balancers) & await clustered.resources.standing()

    await clustered.until("the others are gone", others_gone)
    assert set(mine.classic) <= await clustered.resources.standing()
    assert clustered.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clustered.aws.trouble()
    await clustered.until_done(one)
    assert not await clustered.resources.standing()
