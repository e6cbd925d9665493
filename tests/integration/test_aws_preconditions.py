"""Preconditions of collecting a cluster; each that fails holds, and names what is waited for."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from service.contract import FINALLY, Hold
from service.policy.capi import CLUSTER_PAUSED, DELETE_FOR_MOVE
from service.sources.capa import AWS_ACCOUNT, Task
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider, by_cluster_api
from tests import capi
from tests.integration.blurred_lists import BlurredLists
from tests.integration.capi_fixture import CapiFixture, marked
from tests.kube import Crd
from tests.kubectl import carry_out, command_in
from workers.collectors.capa.running_check import IN_VPC

# ---- too early


async def test_machines_that_are_left_are_waited_for_by_name(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.capi.machine("prod-worker-1", "prod")
    clusters.capi.machine("prod-pool", "prod", pool=True)
    clusters.capi.machine("other-worker", "other")
    hold = await clusters.held(found)
    assert f"Machine {clusters.capi.namespace}/prod-worker-1" in hold.reason
    assert f"MachinePool {clusters.capi.namespace}/prod-pool" in hold.reason
    assert "other-worker" not in hold.reason
    assert (hold.again, hold.waits) == (True, True)
    assert hold.after is not None
    assert hold.after <= timedelta(seconds=15)
    clusters.capi.delete(capi.MACHINES, "prod-worker-1")
    clusters.capi.delete(capi.MACHINE_POOLS, "prod-pool")
    assert [target.chain for target in await clusters.planned(found)] == [FINALLY]


@pytest.mark.invariant(7)
@pytest.mark.parametrize(("crd", "kind"), [(capi.MACHINES, "Machine"), (capi.MACHINE_POOLS, "MachinePool")])
async def test_a_machine_that_can_not_be_read_is_waited_for_as_well(
    clusters: CapiFixture, vpc: Vpc, crd: Crd, kind: str
) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.cluster = BlurredLists(crd.resource, clusters.cluster)
    hold = await clusters.held(found)
    assert f"too early: {kind} that can't be read (one without a uid)" in hold.reason
    assert hold.waits


@pytest.mark.parametrize("tags", [by_cloud_provider("prod"), by_cluster_api("prod", "node")], ids=["ccm", "capi"])
async def test_an_instance_with_the_ownership_tag_is_waited_for_by_id(
    clusters: CapiFixture, vpc: Vpc, tags: dict[str, str]
) -> None:
    found = clusters.delete_marked("prod", vpc)
    await clusters.resources.instance(vpc, tags=by_cloud_provider("other"))
    instance = await clusters.resources.instance(vpc, tags=tags)
    hold = await clusters.held(found)
    assert (f"instance {instance}" in hold.reason, hold.waits) == (True, True)
    await clusters.resources.ec2.terminate_instances(InstanceIds=[instance])
    await clusters.planned(found)


async def test_an_eks_cluster_that_lives_is_waited_for_until_it_is_deleting(clusters: CapiFixture, vpc: Vpc) -> None:
    await clusters.aws.set_rate(0)
    try:
        await clusters.resources.eks_cluster("payments", vpc)
        made = clusters.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
        found = clusters.delete(made)
        hold = await clusters.held(found)
        assert ("EKS cluster payments is ACTIVE" in hold.reason, hold.waits) == (True, True)
        await clusters.resources.eks.delete_cluster(name="payments")
        await clusters.planned(found)
    finally:
        await clusters.aws.set_rate(10)
    await clusters.aws.advance(60)
    await clusters.planned(found)


async def test_concurrent_reads_of_an_eks_cluster_are_one_call(clusters: CapiFixture, vpc: Vpc) -> None:
    await clusters.resources.eks_cluster("payments", vpc)
    made = clusters.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
    facts = await clusters.facts(clusters.delete(made))
    await clusters.aws.set_faults(AwsFault(what="slow", action="eks.*", account=clusters.account, seconds=0.5))
    async with clusters.side() as side:
        holds = await asyncio.gather(*(side.collector.collect(facts) for _ in range(8)))
    for hold in holds:
        assert isinstance(hold, Hold)
        assert "EKS cluster payments is ACTIVE" in hold.reason
    # Requests during the first read are served by the next.
    assert await clusters.calls("eks.DescribeCluster") <= 2


@pytest.mark.invariant(9)
@pytest.mark.parametrize("tasks", [("security-group",), ("volume",)], ids=["in a VPC", "in no VPC"])
async def test_an_eks_cluster_that_has_the_name_of_one_on_instances_keeps_it_until_it_is_gone(
    clusters: CapiFixture, vpc: Vpc, tasks: tuple[Task, ...]
) -> None:
    clusters.set(tasks=tasks)
    await clusters.aws.set_rate(0)
    try:
        await clusters.resources.eks_cluster("prod", vpc)
        found = clusters.delete_marked("prod", vpc)
        hold = await clusters.held(found)
        assert "EKS cluster prod is ACTIVE" in hold.reason
        assert "may be its" in hold.reason
        assert not hold.waits
        # It is another cluster, so it is waited for until it is gone.
        await clusters.resources.eks.delete_cluster(name="prod")
        hold = await clusters.held(found)
        assert ("EKS cluster prod is DELETING" in hold.reason, hold.waits) == (True, True)
    finally:
        await clusters.aws.set_rate(10)
    await clusters.aws.advance(60)
    await clusters.planned(found)


@pytest.mark.invariant(9)
async def test_an_eks_cluster_that_takes_the_name_after_the_plan_is_seen_before_the_next_call(
    clusters: CapiFixture, vpc: Vpc
) -> None:
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:
        facts = await clusters.facts(found)
        assert not isinstance(await side.collector.collect(facts), Hold)
        await clusters.resources.eks_cluster("prod", vpc)
        clusters.age(IN_VPC.kept)
        assert "EKS cluster prod is ACTIVE" in str(await side.collector.objections(facts))


@pytest.mark.invariant(7)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (AwsFault(what="deny", action="eks.DescribeCluster"), "eks:DescribeCluster is denied"),
        (
            AwsFault(what="error", action="eks.DescribeCluster", code="ServerException", status=500),
            "eks:DescribeCluster",
        ),
    ],
    ids=["denied", "failing"],
)
async def test_an_eks_that_does_not_tell_holds_every_cluster_and_names_the_permission(
    clusters: CapiFixture, vpc: Vpc, fault: AwsFault, words: str
) -> None:
    found = clusters.delete_marked("prod", vpc)
    await clusters.aws.set_faults(msgspec.structs.replace(fault, account=clusters.account))
    assert words in (await clusters.held(found)).reason


async def test_a_name_that_eks_can_not_have_is_not_read(clusters: CapiFixture, vpc: Vpc) -> None:
    await clusters.planned(clusters.delete_marked("prod.eu", vpc))
    assert await clusters.calls("eks.DescribeCluster") == 0


async def test_machines_do_not_keep_a_managed_cluster_waiting(clusters: CapiFixture, vpc: Vpc) -> None:
    """EKS deletes node groups itself: the cluster is not deleting before they are gone."""
    made = clusters.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
    clusters.capi.machine("prod-pool", "prod", pool=True)
    await clusters.planned(clusters.delete(made))


# ---- paused, moving, orphaned


async def test_a_paused_cluster_is_left_alone(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.capi.pause("prod")
    hold = await clusters.held(found)
    assert "paused" in hold.reason
    assert "spec.paused" in hold.reason
    clusters.capi.pause("prod", paused=False)
    clusters.capi.annotate(capi.CLUSTERS, "prod", **{CLUSTER_PAUSED: ""})
    assert CLUSTER_PAUSED in (await clusters.held(found)).reason
    assert await clusters.calls() == 0
    clusters.capi.annotate(capi.CLUSTERS, "prod", **{CLUSTER_PAUSED: None})
    await clusters.planned(found)


@pytest.mark.parametrize("mark", [CLUSTER_PAUSED, DELETE_FOR_MOVE])
async def test_an_object_that_is_paused_or_moves_is_left_alone(clusters: CapiFixture, vpc: Vpc, mark: str) -> None:
    found = clusters.delete_marked("prod", vpc, annotations={mark: ""})
    assert mark in (await clusters.held(found)).reason
    assert await clusters.calls() == 0


async def test_an_object_whose_cluster_is_missing_holds(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.capi.delete(capi.CLUSTERS, "prod")
    assert "is not there" in (await clusters.held(found)).reason


# ---- the account and the VPC


@pytest.mark.invariant(1)
async def test_a_vpc_that_the_account_does_not_have_holds(clusters: CapiFixture) -> None:
    found = clusters.delete_marked("prod", Vpc(id="vpc-0123456789abcdef0", subnets=()))
    hold = await clusters.held(found)
    assert "vpc-0123456789abcdef0" in hold.reason
    assert "external-resource-gc=false" in hold.reason


async def test_a_vpc_that_cluster_api_has_deleted_holds_only_where_the_account_is_not_recorded(
    clusters: CapiFixture,
) -> None:
    found = clusters.delete_marked("prod", Vpc(id="vpc-0123456789abcdef0", subnets=()))
    status = {"status": {"conditions": [{"type": "VpcReady", "status": "False", "reason": "Deleted"}]}}
    clusters.set_status(found, status)
    reason = (await clusters.held(found)).reason
    assert "vpc-0123456789abcdef0" in reason
    assert "the setting aws.account" in reason
    clusters.set(account=clusters.account)
    await clusters.planned(found)
    clusters.set(account=None)
    carry_out(clusters.api, capi.AWS_CLUSTERS, command_in(reason))
    await clusters.planned(found)


async def test_without_a_vpc_the_account_must_be_recorded(clusters: CapiFixture) -> None:
    found = clusters.delete_marked("prod", None)
    reason = (await clusters.held(found)).reason
    assert "the setting aws.account" in reason
    carry_out(clusters.api, capi.AWS_CLUSTERS, command_in(reason))
    await clusters.planned(found)


async def test_a_cluster_without_a_vpc_goes_by_what_its_messages_say_and_takes_its_own_along(
    clusters: CapiFixture, vpc: Vpc
) -> None:
    """The account first, then the VPC that its resources are in."""
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    found = clusters.delete_marked("prod", None)
    for words in ("nothing tells which account", f"if its VPC is {vpc.id}, name it by"):
        reason = (await clusters.held(found)).reason
        assert words in reason
        carry_out(clusters.api, capi.AWS_CLUSTERS, command_in(reason))
    assert group in [target.id for target in await clusters.planned(found)]


async def test_among_several_vpcs_the_clusters_is_not_guessed(clusters: CapiFixture, vpc: Vpc) -> None:
    other = await clusters.resources.vpc()
    clusters.set(account=clusters.account)
    for one in (vpc, other):
        await clusters.resources.group(one, by_cloud_provider("prod"))
    reason = (await clusters.held(clusters.delete_marked("prod", None))).reason
    assert " or ".join(sorted((vpc.id, other.id))) in reason
    assert '{"id":"VPC_ID"}' in command_in(reason)


async def test_a_read_that_is_denied_holds_and_names_the_missing_permission(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    await clusters.aws.set_faults(AwsFault(what="deny", action="ec2.DescribeInstances", account=clusters.account))
    assert "ec2:DescribeInstances is denied" in (await clusters.held(found)).reason
    await clusters.aws.set_faults(AwsFault(what="html", action="ec2.DescribeVpcs", account=clusters.account))
    assert "no answer of AWS" in (await clusters.held(found)).reason
    await clusters.aws.set_faults()
    await clusters.planned(found)


# ---- right before a destructive call


async def test_the_same_is_checked_before_every_destructive_call(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:

        async def objection() -> str | None:
            found_now = await side.collector.objections(await clusters.facts(found))
            return None if found_now is None else found_now.reason

        assert await objection() is None
        clusters.capi.pause("prod")
        assert "paused" in (await objection() or "")
        clusters.capi.pause("prod", paused=False)
        clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{AWS_ACCOUNT: "999999999999"})
        assert "999999999999" in (await objection() or "")
        clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{AWS_ACCOUNT: None})
        assert await objection() is None
        clusters.capi.delete(capi.CLUSTERS, "prod")
        assert "is not there" in (await objection() or "")


async def test_waiting_clusters_are_read_together(clusters: CapiFixture, vpc: Vpc) -> None:
    names = [f"c{number}" for number in range(8)]
    found = [clusters.delete_marked(name, vpc) for name in names]
    async with clusters.side() as side:
        facts = [await clusters.facts(one) for one in found]
        plans = await asyncio.gather(*(side.collector.collect(one) for one in facts))
    assert not any(isinstance(plan, Hold) for plan in plans), msgspec.to_builtins(plans)
    actions = await clusters.actions()
    assert actions["tagging.GetResources"] == 8
    assert actions["ec2.DescribeVpcs"] < 8
    assert actions["ec2.DescribeInstances"] < 8
