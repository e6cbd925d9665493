"""What must be true before anything of a cluster is collected; each that is not holds, and names what is waited for."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from service.contract import FINALLY, Hold
from service.contract.aws import AWS_ACCOUNT, AWS_CLUSTERS, CLUSTER_PAUSED, DELETE_FOR_MOVE
from service.local.aws.behaviour import Fault
from service.local.aws.networks import Vpc
from service.local.aws.tags import by_cloud_provider, by_cluster_api
from service.local.aws.world import REGION
from tests import capi
from tests.clusters import TestApi
from tests.integration.clustered import ON_AWS, Clustered, marked

pytestmark = ON_AWS


@pytest.fixture
async def vpc(clustered: Clustered) -> Vpc:
    return await clustered.resources.vpc()


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
    assert hold.again
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
    assert f"instance {instance}" in (await clustered.held(found)).reason
    await clustered.resources.ec2.terminate_instances(InstanceIds=[instance])
    await clustered.planned(found)


async def test_an_eks_cluster_that_lives_is_waited_for_until_it_is_deleting(clustered: Clustered, vpc: Vpc) -> None:
    await clustered.aws.set_rate(0)
    try:
        await clustered.resources.eks_cluster("payments", vpc)
        made = clustered.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
        found = clustered.delete(made)
        assert "EKS cluster payments is ACTIVE" in (await clustered.held(found)).reason
        await clustered.resources.eks.delete_cluster(name="payments")
        await clustered.planned(found)
    finally:
        await clustered.aws.set_rate(10)
    await clustered.aws.advance(60)
    await clustered.planned(found)


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


async def test_the_wrong_account_is_not_an_empty_account(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc, annotations={AWS_ACCOUNT: "999999999999"})
    hold = await clustered.held(found)
    assert clustered.account in hold.reason
    assert "999999999999" in hold.reason
    assert not await clustered.calls("tagging.GetResources")


async def test_the_account_of_the_settings_must_be_the_callers(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    clustered.set(account="999999999999")
    assert "999999999999" in (await clustered.held(found)).reason
    clustered.set(account=clustered.account)
    await clustered.planned(found)


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
    assert "vpc-0123456789abcdef0" in (await clustered.held(found)).reason
    clustered.set(account=clustered.account)
    await clustered.planned(found)


async def test_without_a_vpc_the_account_must_be_recorded(clustered: Clustered) -> None:
    found = clustered.delete_marked("prod", None)
    assert AWS_ACCOUNT in (await clustered.held(found)).reason
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{AWS_ACCOUNT: clustered.account})
    await clustered.planned(found)


async def test_what_can_not_be_asked_holds_and_says_which_permission_is_wanting(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    await clustered.aws.trouble(Fault(what="deny", action="ec2.DescribeInstances", account=clustered.account))
    assert "ec2:DescribeInstances is denied" in (await clustered.held(found)).reason
    await clustered.aws.trouble(Fault(what="html", action="ec2.DescribeVpcs", account=clustered.account))
    assert "no answer of AWS" in (await clustered.held(found)).reason
    await clustered.aws.trouble()
    await clustered.planned(found)


# ---- namesakes


async def test_a_live_namesake_of_the_same_account_and_region_holds(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
    other = await clustered.resources.vpc()
    elsewhere.unmanaged("prod", region=REGION, vpc=other.id)
    found = clustered.delete_marked("prod", vpc)
    hold = await clustered.held(found)
    assert f"{elsewhere.namespace}/prod" in hold.reason
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    await clustered.planned(found)


async def test_a_managed_cluster_can_be_a_namesake_of_an_unmanaged_one(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
    elsewhere.managed("payments", eks="prod", region=REGION)
    found = clustered.delete_marked("prod", vpc)
    assert "awsmanagedcontrolplanes" in (await clustered.held(found)).reason


async def test_one_of_another_region_or_account_is_no_namesake(clustered: Clustered, vpc: Vpc, api: TestApi) -> None:
    first, second = capi.Capi(api.kube, api.namespace()), capi.Capi(api.kube, api.namespace())
    clustered.watch_also(first.namespace, second.namespace)
    first.unmanaged("prod", region="us-west-2")
    second.unmanaged("prod", region=REGION, annotations={AWS_ACCOUNT: "999999999999"})
    await clustered.planned(clustered.delete_marked("prod", vpc))


async def test_a_namesake_is_seen_when_the_version_that_was_known_is_no_longer_served(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    """A list at an address that is gone must not be taken for a kind that was never installed."""
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        await clustered.planned(found, side)
        place = clustered.lately.of("unmanaged")
        assert place is not None
        served = await place.served(AWS_CLUSTERS)
        place._served[AWS_CLUSTERS] = msgspec.structs.replace(served, version="v1alpha3")
        elsewhere.unmanaged("prod", region=REGION)
        hold = await clustered.held(found, side)
        assert f"{elsewhere.namespace}/prod" in hold.reason


async def test_a_namesake_in_a_namespace_that_is_not_watched_is_not_seen(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    capi.Capi(api.kube, api.namespace()).unmanaged("prod", region=REGION)
    await clustered.planned(clustered.delete_marked("prod", vpc))


async def test_a_namesake_of_an_identity_that_leads_elsewhere_is_none(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
    name = f"role-{elsewhere.namespace}"
    identity = {"kind": "AWSClusterRoleIdentity", "name": name}
    elsewhere.unmanaged("prod", region=REGION, identity=identity)
    found = clustered.delete_marked("prod", vpc)
    # It can't be told where it leads.
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(found)).reason
    elsewhere.identity(
        capi.ROLE_IDENTITIES, name, {"roleARN": "arn:aws:iam::999999999999:role/tenant", "allowedNamespaces": {}}
    )
    await clustered.planned(found)


async def test_of_two_namesakes_that_go_at_the_same_time_the_first_goes_first(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    elsewhere = capi.Capi(api.kube, api.namespace())
    clustered.watch_also(elsewhere.namespace)
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
    # Volumes are in no VPC: nobody can tell whose they are.
    clustered.set(tasks=("load-balancer", "volume"))
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(first)).reason
    clustered.set(tasks=("load-balancer",))
    elsewhere.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": vpc.id}}}})
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(first)).reason


# ---- right before a destructive call


async def test_the_same_is_asked_before_every_destructive_call(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:

        async def objection() -> str | None:
            return await side.collector.objects_to(await clustered.facts(found))

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
