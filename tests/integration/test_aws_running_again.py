"""Clusters of which something runs again while their deletion is held: what has the tag then is not what was left."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from service.contract import Event, Hold
from service.contract.aws import EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS
from service.local.aws.behaviour import Fault
from service.local.aws.networks import Vpc
from service.local.aws.tags import by_cloud_provider
from service.local.aws.world import REGION
from tests import capi
from tests.clusters import TestApi
from tests.integration.clustered import Clustered, marked
from workers.handlers.aws.checking import SETTLED
from workers.handlers.aws.gates import IN_VPC, NOWHERE

SERVED = by_cloud_provider("prod", "default/web")
DAYS = timedelta(days=2)
INSTANCES = "ec2.DescribeInstances"


@pytest.mark.parametrize("what", ["instance", "Machine"])
async def test_nothing_planned_is_deleted_while_something_of_that_name_runs_again(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc, what: str
) -> None:
    world = clustered.resources
    balancer = await world.balancer(vpc, SERVED)
    await world.protect(balancer)
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.balancer", "protect")
    clustered.age(DAYS)
    instance = ""
    if what == "instance":
        instance = await world.instance(vpc, tags=by_cloud_provider("prod"))
    else:
        clustered.capi.machine("prod-again", "prod")
    fresh = await world.balancer(vpc, SERVED, of="net")
    await clustered.until_job(one, "aws.balancer", "too early", instance or "prod-again", waits=True)
    await world.protect(balancer, protected=False)
    await clustered.until_job(one, "aws.balancer", "too early", instance or "prod-again", waits=True)
    assert {balancer, fresh} <= await world.standing()
    # It goes on by itself; days have passed again, for who keeps answers.
    if instance:
        await world.ec2.terminate_instances(InstanceIds=[instance])
    else:
        clustered.capi.delete(capi.MACHINES, "prod-again")
    await clustered.until_done(one)
    assert not {balancer, fresh} & await world.standing()


async def _settling(clustered: Clustered, stack: AsyncExitStack, vpc: Vpc) -> tuple[Any, Event]:
    """A cluster that had nothing, and whose last look is to come in ten minutes."""
    clustered.set(settle=timedelta(minutes=10))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)

    async def planned() -> bool:
        return "plan" in await clustered.deletion(one)

    await clustered.until("it is planned", planned)
    return made, one


async def test_the_last_look_removes_nothing_while_something_of_that_name_runs_again(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    world = clustered.resources
    made, one = await _settling(clustered, stack, vpc)
    clustered.age(DAYS)
    instance = await world.instance(vpc, tags=by_cloud_provider("prod"))
    fresh = await world.balancer(vpc, SERVED, of="net")
    await clustered.jump(timedelta(minutes=10))
    await clustered.until_job(one, SETTLED, "too early", f"instance {instance}", waits=True)
    assert fresh in await world.standing()
    assert clustered.read(made) is not None


async def test_an_errand_of_the_last_look_is_stopped_by_what_runs_by_then(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    """Something was left over when it looked, and could not be removed for days."""
    world = clustered.resources
    _, one = await _settling(clustered, stack, vpc)
    late = await world.balancer(vpc, SERVED, of="net")
    await world.protect(late)
    await clustered.jump(timedelta(minutes=10))
    await clustered.until_job(one, SETTLED, late, "protect")
    clustered.age(DAYS)
    instance = await world.instance(vpc, tags=by_cloud_provider("prod"))
    await world.protect(late, protected=False)
    await clustered.until_job(one, SETTLED, "too early", f"instance {instance}", waits=True)
    assert late in await world.standing()


@pytest.mark.long
async def test_a_task_that_is_added_in_the_middle_is_asked_what_it_would_have_been_asked_at_first(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    """What runs in another VPC is of no interest to balancers; a volume may be its."""
    world = clustered.resources
    other = await world.vpc()
    balancer = await world.balancer(vpc, SERVED)
    await world.protect(balancer)
    instance = await world.instance(other, tags=by_cloud_provider("prod"))
    volume = await world.volume(by_cloud_provider("prod"))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.balancer", "protect")
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer,volume"})
    await world.protect(balancer, protected=False)
    await clustered.until_job(one, "aws.balancer", "too early", f"instance {instance} in {other.id}", waits=True)
    assert volume in await clustered.volumes()
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})
    await clustered.until_done(one)
    assert volume in await clustered.volumes()
    assert balancer not in await world.standing()


async def test_a_name_that_eks_does_not_know_may_be_that_of_a_cluster_on_instances(
    clustered: Clustered, vpc: Vpc
) -> None:
    instance = await clustered.resources.instance(vpc, tags=by_cloud_provider("legacy"))
    await clustered.resources.balancer(vpc, by_cloud_provider("legacy", "default/web"), of="net")
    made = clustered.capi.managed("prod", eks="legacy", region=REGION, vpc=vpc.id, **marked())
    found = clustered.delete(made)
    assert f"too early: instance {instance}" in (await clustered.held(found)).reason
    await clustered.resources.ec2.terminate_instances(InstanceIds=[instance])
    assert len(await clustered.planned(found)) == 2


@pytest.mark.long
async def test_instances_of_an_eks_cluster_elsewhere_do_not_keep_this_one(clustered: Clustered, vpc: Vpc) -> None:
    other = await clustered.resources.vpc()
    await clustered.resources.instance(other, tags=by_cloud_provider("legacy"))
    made = clustered.capi.managed("prod", eks="legacy", region=REGION, vpc=vpc.id, **marked())
    await clustered.planned(clustered.delete(made))


# ---- how often it is asked


async def test_a_burst_of_calls_after_a_plan_asks_nothing_that_the_plan_has_asked(
    clustered: Clustered, vpc: Vpc
) -> None:
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        facts = await clustered.facts(found)
        assert not isinstance(await side.collector.collect(facts), Hold)
        before = await clustered.calls(INSTANCES)
        for _ in range(20):
            assert await side.collector.objects_to(facts) is None
        assert await clustered.calls(INSTANCES) == before
        instance = await clustered.resources.instance(vpc, tags=by_cloud_provider("prod"))
        clustered.age(IN_VPC.kept)
        assert f"instance {instance}" in str(await side.collector.objects_to(facts))
        # What was found is not kept: it may be gone any moment.
        await clustered.resources.ec2.terminate_instances(InstanceIds=[instance])
        assert await side.collector.objects_to(facts) is None


async def test_for_what_is_in_no_vpc_it_is_asked_sooner(clustered: Clustered, vpc: Vpc) -> None:
    clustered.set(tasks=("volume",))
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        facts = await clustered.facts(found)
        assert not isinstance(await side.collector.collect(facts), Hold)
        instance = await clustered.resources.instance(vpc, tags=by_cloud_provider("prod"))
        assert await side.collector.objects_to(facts) is None
        clustered.age(NOWHERE.kept)
        assert f"instance {instance}" in str(await side.collector.objects_to(facts))


async def test_one_list_of_instances_serves_all_clusters_of_an_account(clustered: Clustered, vpc: Vpc) -> None:
    names = [f"c{number}" for number in range(12)]
    found = [clustered.delete_marked(name, vpc) for name in names]
    async with clustered.side() as side:
        facts = [await clustered.facts(one) for one in found]
        plans = await asyncio.gather(*(side.collector.collect(one) for one in facts))
        assert not any(isinstance(plan, Hold) for plan in plans)
        clustered.age(IN_VPC.kept)
        before = await clustered.calls(INSTANCES)
        for one in facts:
            assert await side.collector.objects_to(one) is None
        assert await clustered.calls(INSTANCES) == before + 1
        # That list is of some age, too, when it is used next.
        instance = await clustered.resources.instance(vpc, tags=by_cloud_provider("c7"))
        clustered.age(IN_VPC.kept)
        assert f"instance {instance}" in str(await side.collector.objects_to(facts[7]))


async def test_nothing_is_destroyed_where_it_can_not_be_asked_what_runs(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        facts = await clustered.facts(found)
        assert await side.collector.objects_to(facts) is None
        clustered.age(IN_VPC.kept)
        await clustered.aws.trouble(Fault(what="deny", action=INSTANCES, account=clustered.account))
        assert "ec2:DescribeInstances is denied" in str(await side.collector.objects_to(facts))
        await clustered.aws.trouble()
        assert await side.collector.objects_to(facts) is None


async def test_what_is_in_no_vpc_is_never_judged_by_a_list_of_namesakes_that_is_some_seconds_old(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
    clustered.set(tasks=("volume",))
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        facts = await clustered.facts(found)
        assert await side.collector.objects_to(facts) is None
        elsewhere.unmanaged("prod", region=REGION)
        assert f"{elsewhere.namespace}/prod" in str(await side.collector.objects_to(facts))


async def test_what_only_a_person_changes_is_looked_at_again_after_a_minute(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    found = clustered.delete_marked("prod", vpc)
    clustered.capi.pause("prod")
    assert (await clustered.held(found)).after == timedelta(minutes=1)
    clustered.capi.pause("prod", paused=False)
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
    elsewhere.unmanaged("prod", region=REGION)
    assert (await clustered.held(found)).after == timedelta(minutes=1)
    # What passes by itself is looked at sooner.
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    clustered.capi.machine("prod-1", "prod")
    assert (await clustered.held(found)).after == timedelta(seconds=10)


# ---- while something takes its time


async def test_an_opt_out_is_noticed_while_a_snapshot_is_being_made(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    clustered.set(tasks=("volume",), snapshot_first=True)
    await clustered.aws.behave(snapshot_takes=36_000.0)
    volume = await clustered.resources.volume(by_cloud_provider("prod"))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.volume", "is being made", held=False)
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_GC: "false"})

    async def released() -> bool:
        # It asks once a minute.
        clustered.age(timedelta(seconds=30))
        return clustered.read(made) is None

    await clustered.until("the object is let go", released)
    assert volume in await clustered.volumes()
