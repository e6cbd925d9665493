"""Two clusters of one name that go at the same time neither wait for each other for ever nor take what the other keeps.
What is in a VPC is told apart by it; volumes and addresses go where both want them gone and nothing of either runs."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from service.contract.aws import (
    CLUSTER_PAUSED,
    DELETE_FOR_MOVE,
    EXTERNAL_RESOURCE_GC,
    EXTERNAL_RESOURCE_TASKS,
)
from service.contract.names import DRY_RUN, GC
from service.local.aws.networks import Vpc
from service.local.aws.tags import by_cloud_provider, by_cluster_api
from service.local.aws.world import REGION
from service.settings import GuardSettings
from service.stream.guard import Going, Guard
from tests import capi
from tests.capi import Capi
from tests.integration.clustered import UNMANAGED, Clustered, marked

VOLUMES = ("load-balancer", "volume")


def leave(elsewhere: Capi, vpc: str, **metadata: Any) -> Any:
    """A namesake that is going, and waits for us."""
    elsewhere.unmanaged("prod", region=REGION, vpc=vpc, **marked(**metadata))
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    return elsewhere.get(capi.AWS_CLUSTERS, "prod")


async def test_of_two_namesakes_that_go_at_the_same_time_the_first_goes_first(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    other = await clustered.resources.vpc()
    younger = elsewhere.unmanaged("prod", region=REGION, vpc=other.id, **marked())
    first = clustered.delete_marked("prod", vpc)
    # While the other lives it is in the way, whatever its VPC.
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(first)).reason
    await clustered.until_another_second(first)
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    younger = elsewhere.get(capi.AWS_CLUSTERS, "prod")
    assert younger["metadata"]["deletionTimestamp"] > first["metadata"]["deletionTimestamp"]
    await clustered.planned(first)
    assert f"{clustered.capi.namespace}/prod" in (await clustered.held(younger)).reason
    elsewhere.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": vpc.id}}}})
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(first)).reason


# ---- what is in no VPC


async def test_two_that_both_want_their_volumes_gone_do_not_wait_for_each_other(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    other = await clustered.resources.vpc()
    volumes = {await clustered.resources.volume(by_cloud_provider("prod")) for _ in range(2)}
    clustered.set(tasks=VOLUMES)
    first = clustered.delete_marked("prod", vpc)
    second = leave(elsewhere, other.id)
    for found in (first, second):
        planned = {target.id for target in await clustered.planned(found)}
        assert volumes <= planned


async def test_where_nothing_but_volumes_is_wanted_their_vpcs_say_nothing(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    first = clustered.delete_marked("prod", vpc)
    leave(elsewhere, vpc.id)
    clustered.set(tasks=("volume",))
    await clustered.planned(first)
    clustered.set(tasks=VOLUMES)
    assert "their VPCs don't tell them apart" in (await clustered.held(first)).reason


KEEPS: dict[str, tuple[Callable[[Capi], object], str]] = {
    "a machine": (lambda there: there.machine("prod-1", "prod"), "prod-1"),
    "a pool": (lambda there: there.machine("prod-pool", "prod", pool=True), "prod-pool"),
    "no volumes": (
        lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"}),
        "with it volume would stay",
    ),
    "opted out": (
        lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_GC: "false"}),
        "out-of-scope",
    ),
    "opted out of ours": (lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{GC: "disabled"}), "out-of-scope"),
    "retained": (
        lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{"knell.dev/deletion-policy": "retain"}),
        "retain",
    ),
    "retained by its Namespace": (
        lambda there: there.kube.patch(
            f"/api/v1/namespaces/{there.namespace}",
            {"metadata": {"annotations": {"knell.dev/deletion-policy": "retain"}}},
        ),
        "retain",
    ),
    "a dry run": (lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{DRY_RUN: "true"}), "dry-run"),
    "paused itself": (lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{CLUSTER_PAUSED: ""}), "same name"),
    "moving": (lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{DELETE_FOR_MOVE: ""}), "same name"),
    "paused": (lambda there: there.pause("prod"), "spec.paused"),
    "orphaned": (lambda there: there.delete(capi.CLUSTERS, "prod"), "is not there"),
    "an odd task": (
        lambda there: there.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "volumes"}), "volumes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KEEPS)
async def test_one_that_is_going_and_may_still_need_its_volumes_holds_them(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi, case: str
) -> None:
    other = await clustered.resources.vpc()
    clustered.set(tasks=VOLUMES)
    first = clustered.delete_marked("prod", vpc)
    leave(elsewhere, other.id)
    await clustered.planned(first)
    change, words = KEEPS[case]
    change(elsewhere)
    reason = (await clustered.held(first)).reason
    assert f"{elsewhere.namespace}/prod" in reason
    assert words in reason


async def test_one_that_goes_without_waiting_for_us_holds(clustered: Clustered, vpc: Vpc, elsewhere: Capi) -> None:
    other = await clustered.resources.vpc()
    clustered.set(tasks=VOLUMES)
    first = clustered.delete_marked("prod", vpc)
    leave(elsewhere, other.id, finalizers=["awscluster.infrastructure.cluster.x-k8s.io"])
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(first)).reason


async def test_one_that_the_guard_holds_keeps_its_volumes(clustered: Clustered, vpc: Vpc, elsewhere: Capi) -> None:
    other = await clustered.resources.vpc()
    clustered.set(tasks=VOLUMES)
    guard = GuardSettings(most=1)
    sources = {
        name: msgspec.structs.replace(source, guard=guard) for name, source in clustered.settings.sources.items()
    }
    clustered.settings = msgspec.structs.replace(clustered.settings, sources=sources)
    first = clustered.delete_marked("prod", vpc)
    asked = [Going("somebody", 0), Going(first["metadata"]["uid"], 0)]
    await Guard(clustered.installation).admit(UNMANAGED, asked, guard)
    leave(elsewhere, other.id)
    assert "guard" in (await clustered.held(first)).reason
    assert await Guard(clustered.installation).release(UNMANAGED, "test")
    await clustered.planned(first)


@pytest.mark.long
async def test_instances_and_the_eks_cluster_of_a_namesake_are_waited_for(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    await clustered.aws.set_rate(0)
    try:
        other = await clustered.resources.vpc()
        clustered.set(tasks=("volume",))
        await clustered.resources.eks_cluster("prod", other)
        elsewhere.managed("payments", eks="prod", region=REGION, vpc=other.id, **marked())
        elsewhere.delete(capi.AWS_MANAGED_CONTROL_PLANES, "payments-control-plane")
        first = clustered.delete_marked("prod", vpc)
        assert "EKS cluster prod is ACTIVE" in (await clustered.held(first)).reason
        await clustered.resources.eks.delete_cluster(name="prod")
        assert "EKS cluster prod is DELETING" in (await clustered.held(first)).reason
        await clustered.aws.advance(60)
        await clustered.planned(first)
        # By Cluster API's tag, which has the name of the Cluster.
        instance = await clustered.resources.instance(other, tags=by_cluster_api("payments", "node"))
        assert f"instance {instance}" in (await clustered.held(first)).reason
    finally:
        await clustered.aws.set_rate(10)


async def test_a_namesake_is_asked_again_before_every_destructive_call(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    other = await clustered.resources.vpc()
    clustered.set(tasks=VOLUMES)
    first = clustered.delete_marked("prod", vpc)
    leave(elsewhere, other.id)
    async with clustered.side() as side:

        async def objection() -> str:
            return str(await side.collector.objects_to(await clustered.facts(first)) or "")

        assert await objection() == ""
        elsewhere.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})
        assert "with it volume would stay" in await objection()


@pytest.mark.long
async def test_two_of_one_name_that_go_together_take_along_all_that_was_theirs(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc, elsewhere: Capi
) -> None:
    """Also an address that is in use by what the other has still to remove."""
    world, other = clustered.resources, await clustered.resources.vpc()
    clustered.set(tasks=("load-balancer", "volume", "nat-gateway", "elastic-ip"))
    for where in (vpc, other):
        await world.balancer(where, by_cloud_provider("prod", "default/web"))
        await world.volume(by_cloud_provider("prod"))
        address = await world.elastic_ip(by_cloud_provider("prod"))
        await world.nat_gateway(where, address, by_cloud_provider("prod"))
    before = await world.standing()
    await world.volume(by_cloud_provider("other"))
    foreign = await world.standing() - before
    first = clustered.delete_marked("prod", vpc)
    events = [clustered.event(one) for one in (first, leave(elsewhere, other.id))]
    await clustered.publish(*events)
    await clustered.work(stack)
    for one in events:
        await clustered.until_done(one)
    assert await world.standing() == foreign
