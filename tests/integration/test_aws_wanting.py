"""What changes between a plan and its calls: tasks taken away, groups named as the user's, other VPCs."""

from contextlib import AsyncExitStack

import pytest

from service.contract.aws import AWS_ACCOUNT, EXTERNAL_RESOURCE_TASKS
from standins.aws.networks import Vpc
from standins.aws.tags import by_cloud_provider
from standins.aws.world import REGION
from tests import capi
from tests.integration.clustered import Clustered, marked


async def test_a_task_that_is_taken_away_in_the_middle_leaves_its_resources_and_the_object_goes(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    made, one, balancer = await clustered.stopped(stack, vpc, groups=[group])
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_done(one)
    assert clustered.read(made) is None
    left = await clustered.resources.standing()
    assert group in left
    assert balancer not in left
    record = await clustered.until_job(one, "aws.security-group", "security-group is not wanted any more", held=False)
    assert (record["state"], record["verdict"]) == ("dead", "left")


async def test_the_task_of_what_only_waits_can_be_taken_away_too(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    made, one, balancer = await clustered.stopped(stack, vpc)
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "security-group"})
    await clustered.until_done(one)
    assert clustered.read(made) is None
    assert balancer in await clustered.resources.standing()


async def test_a_task_that_is_added_in_the_middle_is_seen_to_by_the_last_look(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    volume = await clustered.resources.volume(by_cloud_provider("prod"))
    _, one, balancer = await clustered.stopped(stack, vpc)
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer,volume"})
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_done(one)
    assert balancer not in await clustered.resources.standing()
    assert volume not in await clustered.volumes()


async def test_a_group_that_is_named_in_the_middle_is_left(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    _, one, balancer = await clustered.stopped(stack, vpc, groups=[group])
    clustered.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"securityGroupOverrides": {"lb": group}}}})
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_done(one)
    assert group in await clustered.resources.standing()


async def test_an_object_that_means_another_vpc_by_now_is_held_until_it_is_set_back(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    other = await clustered.resources.vpc()
    _, one, balancer = await clustered.stopped(stack, vpc)
    clustered.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": other.id}}}})
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_job(one, "aws.balancer", other.id, vpc.id)
    assert balancer in await clustered.resources.standing()
    clustered.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": vpc.id}}}})
    await clustered.until_done(one)
    assert balancer not in await clustered.resources.standing()


async def test_an_object_that_names_no_vpc_any_more_is_held_although_its_account_is_known(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    balancer = await clustered.resources.balancer(vpc, by_cloud_provider("prod", "default/web"))
    await clustered.resources.protect(balancer)
    account = {AWS_ACCOUNT: clustered.account}
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked(annotations=account))
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.balancer", "protect")
    clustered.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": None}})
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_job(one, "aws.balancer", "is none", vpc.id)
    assert balancer in await clustered.resources.standing()
    clustered.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": vpc.id}}}})
    await clustered.until_done(one)


@pytest.mark.parametrize("what", ["region", "identity"])
async def test_an_object_that_means_another_place_or_identity_by_now_is_held_and_says_what_to_do(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc, what: str
) -> None:
    """Neither the old place nor the new one is touched, the last look included."""
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    _, one, balancer = await clustered.stopped(stack, vpc, groups=[group])
    name = f"role-{clustered.capi.namespace}"
    # It leads to the same account: only the words differ, and who may act by them.
    role: dict[str, object] = {"roleARN": f"arn:aws:iam::{clustered.account}:role/other", "allowedNamespaces": {}}
    clustered.capi.identity(capi.ROLE_IDENTITIES, name, role)
    identity = {"kind": capi.ROLE_IDENTITIES.kind, "name": name}
    changes: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
        "region": ({"region": "eu-west-3"}, {"region": REGION}, "eu-west-3"),
        "identity": ({"identityRef": identity}, {"identityRef": None}, name),
    }
    changed, back, word = changes[what]
    clustered.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": changed})
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_job(one, "aws.balancer", f"the {what} of", word, "set it back", "knell jobs abandon")
    assert {balancer, group} <= await clustered.resources.standing()
    changing = [action for action in await clustered.actions() if action.partition(".")[2].startswith("Delete")]
    assert changing == ["elbv2.DeleteLoadBalancer"], "only the attempt that met the protection"
    clustered.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": back})
    await clustered.until_done(one)
    assert not {balancer, group} & await clustered.resources.standing()


# ---- before a plan


async def test_an_object_whose_owner_is_another_cluster_of_that_name_holds(clustered: Clustered, vpc: Vpc) -> None:
    found = clustered.delete_marked("prod", vpc)
    clustered.capi.delete(capi.CLUSTERS, "prod")
    again = clustered.capi.cluster("prod")
    hold = await clustered.held(found)
    assert again["metadata"]["uid"] in hold.reason
    assert "external-resource-gc=false" in hold.reason


async def test_an_instance_in_another_vpc_counts_only_where_something_is_in_no_vpc(
    clustered: Clustered, vpc: Vpc
) -> None:
    other = await clustered.resources.vpc()
    instance = await clustered.resources.instance(other, tags=by_cloud_provider("prod"))
    found = clustered.delete_marked("prod", vpc)
    await clustered.planned(found)
    clustered.set(tasks=("load-balancer", "volume"))
    assert f"instance {instance} in {other.id}" in (await clustered.held(found)).reason


async def test_instances_of_a_managed_cluster_are_waited_for_where_something_is_in_no_vpc(
    clustered: Clustered, vpc: Vpc
) -> None:
    await clustered.aws.set_rate(0)
    try:
        await clustered.resources.eks_cluster("payments", vpc)
        await clustered.resources.eks.delete_cluster(name="payments")
        instance = await clustered.resources.instance(vpc, tags=by_cloud_provider("payments"))
        made = clustered.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
        found = clustered.delete(made)
        await clustered.planned(found)
        clustered.set(tasks=("volume",))
        assert f"instance {instance}" in (await clustered.held(found)).reason
    finally:
        await clustered.aws.set_rate(10)
