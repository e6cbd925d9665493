"""Changes between a plan and its calls: removed tasks, groups named as the user's, other VPCs."""

from contextlib import AsyncExitStack

import pytest

from service.sources.capa import AWS_ACCOUNT, EXTERNAL_RESOURCE_TASKS
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider
from tests import capi
from tests.integration.capi_fixture import CapiFixture, marked


async def test_a_task_that_is_taken_away_in_the_middle_leaves_its_resources_and_the_object_goes(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    made, one, balancer = await clusters.stopped(stack, vpc, groups=[group])
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer"})
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_done(one)
    assert clusters.read(made) is None
    left = await clusters.resources.standing()
    assert group in left
    assert balancer not in left
    record = await clusters.until_job(one, "aws.security-group", "security-group is not wanted any more", held=False)
    assert (record["state"], record["verdict"]) == ("dead", "left")


async def test_the_task_of_what_only_waits_can_be_taken_away_too(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    made, one, balancer = await clusters.stopped(stack, vpc)
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "security-group"})
    await clusters.until_done(one)
    assert clusters.read(made) is None
    assert balancer in await clusters.resources.standing()


async def test_a_task_that_is_added_in_the_middle_is_done_by_the_final_check(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    volume = await clusters.resources.volume(by_cloud_provider("prod"))
    _, one, balancer = await clusters.stopped(stack, vpc)
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: "load-balancer,volume"})
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_done(one)
    assert balancer not in await clusters.resources.standing()
    assert volume not in await clusters.volumes()


async def test_a_group_that_is_named_in_the_middle_is_left(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    _, one, balancer = await clusters.stopped(stack, vpc, groups=[group])
    clusters.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"securityGroupOverrides": {"lb": group}}}})
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_done(one)
    assert group in await clusters.resources.standing()


async def test_an_object_that_means_another_vpc_by_now_is_held_until_it_is_set_back(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    other = await clusters.resources.vpc()
    _, one, balancer = await clusters.stopped(stack, vpc)
    clusters.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": other.id}}}})
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_job(one, "aws.balancer", other.id, vpc.id)
    assert balancer in await clusters.resources.standing()
    clusters.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": vpc.id}}}})
    await clusters.until_done(one)
    assert balancer not in await clusters.resources.standing()


@pytest.mark.long
async def test_an_object_that_names_no_vpc_any_more_is_held_although_its_account_is_known(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    balancer = await clusters.resources.balancer(vpc, by_cloud_provider("prod", "default/web"))
    await clusters.resources.protect(balancer)
    account = {AWS_ACCOUNT: clusters.account}
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked(annotations=account))
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.balancer", "protect")
    clusters.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": None}})
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_job(one, "aws.balancer", "is none", vpc.id)
    assert balancer in await clusters.resources.standing()
    clusters.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": {"network": {"vpc": {"id": vpc.id}}}})
    await clusters.until_done(one)


@pytest.mark.long
@pytest.mark.parametrize("what", ["region", "identity"])
async def test_an_object_that_means_another_place_or_identity_by_now_is_held_and_says_what_to_do(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc, what: str
) -> None:
    """Neither the old place nor the new one is touched, by the final check either."""
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    _, one, balancer = await clusters.stopped(stack, vpc, groups=[group])
    name = f"role-{clusters.capi.namespace}"
    # It leads to the same account: only the name differs, and the namespaces that may use it.
    role: dict[str, object] = {"roleARN": f"arn:aws:iam::{clusters.account}:role/other", "allowedNamespaces": {}}
    clusters.capi.identity(capi.ROLE_IDENTITIES, name, role)
    identity = {"kind": capi.ROLE_IDENTITIES.kind, "name": name}
    changes: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
        "region": ({"region": "eu-west-3"}, {"region": REGION}, "eu-west-3"),
        "identity": ({"identityRef": identity}, {"identityRef": None}, name),
    }
    changed, back, word = changes[what]
    clusters.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": changed})
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_job(one, "aws.balancer", f"the {what} of", word, "set it back", "knell jobs abandon")
    assert {balancer, group} <= await clusters.resources.standing()
    changing = [action for action in await clusters.actions() if action.partition(".")[2].startswith("Delete")]
    assert changing == ["elbv2.DeleteLoadBalancer"], "only the attempt that met the protection"
    clusters.capi.patch(capi.AWS_CLUSTERS, "prod", {"spec": back})
    await clusters.until_done(one)
    assert not {balancer, group} & await clusters.resources.standing()


# ---- before a plan


async def test_an_object_whose_owner_is_another_cluster_of_that_name_holds(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.capi.delete(capi.CLUSTERS, "prod")
    again = clusters.capi.cluster("prod")
    hold = await clusters.held(found)
    assert again["metadata"]["uid"] in hold.reason
    assert "external-resource-gc=false" in hold.reason


async def test_an_instance_in_another_vpc_counts_only_where_something_is_in_no_vpc(
    clusters: CapiFixture, vpc: Vpc
) -> None:
    other = await clusters.resources.vpc()
    instance = await clusters.resources.instance(other, tags=by_cloud_provider("prod"))
    found = clusters.delete_marked("prod", vpc)
    await clusters.planned(found)
    clusters.set(tasks=("load-balancer", "volume"))
    assert f"instance {instance} in {other.id}" in (await clusters.held(found)).reason


async def test_instances_of_a_managed_cluster_are_waited_for_where_something_is_in_no_vpc(
    clusters: CapiFixture, vpc: Vpc
) -> None:
    await clusters.aws.set_rate(0)
    try:
        await clusters.resources.eks_cluster("payments", vpc)
        await clusters.resources.eks.delete_cluster(name="payments")
        instance = await clusters.resources.instance(vpc, tags=by_cloud_provider("payments"))
        made = clusters.capi.managed("prod", eks="payments", region=REGION, vpc=vpc.id, **marked())
        found = clusters.delete(made)
        await clusters.planned(found)
        clusters.set(tasks=("volume",))
        assert f"instance {instance}" in (await clusters.held(found)).reason
    finally:
        await clusters.aws.set_rate(10)
