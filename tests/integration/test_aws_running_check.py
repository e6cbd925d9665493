"""Clusters of which something runs again while their deletion is held: what has the tag then is not what was left."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from service.contract import Event, Hold
from service.sources.capa import EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider
from tests import capi
from tests.api_servers import TestApi
from tests.integration.capi_fixture import CapiFixture, marked
from workers.collectors.capa.final_check import FINAL_CHECK
from workers.collectors.capa.running_check import IN_VPC, OUTSIDE_VPC

SERVED = by_cloud_provider("prod", "default/web")
DAYS = timedelta(days=2)
INSTANCES = "ec2.DescribeInstances"


@pytest.mark.parametrize("what", ["instance", "Machine"])
async def test_nothing_planned_is_deleted_while_something_of_that_name_runs_again(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc, what: str
) -> None:
    builder = clusters.resources
    balancer = await builder.balancer(vpc, SERVED)
    await builder.protect(balancer)
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.balancer", "protect")
    clusters.age(DAYS)
    instance = ""
    if what == "instance":
        instance = await builder.instance(vpc, tags=by_cloud_provider("prod"))
    else:
        clusters.capi.machine("prod-again", "prod")
    fresh = await builder.balancer(vpc, SERVED, of="net")
    await clusters.until_job(one, "aws.balancer", "too early", instance or "prod-again", waits=True)
    await builder.protect(balancer, protected=False)
    await clusters.until_job(one, "aws.balancer", "too early", instance or "prod-again", waits=True)
    assert {balancer, fresh} <= await builder.standing()
    # It continues by itself; for cached results, days have passed again.
    if instance:
        await builder.ec2.terminate_instances(InstanceIds=[instance])
    else:
        clusters.capi.delete(capi.MACHINES, "prod-again")
    await clusters.until_done(one)
    assert not {balancer, fresh} & await builder.standing()


async def _settling(clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc) -> tuple[Any, Event]:
    """A cluster that had nothing, and whose final check is due in ten minutes."""
    clusters.set(settle=timedelta(minutes=10))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)

    async def planned() -> bool:
        return "plan" in await clusters.deletion(one)

    await clusters.until("it is planned", planned)
    return made, one


async def test_the_final_check_removes_nothing_while_something_of_that_name_runs_again(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    builder = clusters.resources
    made, one = await _settling(clusters, stack, vpc)
    clusters.age(DAYS)
    instance = await builder.instance(vpc, tags=by_cloud_provider("prod"))
    fresh = await builder.balancer(vpc, SERVED, of="net")
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_job(one, FINAL_CHECK, "too early", f"instance {instance}", waits=True)
    assert fresh in await builder.standing()
    assert clusters.read(made) is not None


async def test_a_removal_of_the_final_check_is_stopped_by_what_runs_by_then(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    """Something was left when it checked, and could not be removed for days."""
    builder = clusters.resources
    _, one = await _settling(clusters, stack, vpc)
    late = await builder.balancer(vpc, SERVED, of="net")
    await builder.protect(late)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_job(one, "aws.balancer", late, "protect")
    clusters.age(DAYS)
    instance = await builder.instance(vpc, tags=by_cloud_provider("prod"))
    await builder.protect(late, protected=False)
    await clusters.until_job(one, "aws.balancer", "too early", f"instance {instance}", waits=True)
    assert late in await builder.standing()


@pytest.mark.long
async def test_a_task_that_is_added_in_the_middle_passes_the_checks_of_a_plan(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    """Instances in another VPC do not matter to load balancers; a volume may be theirs."""
    builder = clusters.resources
    other = await builder.vpc()
    balancer = await builder.balancer(vpc, SERVED)
    await builder.protect(balancer)
    instance = await builder.instance(other, tags=by_cloud_provider("prod"))
    volume = await builder.volume(by_cloud_provider("prod"))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.balancer", "protect")
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer,volume"})
    await builder.protect(balancer, protected=False)
    await clusters.until_job(one, "aws.balancer", "too early", f"instance {instance} in {other.id}", waits=True)
    assert volume in await clusters.volumes()
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})
    await clusters.until_done(one)
    assert volume in await clusters.volumes()
    assert balancer not in await builder.standing()


async def test_a_name_that_eks_does_not_know_may_be_that_of_a_cluster_on_instances(
    clusters: CapiFixture, vpc: Vpc
) -> None:
    instance = await clusters.resources.instance(vpc, tags=by_cloud_provider("legacy"))
    await clusters.resources.balancer(vpc, by_cloud_provider("legacy", "default/web"), of="net")
    made = clusters.capi.managed("prod", eks="legacy", region=REGION, vpc=vpc.id, **marked())
    found = clusters.delete(made)
    assert f"too early: instance {instance}" in (await clusters.held(found)).reason
    await clusters.resources.ec2.terminate_instances(InstanceIds=[instance])
    assert len(await clusters.planned(found)) == 2


@pytest.mark.long
async def test_instances_of_an_eks_cluster_elsewhere_do_not_keep_this_one(clusters: CapiFixture, vpc: Vpc) -> None:
    other = await clusters.resources.vpc()
    await clusters.resources.instance(other, tags=by_cloud_provider("legacy"))
    made = clusters.capi.managed("prod", eks="legacy", region=REGION, vpc=vpc.id, **marked())
    await clusters.planned(clusters.delete(made))


# ---- how often it is checked


async def test_a_burst_of_calls_after_a_plan_repeats_no_read_of_the_plan(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:
        facts = await clusters.facts(found)
        assert not isinstance(await side.collector.collect(facts), Hold)
        before = await clusters.calls(INSTANCES)
        for _ in range(20):
            assert await side.collector.objections(facts) is None
        assert await clusters.calls(INSTANCES) == before
        instance = await clusters.resources.instance(vpc, tags=by_cloud_provider("prod"))
        clusters.age(IN_VPC.kept)
        assert f"instance {instance}" in str(await side.collector.objections(facts))
        # Running instances are not cached: they may end at any moment.
        await clusters.resources.ec2.terminate_instances(InstanceIds=[instance])
        assert await side.collector.objections(facts) is None


async def test_resources_outside_a_vpc_are_checked_sooner(clusters: CapiFixture, vpc: Vpc) -> None:
    clusters.set(tasks=("volume",))
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:
        facts = await clusters.facts(found)
        assert not isinstance(await side.collector.collect(facts), Hold)
        instance = await clusters.resources.instance(vpc, tags=by_cloud_provider("prod"))
        assert await side.collector.objections(facts) is None
        clusters.age(OUTSIDE_VPC.kept)
        assert f"instance {instance}" in str(await side.collector.objections(facts))


async def test_one_list_of_instances_serves_all_clusters_of_an_account(clusters: CapiFixture, vpc: Vpc) -> None:
    names = [f"c{number}" for number in range(12)]
    found = [clusters.delete_marked(name, vpc) for name in names]
    async with clusters.side() as side:
        facts = [await clusters.facts(one) for one in found]
        plans = await asyncio.gather(*(side.collector.collect(one) for one in facts))
        assert not any(isinstance(plan, Hold) for plan in plans)
        clusters.age(IN_VPC.kept)
        before = await clusters.calls(INSTANCES)
        for one in facts:
            assert await side.collector.objections(one) is None
        assert await clusters.calls(INSTANCES) == before + 1
        # That list is of some age, too, when it is used next.
        instance = await clusters.resources.instance(vpc, tags=by_cloud_provider("c7"))
        clusters.age(IN_VPC.kept)
        assert f"instance {instance}" in str(await side.collector.objections(facts[7]))


async def test_nothing_is_deleted_if_what_runs_can_not_be_read(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:
        facts = await clusters.facts(found)
        assert await side.collector.objections(facts) is None
        clusters.age(IN_VPC.kept)
        await clusters.aws.set_faults(AwsFault(what="deny", action=INSTANCES, account=clusters.account))
        assert "ec2:DescribeInstances is denied" in str(await side.collector.objections(facts))
        await clusters.aws.set_faults()
        assert await side.collector.objections(facts) is None


async def test_what_is_in_no_vpc_is_never_judged_by_a_list_of_namesakes_that_is_some_seconds_old(
    clusters: CapiFixture, vpc: Vpc, api: TestApi
) -> None:
    elsewhere = capi.CapiObjects(api.kube, api.namespace())
    clusters.watch_also(elsewhere.namespace)
    clusters.set(tasks=("volume",))
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:
        facts = await clusters.facts(found)
        assert await side.collector.objections(facts) is None
        elsewhere.unmanaged("prod", region=REGION)
        assert f"{elsewhere.namespace}/prod" in str(await side.collector.objections(facts))


async def test_a_hold_that_only_an_operator_can_end_is_checked_again_after_a_minute(
    clusters: CapiFixture, vpc: Vpc, api: TestApi
) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.capi.pause("prod")
    assert (await clusters.held(found)).after == timedelta(minutes=1)
    clusters.capi.pause("prod", paused=False)
    elsewhere = capi.CapiObjects(api.kube, api.namespace())
    clusters.watch_also(elsewhere.namespace)
    elsewhere.unmanaged("prod", region=REGION)
    assert (await clusters.held(found)).after == timedelta(minutes=1)
    # What ends by itself is checked sooner.
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    clusters.capi.machine("prod-1", "prod")
    assert (await clusters.held(found)).after == timedelta(seconds=10)


# ---- during slow operations


async def test_an_opt_out_is_noticed_while_a_snapshot_is_being_made(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    clusters.set(tasks=("volume",), snapshot_first=True)
    await clusters.aws.behave(snapshot_takes=36_000.0)
    volume = await clusters.resources.volume(by_cloud_provider("prod"))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.volume", "is being made", held=False)
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_GC: "false"})

    async def released() -> bool:
        # It rechecks once a minute.
        clusters.age(timedelta(seconds=30))
        return clusters.read(made) is None

    await clusters.until("the object is let go", released)
    assert volume in await clusters.volumes()
