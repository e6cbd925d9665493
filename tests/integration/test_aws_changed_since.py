"""What AWS or the object says otherwise than when it was planned: tags taken off, tasks that made a group's rules own.
Nothing is deleted or revoked by what was true once."""

from contextlib import AsyncExitStack

import pytest

from service.contract.aws import EXTERNAL_RESOURCE_TASKS, LBC_CLUSTER
from standins.aws.networks import Vpc
from standins.aws.tags import by_cloud_provider, pairs
from standins.aws.world import REGION
from tests import capi
from tests.integration.clustered import Clustered, marked

ALL = "load-balancer,security-group,aws-load-balancer-controller"
OURS = by_cloud_provider("prod")


async def rules_of(clustered: Clustered, group: str) -> set[str]:
    by_group = [{"Name": "group-id", "Values": [group]}]
    answer = await clustered.resources.ec2.describe_security_group_rules(Filters=by_group)
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
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc, taken: str, mine: dict[str, str], theirs: dict[str, str]
) -> None:
    goes, stays = await clustered.resources.group(vpc, mine), await clustered.resources.group(vpc, theirs)
    # Both wait for it.
    served = by_cloud_provider("prod", "default/web")
    balancer = await clustered.resources.balancer(vpc, served, groups=[goes, stays])
    rule = await clustered.resources.rule(stays, goes)
    await clustered.resources.protect(balancer)
    made = clustered.capi.unmanaged(
        "prod", region=REGION, vpc=vpc.id, **marked(annotations={EXTERNAL_RESOURCE_TASKS: ALL})
    )
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_job(one, "aws.balancer", "protect")
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: taken})
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_job(one, "aws.security-group", f"rule of {stays}", "not the cluster's own")
    assert await rules_of(clustered, stays) == {rule}
    await clustered.resources.ec2.revoke_security_group_ingress(GroupId=stays, SecurityGroupRuleIds=[rule])
    await clustered.until_done(one)
    left = await clustered.resources.standing()
    assert stays in left
    assert goes not in left


async def test_with_both_tasks_wanted_the_same_rule_is_own(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    groups = [await clustered.resources.group(vpc, tags) for tags in (OURS, {LBC_CLUSTER: "prod"})]
    await clustered.resources.rule(groups[1], groups[0])
    await clustered.resources.rule(groups[0], groups[1])
    made = clustered.capi.unmanaged(
        "prod", region=REGION, vpc=vpc.id, **marked(annotations={EXTERNAL_RESOURCE_TASKS: ALL})
    )
    one = await clustered.going(made)
    await clustered.work(stack)
    await clustered.until_done(one)
    assert not {*groups} & await clustered.resources.standing()


@pytest.mark.invariant(2)
async def test_what_lost_its_tag_is_left_and_told_and_goes_when_it_is_the_clusters_again(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    group = await clustered.resources.group(vpc, OURS)
    made, one, balancer = await clustered.stopped(stack, vpc, groups=[group])
    await clustered.resources.ec2.delete_tags(Resources=[group], Tags=pairs(OURS))
    await clustered.resources.protect(balancer, protected=False)
    await clustered.until_job(one, "aws.security-group", f"{group} is not tagged", "`knell held drop`")
    assert group in await clustered.resources.standing()
    assert clustered.read(made) is not None
    await clustered.resources.ec2.create_tags(Resources=[group], Tags=pairs(OURS))
    await clustered.until_done(one)
    assert group not in await clustered.resources.standing()
