"""What must be true before anything of a cluster is collected; each that is not holds, and names what is waited for."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from service.contract import FINALLY, Hold
from service.contract.aws import AWS_ACCOUNT, CLUSTER_PAUSED, DELETE_FOR_MOVE, Task
from standins.aws.behaviour import Fault
from standins.aws.networks import Vpc
from standins.aws.tags import by_cloud_provider, by_cluster_api
from standins.aws.world import REGION
from tests import capi
from tests.integration.clustered import Clustered, marked
from tests.kubectl import carry_out, command_in
from workers.handlers.aws.gates import IN_VPC

# ---- too early


async def test_machines_that_are_left_are_waited_for_by_name(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    clustered.capi.machine("prod-worker-1", "prod")
    clustered.capi.machine("prod-pool", "prod", pool=True)
    clustered.capi.machine("other-worker", "other")
    hold = await clustered.held(found)
    assert f"Machine {clustered.capi.namespace}/prod-worker-1" in hold.reason
    assert f"MachinePool {clustered.capi.namespace}/prod-pool" in hold.reason
    assert "other-worker" not in hold.reason
    assert (hold.again, hold.waits) == (True, True)
    assert hold.after is not None
    assert hold.after <= timedelta(seconds=15)
    clustered.capi.delete(capi.MACHINES, "prod-worker-1")
    clustered.capi.delete(capi.MACHINE_POOLS, "prod-pool")
    assert [target.chain for target in await clustered.planned(found)] == [FINALLY]


@pytest.mark.parametrize("tags", [by_cloud_provider("prod"), by_cluster_api("prod", "node")], ids=["ccm", "capi"])
async def test_an_instance_with_the_ownership_tag_is_waited_for_by_id(
    clustered: Clustered, vpc: Vpc, tags: dict[str, str]
) -> None:
    found = clustered.delete_marked("prod", vpc)
    await clustered.resources.instance(vpc, tags=by_cloud_provider("other"))
    instance = await clustered.resources.instance(vpc, tags=tags)
    hold = await clustered.held(found)
    assert (f"instance {instance}" in hold.reason, hold.waits) == (True, True)
    await clustered.resources.ec2.terminate_instances(InstanceIds=[instance])
    await clustered.planned(found)


async def test_an_eks_cluster_that_lives_is_waited_for_until_it_is_deleting(clustered: Clustered, vpc: Vpc) -> None:
    await clustered.aws.set_rate(0)
    try:
        await clustered.resources.eks_cluster("payments", vpc)
        made = clustered.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
        found = clustered.delete(made)
        hold = await clustered.held(found)
        assert ("EKS cluster payments is ACTIVE" in hold.reason, hold.waits) == (True, True)
        await clustered.resources.eks.delete_cluster(name="payments")
        await clustered.planned(found)
    finally:
        await clustered.aws.set_rate(10)
    await clustered.aws.advance(60)
    await clustered.planned(found)


async def test_an_eks_cluster_is_asked_for_once_by_all_who_ask_at_the_same_time(clustered: Clustered, vpc: Vpc) -> None:
    await clustered.resources.eks_cluster("payments", vpc)
    made = clustered.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
    facts = await clustered.facts(clustered.delete(made))
    await clustered.aws.trouble(Fault(what="slow", action="eks.*", account=clustered.account, seconds=0.5))
    async with clustered.side() as side:
        holds = await asyncio.gather(*(side.collector.collect(facts) for _ in range(8)))
    for hold in holds:
        assert isinstance(hold, Hold)
        assert "EKS cluster payments is ACTIVE" in hold.reason
    # Who asks while the first is on its way is answered by the next.
    assert await clustered.calls("eks.DescribeCluster") <= 2


@pytest.mark.invariant(9)
@pytest.mark.parametrize("tasks", [("security-group",), ("volume",)], ids=["in a VPC", "in no VPC"])
async def test_an_eks_cluster_that_has_the_name_of_one_on_instances_keeps_it_until_it_is_gone(
    clustered: Clustered, vpc: Vpc, tasks: tuple[Task, ...]
) -> None:
    clustered.set(tasks=tasks)
    await clustered.aws.set_rate(0)
    try:
        await clustered.resources.eks_cluster("prod", vpc)
        found = clustered.delete_marked("prod", vpc)
        hold = await clustered.held(found)
        assert "EKS cluster prod is ACTIVE" in hold.reason
        assert "may be its" in hold.reason
        assert not hold.waits
        # It is another's, so that it is waited for to the end.
        await clustered.resources.eks.delete_cluster(name="prod")
        hold = await clustered.held(found)
        assert ("EKS cluster prod is DELETING" in hold.reason, hold.waits) == (True, True)
    finally:
        await clustered.aws.set_rate(10)
    await clustered.aws.advance(60)
    await clustered.planned(found)


@pytest.mark.invariant(9)
async def test_an_eks_cluster_that_takes_the_name_after_the_plan_is_seen_before_the_next_call(
    clustered: Clustered, vpc: Vpc
) -> None:
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        facts = await clustered.facts(found)
        assert not isinstance(await side.collector.collect(facts), Hold)
        await clustered.resources.eks_cluster("prod", vpc)
        clustered.age(IN_VPC.kept)
        assert "EKS cluster prod is ACTIVE" in str(await side.collector.objects_to(facts))


@pytest.mark.invariant(7)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(what="deny", action="eks.DescribeCluster"), "eks:DescribeCluster is denied"),
        (Fault(what="error", action="eks.DescribeCluster", code="ServerException", status=500), "eks:DescribeCluster"),
    ],
    ids=["denied", "failing"],
)
async def test_an_eks_that_does_not_tell_holds_every_cluster_and_names_the_permission(
    clustered: Clustered, vpc: Vpc, fault: Fault, words: str
) -> None:
    found = clustered.delete_marked("prod", vpc)
    await clustered.aws.trouble(msgspec.structs.replace(fault, account=clustered.account))
    assert words in (await clustered.held(found)).reason


async def test_a_name_that_eks_can_not_have_is_not_asked_about(clustered: Clustered, vpc: Vpc) -> None:
    await clustered.planned(clustered.delete_marked("prod.eu", vpc))
    assert await clustered.calls("eks.DescribeCluster") == 0


async def test_machines_do_not_keep_a_managed_cluster_waiting(clustered: Clustered, vpc: Vpc) -> None:
    """Node groups are EKS's business: it does not begin to delete before they are gone."""
    made = clustered.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
    clustered.capi.machine("prod-pool", "prod", pool=True)
    await clustered.planned(clustered.delete(made))


# ---- paused, moving, orphaned


async def test_a_paused_cluster_is_left_alone(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    clustered.capi.pause("prod")
    hold = await clustered.held(found)
    assert "paused" in hold.reason
    assert "spec.paused" in hold.reason
    clustered.capi.pause("prod", paused=False)
    clustered.capi.annotate(capi.CLUSTERS, "prod", **{CLUSTER_PAUSED: ""})
    assert CLUSTER_PAUSED in (await clustered.held(found)).reason
    assert await clustered.calls() == 0
    clustered.capi.annotate(capi.CLUSTERS, "prod", **{CLUSTER_PAUSED: None})
    await clustered.planned(found)


@pytest.mark.parametrize("mark", [CLUSTER_PAUSED, DELETE_FOR_MOVE])
async def test_an_object_that_is_paused_or_moves_is_left_alone(clustered: Clustered, vpc: Vpc, mark: str) -> None:
    found = clustered.delete_marked("prod", vpc, annotations={mark: ""})
    assert mark in (await clustered.held(found)).reason
    assert await clustered.calls() == 0


async def test_an_object_whose_cluster_is_missing_holds(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    clustered.capi.delete(capi.CLUSTERS, "prod")
    assert "is not there" in (await clustered.held(found)).reason


# ---- the account and the VPC


@pytest.mark.invariant(1)
async def test_a_vpc_that_the_account_does_not_have_holds(clustered: Clustered) -> None:
    found = clustered.delete_marked("prod", Vpc(id="vpc-0123456789abcdef0", subnets=()))
    hold = await clustered.held(found)
    assert "vpc-0123456789abcdef0" in hold.reason
    assert "external-resource-gc=false" in hold.reason


async def test_a_vpc_that_cluster_api_has_deleted_holds_only_where_the_account_is_not_recorded(
    clustered: Clustered,
) -> None:
    found = clustered.delete_marked("prod", Vpc(id="vpc-0123456789abcdef0", subnets=()))
    status = {"status": {"conditions": [{"type": "VpcReady", "status": "False", "reason": "Deleted"}]}}
    clustered.set_status(found, status)
    reason = (await clustered.held(found)).reason
    assert "vpc-0123456789abcdef0" in reason
    assert "the setting aws.account" in reason
    clustered.set(account=clustered.account)
    await clustered.planned(found)
    clustered.set(account=None)
    carry_out(clustered.api, capi.AWS_CLUSTERS, command_in(reason))
    await clustered.planned(found)


async def test_without_a_vpc_the_account_must_be_recorded(clustered: Clustered) -> None:
    found = clustered.delete_marked("prod", None)
    reason = (await clustered.held(found)).reason
    assert "the setting aws.account" in reason
    carry_out(clustered.api, capi.AWS_CLUSTERS, command_in(reason))
    await clustered.planned(found)


async def test_a_cluster_without_a_vpc_goes_by_what_its_messages_say_and_takes_its_own_along(
    clustered: Clustered, vpc: Vpc
) -> None:
    """The account first, then the VPC that its resources are in."""
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    found = clustered.delete_marked("prod", None)
    for words in ("nothing tells which account", f"if its VPC is {vpc.id}, name it by"):
        reason = (await clustered.held(found)).reason
        assert words in reason
        carry_out(clustered.api, capi.AWS_CLUSTERS, command_in(reason))
    assert group in [target.id for target in await clustered.planned(found)]


async def test_of_several_vpcs_nobody_guesses_which_is_the_clusters(clustered: Clustered, vpc: Vpc) -> None:
    other = await clustered.resources.vpc()
    clustered.set(account=clustered.account)
    for one in (vpc, other):
        await clustered.resources.group(one, by_cloud_provider("prod"))
    reason = (await clustered.held(clustered.delete_marked("prod", None))).reason
    assert " or ".join(sorted((vpc.id, other.id))) in reason
    assert '{"id":"VPC_ID"}' in command_in(reason)


async def test_what_can_not_be_asked_holds_and_says_which_permission_is_wanting(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    await clustered.aws.trouble(Fault(what="deny", action="ec2.DescribeInstances", account=clustered.account))
    assert "ec2:DescribeInstances is denied" in (await clustered.held(found)).reason
    await clustered.aws.trouble(Fault(what="html", action="ec2.DescribeVpcs", account=clustered.account))
    assert "no answer of AWS" in (await clustered.held(found)).reason
    await clustered.aws.trouble()
    await clustered.planned(found)


# ---- right before a destructive call


async def test_the_same_is_asked_before_every_destructive_call(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:

        async def objection() -> str | None:
            found_now = await side.collector.objects_to(await clustered.facts(found))
            return None if found_now is None else found_now.reason

        assert await objection() is None
        clustered.capi.pause("prod")
        assert "paused" in (await objection() or "")
        clustered.capi.pause("prod", paused=False)
        clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{AWS_ACCOUNT: "999999999999"})
        assert "999999999999" in (await objection() or "")
        clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{AWS_ACCOUNT: None})
        assert await objection() is None
        clustered.capi.delete(capi.CLUSTERS, "prod")
        assert "is not there" in (await objection() or "")


async def test_clusters_that_wait_together_are_asked_for_together(clustered: Clustered, vpc: Vpc) -> None:
    names = [f"c{number}" for number in range(8)]
    found = [clustered.delete_marked(name, vpc) for name in names]
    async with clustered.side() as side:
        facts = [await clustered.facts(one) for one in found]
        plans = await asyncio.gather(*(side.collector.collect(one) for one in facts))
    assert not any(isinstance(plan, Hold) for plan in plans), msgspec.to_builtins(plans)
    actions = await clustered.actions()
    assert actions["tagging.GetResources"] == 8
    assert actions["ec2.DescribeVpcs"] < 8
    assert actions["ec2.DescribeInstances"] < 8
