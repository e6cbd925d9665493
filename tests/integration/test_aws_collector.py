"""Clusters deleted while a worker runs: their AWS resources are deleted in order, and nothing else is."""

from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
import pytest

from service.engine.views.progress import removal_summary
from service.policy.capi import DELETE_FOR_MOVE
from service.settings import FeedbackSettings
from service.sources.capa import AWS_FINALIZER, EXTERNAL_RESOURCE_GC
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION
from standins.aws.tags import by_cloud_provider, by_cluster_api
from tests import capi
from tests.api_servers import TestApi
from tests.integration.capi_fixture import CapiFixture, marked
from workers.reporting.messages import done_message


@pytest.mark.parametrize("finding", ["tagging", "describe"])
async def test_an_unmanaged_cluster_takes_its_resources_along_and_nothing_else(
    clusters: CapiFixture, stack: AsyncExitStack, finding: str
) -> None:
    builder = clusters.resources
    vpc = await builder.vpc()
    mine = await builder.cluster_resources("prod", vpc, entangled=True)
    gateway = await builder.balancer(vpc, by_cloud_provider("prod", "default/gw"), of="gwy")
    before = await builder.standing()
    await builder.cluster_resources("other", vpc)
    await builder.group(vpc, by_cluster_api("prod", "lb"))
    await builder.group(vpc, name="k8s-elb-prod")
    await builder.balancer(vpc, by_cloud_provider("prod"), of="net")
    foreign = await builder.standing() - before
    assert gateway in before
    clusters.set(finding=finding)
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_done(one)
    assert clusters.read(made) is None
    left = await builder.standing()
    assert left == foreign
    assert not left & set(mine.groups)


async def test_a_managed_cluster_goes_by_the_name_of_its_eks_cluster(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    builder = clusters.resources
    vpc = await builder.vpc()
    await builder.cluster_resources("payments", vpc)
    before = await builder.standing()
    await builder.cluster_resources("prod", vpc)
    foreign = await builder.standing() - before
    made = clusters.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_done(one)
    assert clusters.read(made) is None
    assert await builder.standing() == foreign


async def test_a_cluster_with_nothing_outside_is_released_after_an_empty_list(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_done(one)
    assert clusters.read(made) is None
    # One list for the plan, and one that proves it.
    assert await clusters.calls("tagging.GetResources") == 2


async def test_a_cluster_that_is_too_early_is_collected_when_its_machines_are_gone(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    clusters.capi.machine("prod-1", "prod")
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    clusters.settings = msgspec.structs.replace(clusters.settings, feedback=FeedbackSettings())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_waiting(one, "too early", "prod-1")
    assert group in await clusters.resources.standing()

    async def told() -> bool:
        conditions = ((clusters.read(made) or {}).get("status") or {}).get("conditions") or []
        return any(one["reason"] == "CleanupWaiting" and "prod-1" in one["message"] for one in conditions)

    await clusters.until("its condition says that it waits, and for what", told)
    clusters.capi.delete(capi.MACHINES, "prod-1")
    await clusters.jump(timedelta(seconds=11))
    await clusters.until_done(one)
    assert group not in await clusters.resources.standing()
    # The target of the final check is no resource.
    assert done_message(await removal_summary(clusters.installation, one.deletion)) == "1 of 1 resources removed"


# ---- in the middle


async def test_a_pause_in_the_middle_stops_every_further_call(clusters: CapiFixture, stack: AsyncExitStack) -> None:
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    await clusters.installation.shards[0].pause("aws/*", stop=True, who="test")
    one = await clusters.going(made)
    await clusters.work(stack)

    async def planned() -> bool:
        return "plan" in await clusters.deletion(one)

    await clusters.until("it is planned", planned)
    clusters.capi.pause("prod")
    await clusters.installation.shards[0].pause("aws/*", stop=False, who="test")
    await clusters.until_job(one, "aws.security-group", "paused", "spec.paused")
    assert group in await clusters.resources.standing()
    clusters.capi.pause("prod", paused=False)
    await clusters.until_done(one)
    assert group not in await clusters.resources.standing()


@pytest.mark.long
async def test_a_namesake_that_comes_in_the_middle_stops_every_further_call(
    clusters: CapiFixture, stack: AsyncExitStack, api: TestApi
) -> None:
    elsewhere = capi.CapiObjects(api.kube, api.namespace())
    clusters.watch_also(elsewhere.namespace)
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    _, one, balancer = await clusters.stopped(stack, vpc, groups=[group])
    elsewhere.unmanaged("prod", region=REGION)
    await clusters.until_job(one, "aws.balancer", f"{elsewhere.namespace}/prod")
    await clusters.resources.protect(balancer, protected=False)
    assert {balancer, group} <= await clusters.resources.standing()
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    await clusters.until_done(one)
    assert not {balancer, group} & await clusters.resources.standing()


@pytest.mark.parametrize("mark", [{EXTERNAL_RESOURCE_GC: "false"}, {DELETE_FOR_MOVE: ""}], ids=["opt-out", "move"])
async def test_a_cluster_that_opts_out_or_moves_in_the_middle_keeps_what_is_left(
    clusters: CapiFixture, stack: AsyncExitStack, mark: dict[str, str]
) -> None:
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    made, one, balancer = await clusters.stopped(stack, vpc, groups=[group])
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **mark)
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_done(one)
    assert clusters.read(made) is None
    assert {balancer, group} <= await clusters.resources.standing()


async def test_a_denied_permission_on_one_service_is_named_while_the_others_proceed(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    mine = await clusters.resources.cluster_resources("prod", vpc)
    await clusters.aws.set_faults(AwsFault(what="deny", action="elb.*", account=clusters.account))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.classic-balancer", "elasticloadbalancing:DescribeLoadBalancers is denied")

    async def others_gone() -> bool:
        return not set(mine.balancers) & await clusters.resources.standing()

    await clusters.until("the others are gone", others_gone)
    assert set(mine.classic) <= await clusters.resources.standing()
    assert clusters.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clusters.aws.set_faults()
    await clusters.until_done(one)
    assert not await clusters.resources.standing()
