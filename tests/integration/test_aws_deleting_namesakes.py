"""Two clusters of one name that are deleted at the same time neither wait for each other forever nor delete what the
other keeps. Resources in a VPC are told apart by it; volumes and addresses are deleted if both want that and nothing of
either runs."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from service.contract.names import DRY_RUN, GC
from service.engine.guard import DeletedObject, Guard
from service.policy.capi import CLUSTER_PAUSED, DELETE_FOR_MOVE
from service.settings import GuardSettings
from service.sources.capa import EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider, by_cluster_api
from tests import capi
from tests.capi import CapiObjects
from tests.integration.capi_fixture import UNMANAGED, CapiFixture, marked

VOLUMES = ("load-balancer", "volume")


def leave(elsewhere: CapiObjects, vpc: str, **metadata: Any) -> Any:
    """A namesake in deletion that waits for our finalizer."""
    elsewhere.unmanaged("prod", region=REGION, vpc=vpc, **marked(**metadata))
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    return elsewhere.get(capi.AWS_CLUSTERS, "prod")


async def test_of_two_namesakes_that_go_at_the_same_time_the_first_goes_first(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    other = await clusters.resources.vpc()
    younger = elsewhere.unmanaged("prod", region=REGION, vpc=other.id, **marked())
    first = clusters.delete_marked("prod", vpc)
    # While the other lives it is a conflict, whatever its VPC.
    assert f"{elsewhere.namespace}/prod" in (await clusters.held(first)).reason
    await clusters.until_another_second(first)
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    younger = elsewhere.get(capi.AWS_CLUSTERS, "prod")
    assert younger["metadata"]["deletionTimestamp"] > first["metadata"]["deletionTimestamp"]
    await clusters.planned(first)
    assert f"{clusters.capi.namespace}/prod" in (await clusters.held(younger)).reason
    elsewhere.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": vpc.id}}}})
    assert f"{elsewhere.namespace}/prod" in (await clusters.held(first)).reason


@pytest.mark.parametrize("mark", [CLUSTER_PAUSED, DELETE_FOR_MOVE])
async def test_one_that_is_paused_or_moves_holds_whatever_its_vpc_although_it_goes(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects, mark: str
) -> None:
    other = await clusters.resources.vpc()
    first = clusters.delete_marked("prod", vpc)
    await clusters.until_another_second(first)
    leave(elsewhere, other.id)
    await clusters.planned(first)
    elsewhere.annotate(capi.AWS_CLUSTERS, "prod", **{mark: ""})
    hold = await clusters.held(first)
    assert f"{elsewhere.namespace}/prod" in hold.reason
    assert not hold.waits


# ---- outside a VPC


async def test_two_that_both_want_their_volumes_gone_do_not_wait_for_each_other(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    other = await clusters.resources.vpc()
    volumes = {await clusters.resources.volume(by_cloud_provider("prod")) for _ in range(2)}
    clusters.set(tasks=VOLUMES)
    first = clusters.delete_marked("prod", vpc)
    second = leave(elsewhere, other.id)
    for found in (first, second):
        planned = {target.id for target in await clusters.planned(found)}
        assert volumes <= planned


async def test_where_nothing_but_volumes_is_wanted_their_vpcs_say_nothing(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    first = clusters.delete_marked("prod", vpc)
    leave(elsewhere, vpc.id)
    clusters.set(tasks=("volume",))
    await clusters.planned(first)
    clusters.set(tasks=VOLUMES)
    assert "their VPCs don't tell them apart" in (await clusters.held(first)).reason


KEEPS: dict[str, tuple[Callable[[CapiObjects], object], str]] = {
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
async def test_a_namesake_in_deletion_that_may_still_need_its_volumes_holds_them(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects, case: str
) -> None:
    other = await clusters.resources.vpc()
    clusters.set(tasks=VOLUMES)
    first = clusters.delete_marked("prod", vpc)
    leave(elsewhere, other.id)
    await clusters.planned(first)
    change, words = KEEPS[case]
    change(elsewhere)
    reason = (await clusters.held(first)).reason
    assert f"{elsewhere.namespace}/prod" in reason
    assert words in reason


async def test_one_that_goes_without_waiting_for_us_holds(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    other = await clusters.resources.vpc()
    clusters.set(tasks=VOLUMES)
    first = clusters.delete_marked("prod", vpc)
    leave(elsewhere, other.id, finalizers=["awscluster.infrastructure.cluster.x-k8s.io"])
    assert f"{elsewhere.namespace}/prod" in (await clusters.held(first)).reason


async def test_one_that_the_guard_holds_keeps_its_volumes(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    other = await clusters.resources.vpc()
    clusters.set(tasks=VOLUMES)
    guard = GuardSettings(most=1)
    sources = {name: msgspec.structs.replace(source, guard=guard) for name, source in clusters.settings.sources.items()}
    clusters.settings = msgspec.structs.replace(clusters.settings, sources=sources)
    first = clusters.delete_marked("prod", vpc)
    asked = [DeletedObject("somebody", 0), DeletedObject(first["metadata"]["uid"], 0)]
    await Guard(clusters.installation).admit(UNMANAGED, asked, guard)
    leave(elsewhere, other.id)
    assert "guard" in (await clusters.held(first)).reason
    assert await Guard(clusters.installation).release(UNMANAGED, "test")
    await clusters.planned(first)


@pytest.mark.long
async def test_instances_and_the_eks_cluster_of_a_namesake_are_waited_for(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    await clusters.aws.set_rate(0)
    try:
        other = await clusters.resources.vpc()
        clusters.set(tasks=("volume",))
        await clusters.resources.eks_cluster("prod", other)
        elsewhere.managed("payments", eks="prod", region=REGION, vpc=other.id, **marked())
        elsewhere.delete(capi.AWS_MANAGED_CONTROL_PLANES, "payments-control-plane")
        first = clusters.delete_marked("prod", vpc)
        assert "EKS cluster prod is ACTIVE" in (await clusters.held(first)).reason
        await clusters.resources.eks.delete_cluster(name="prod")
        assert "EKS cluster prod is DELETING" in (await clusters.held(first)).reason
        await clusters.aws.advance(60)
        await clusters.planned(first)
        # By Cluster API's tag, which has the name of the Cluster.
        instance = await clusters.resources.instance(other, tags=by_cluster_api("payments", "node"))
        assert f"instance {instance}" in (await clusters.held(first)).reason
    finally:
        await clusters.aws.set_rate(10)


async def test_a_namesake_is_read_again_before_every_destructive_call(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    other = await clusters.resources.vpc()
    clusters.set(tasks=VOLUMES)
    first = clusters.delete_marked("prod", vpc)
    leave(elsewhere, other.id)
    async with clusters.side() as side:

        async def objection() -> str:
            return str(await side.collector.objections(await clusters.facts(first)) or "")

        assert await objection() == ""
        elsewhere.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})
        assert "with it volume would stay" in await objection()


@pytest.mark.long
async def test_two_of_one_name_that_go_together_take_along_all_that_was_theirs(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    """Also an address in use by what the other has yet to remove."""
    builder, other = clusters.resources, await clusters.resources.vpc()
    clusters.set(tasks=("load-balancer", "volume", "nat-gateway", "elastic-ip"))
    for where in (vpc, other):
        await builder.balancer(where, by_cloud_provider("prod", "default/web"))
        await builder.volume(by_cloud_provider("prod"))
        address = await builder.elastic_ip(by_cloud_provider("prod"))
        await builder.nat_gateway(where, address, by_cloud_provider("prod"))
    before = await builder.standing()
    await builder.volume(by_cloud_provider("other"))
    foreign = await builder.standing() - before
    first = clusters.delete_marked("prod", vpc)
    events = [clusters.event(one) for one in (first, leave(elsewhere, other.id))]
    await clusters.publish(*events)
    await clusters.work(stack)
    for one in events:
        await clusters.until_done(one)
    assert await builder.standing() == foreign
