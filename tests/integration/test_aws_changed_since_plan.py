"""Changes since the plan, on AWS or in the object: removed tags, and tasks that decide whether a group's rules are own.
Nothing is deleted or revoked by outdated state."""

from contextlib import AsyncExitStack

import pytest

from service.sources.capa import EXTERNAL_RESOURCE_TASKS, LBC_CLUSTER
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider, pairs
from tests import capi
from tests.integration.capi_fixture import CapiFixture, marked

ALL = "load-balancer,security-group,aws-load-balancer-controller"
OURS = by_cloud_provider("prod")


async def rules_of(clusters: CapiFixture, group: str) -> set[str]:
    by_group = [{"Name": "group-id", "Values": [group]}]
    answer = await clusters.resources.ec2.describe_security_group_rules(Filters=by_group)
    return {one["SecurityGroupRuleId"] for one in answer["SecurityGroupRules"] if one.get("ReferencedGroupInfo")}


@pytest.mark.parametrize(
    ("taken", "mine", "theirs"),
    [
        ("load-balancer,security-group", OURS, {LBC_CLUSTER: "prod"}),
        ("load-balancer,aws-load-balancer-controller", {LBC_CLUSTER: "prod"}, OURS),
    ],
    ids=["the controller's stay", "the cloud provider's stay"],
)
async def test_rules_of_groups_whose_task_was_taken_away_are_theirs_from_then_on(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc, taken: str, mine: dict[str, str], theirs: dict[str, str]
) -> None:
    goes, stays = await clusters.resources.group(vpc, mine), await clusters.resources.group(vpc, theirs)
    # Both wait for it.
    served = by_cloud_provider("prod", "default/web")
    balancer = await clusters.resources.balancer(vpc, served, groups=[goes, stays])
    rule = await clusters.resources.rule(stays, goes)
    await clusters.resources.protect(balancer)
    made = clusters.capi.unmanaged(
        "prod", region=REGION, vpc=vpc.id, **marked(annotations={EXTERNAL_RESOURCE_TASKS: ALL})
    )
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.balancer", "protect")
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: taken})
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_job(one, "aws.security-group", f"rule of {stays}", "not its owner's own")
    assert await rules_of(clusters, stays) == {rule}
    await clusters.resources.ec2.revoke_security_group_ingress(GroupId=stays, SecurityGroupRuleIds=[rule])
    await clusters.until_done(one)
    left = await clusters.resources.standing()
    assert stays in left
    assert goes not in left


async def test_with_both_tasks_wanted_the_same_rule_is_own(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    groups = [await clusters.resources.group(vpc, tags) for tags in (OURS, {LBC_CLUSTER: "prod"})]
    await clusters.resources.rule(groups[1], groups[0])
    await clusters.resources.rule(groups[0], groups[1])
    made = clusters.capi.unmanaged(
        "prod", region=REGION, vpc=vpc.id, **marked(annotations={EXTERNAL_RESOURCE_TASKS: ALL})
    )
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_done(one)
    assert not {*groups} & await clusters.resources.standing()


@pytest.mark.invariant(2)
async def test_a_resource_that_lost_its_tag_is_left_and_reported_and_deleted_when_it_is_tagged_again(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    group = await clusters.resources.group(vpc, OURS)
    made, one, balancer = await clusters.stopped(stack, vpc, groups=[group])
    await clusters.resources.ec2.delete_tags(Resources=[group], Tags=pairs(OURS))
    await clusters.resources.protect(balancer, protected=False)
    await clusters.until_job(one, "aws.security-group", f"{group} is not tagged", "`knell held drop`")
    assert group in await clusters.resources.standing()
    assert clusters.read(made) is not None
    await clusters.resources.ec2.create_tags(Resources=[group], Tags=pairs(OURS))
    await clusters.until_done(one)
    assert group not in await clusters.resources.standing()
