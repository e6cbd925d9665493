"""Security groups with dependencies: interfaces that drain or stay, rules of own and of foreign groups."""

import json
from datetime import timedelta

import msgspec
import pytest

from service.contract import Blocked, Pending
from service.sources.capa import EKS_CLUSTER_NAME, LBC_CLUSTER
from standins.aws import AwsFault
from standins.aws.tags import by_cloud_provider, by_cluster_api
from tests.integration.aws_removal import AwsRemovalFixture, removing
from workers.handlers.protocol import NotCleared
from workers.providers.aws.kinds.security_group_dependencies import MAX_DRAIN_ROUNDS

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
GROUP = "aws.security-group"
REVOKES = ("ec2.RevokeSecurityGroupIngress", "ec2.RevokeSecurityGroupEgress")
DELETE = "ec2.DeleteSecurityGroup"
INTERFACES = "ec2.DescribeNetworkInterfaces"


def allow_foreign(removing: AwsRemovalFixture) -> None:
    removing.aws = msgspec.structs.replace(removing.aws, revoke_foreign_rules=True)


async def rules_of(removing: AwsRemovalFixture, group: str) -> set[str]:
    """Rule ids of a group, without the default egress rule."""
    by_group = [{"Name": "group-id", "Values": [group]}]
    answer = await removing.cloud.builder.ec2.describe_security_group_rules(Filters=by_group)
    return {one["SecurityGroupRuleId"] for one in answer["SecurityGroupRules"] if one.get("ReferencedGroupInfo")}


# ---- rules


@pytest.mark.parametrize("egress", [False, True])
async def test_groups_that_refer_to_each_other_are_all_gone_at_the_end(
    removing: AwsRemovalFixture, egress: bool
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    groups = [await build.group(vpc, OURS) for _ in range(4)]
    for on, of in zip(groups, [*groups[1:], groups[0]], strict=True):
        await build.rule(on, of, egress=egress)
        await build.rule(on, of, egress=egress, port=8080)
        await build.rule(on, on, egress=egress)
    await removing.remove(*removing.targets(removing.owner(vpc), GROUP, *groups))
    assert await build.standing() == set()


async def test_groups_that_refer_to_each_other_both_ways_are_gone_too(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    one, other = [await build.group(vpc, OURS) for _ in range(2)]
    for egress in (False, True):
        await build.rule(one, other, egress=egress)
        await build.rule(other, one, egress=egress)
    await removing.remove(*removing.targets(removing.owner(vpc), GROUP, one, other))
    assert await build.standing() == set()
    # Never a deletion that was bound to be refused.
    assert {entry.code for entry in await removing.journal(DELETE)} == {""}


async def test_a_group_under_the_clusters_other_tag_is_no_foreign_one_where_both_are_wanted(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, other = await build.group(vpc, OURS), await build.group(vpc, {LBC_CLUSTER: "c1"})
    await build.rule(other, ours)
    alone = removing.owner(vpc)
    batch = removing.batch(alone, GROUP, ours)
    assert isinstance((await removing.attempt(batch))[ours], Blocked)
    both = msgspec.structs.replace(alone, both=True)
    await removing.remove(*removing.targets(both, GROUP, ours))
    assert await build.standing() == {other}
    assert await rules_of(removing, other) == set()


async def test_a_foreign_groups_rule_is_named_and_left(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc, by_cloud_provider("c2"), name="their-nodes")
    rule = await build.rule(theirs, ours, port=8443)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), GROUP, ours))
    record = await removing.until(going, ours, "blocked", f"ingress rule of {theirs} (their-nodes) for tcp 8443")
    assert "aws.revoke_foreign_rules" in record["detail"]
    assert await rules_of(removing, theirs) == {rule}
    assert await removing.asked(*REVOKES, DELETE) == []
    # Once the operator has done it, the group is deleted.
    await build.ec2.revoke_security_group_ingress(GroupId=theirs, SecurityGroupRuleIds=[rule])
    await removing.engine.until_done(going)
    assert await build.standing() == {theirs}


@pytest.mark.parametrize(
    ("tags", "who"),
    [(by_cluster_api("c1", "node"), "Cluster API's own"), ({**OURS, EKS_CLUSTER_NAME: "c1"}, "EKS's own")],
)
async def test_a_rule_of_a_group_that_is_deleted_with_the_cluster_is_waited_for_without_advice_to_revoke_it(
    removing: AwsRemovalFixture, tags: dict[str, str], who: str
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, nodes, users = await build.group(vpc, OURS), await build.group(vpc, tags), await build.group(vpc)
    rule = await build.rule(nodes, ours)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), GROUP, ours))
    record = await removing.until(going, ours, "blocked", f"ingress rule of {nodes}")
    assert who in record["detail"]
    assert "revoke" not in record["detail"]
    # With a user's group beside it, the operator is told what to do about that one.
    theirs = await build.rule(users, ours)
    record = await removing.until(going, ours, "blocked", "revoke it")
    assert record["detail"].index(users) < record["detail"].index("revoke it") < record["detail"].index(nodes)
    assert await rules_of(removing, nodes) == {rule}
    await build.ec2.revoke_security_group_ingress(GroupId=users, SecurityGroupRuleIds=[theirs])
    await build.ec2.delete_security_group(GroupId=nodes)
    await removing.engine.until_done(going)
    assert await build.standing() == {users}


@pytest.mark.parametrize("egress", [False, True])
async def test_only_the_reference_of_a_foreign_group_is_revoked_where_the_settings_allow_it(
    removing: AwsRemovalFixture, egress: bool
) -> None:
    build = removing.cloud.builder
    allow_foreign(removing)
    vpc = await build.vpc()
    ours, theirs, third = await build.group(vpc, OURS), await build.group(vpc), await build.group(vpc)
    doomed = {await build.rule(theirs, ours, port=port, egress=egress) for port in (443, 8443)}
    kept = {await build.rule(theirs, third, egress=egress), await build.rule(theirs, theirs, egress=egress)}
    await removing.remove(*removing.targets(removing.owner(vpc), GROUP, ours))
    assert await build.standing() == {theirs, third}
    assert await rules_of(removing, theirs) == kept
    assert doomed.isdisjoint(kept)
    assert len(await removing.asked(*REVOKES)) == 2


@pytest.mark.long
async def test_a_foreign_rule_is_written_down_before_it_is_revoked(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    allow_foreign(removing)
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    rule = await build.rule(theirs, ours, port=8443)
    # The call never returns, so nothing after it can have written the record.
    await removing.cloud.aws.set_faults(AwsFault(what="close", action=REVOKES[0]))
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), GROUP, ours))
    await removing.engine.until("the call was tried", lambda: removing.asked(*REVOKES))
    written = [str(entry) for entry in await removing.engine.audit() if rule in str(entry)]
    assert '"first":8443' in written[0]
    record = await removing.job(going, ours)
    assert record["lane"].endswith(REVOKES[0])
    assert json.loads(record["resume"])["written"]
    assert await rules_of(removing, theirs) == {rule}
    await removing.cloud.aws.set_faults()
    await removing.engine.until_done(going)
    assert await rules_of(removing, theirs) == set()


async def test_a_foreign_rule_that_was_not_written_down_is_not_revoked(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    allow_foreign(removing)
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    await build.rule(theirs, ours)
    for resume in ("", '{"rule":"sgr-1"}', '{"written":"of another"}', '["no record"'):
        batch = removing.batch(removing.owner(vpc), GROUP, ours, operation=REVOKES[0], resume=resume)
        verdict = (await removing.attempt(batch))[ours]
        assert isinstance(verdict, Pending)
        assert verdict.lane == batch.lane
        assert verdict.resume
        assert json.loads(verdict.kept)["group"] == theirs
        assert batch.cleared == []
    assert await removing.asked(*REVOKES) == []


async def test_no_rule_is_revoked_without_clearance(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, sister = await build.group(vpc, OURS), await build.group(vpc, OURS)
    await build.rule(sister, ours)
    batch = removing.batch(
        removing.owner(vpc), GROUP, ours, operation=REVOKES[0], clear=NotCleared("the cluster is paused")
    )
    assert isinstance((await removing.attempt(batch))[ours], NotCleared)
    assert await removing.asked(*REVOKES) == []


async def test_an_invisible_dependency_is_reported_in_awss_words(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    unseen = AwsFault(
        what="error", action=DELETE, code="DependencyViolation", status=400, message="resource has a dependent object"
    )
    await removing.cloud.aws.set_faults(unseen)
    verdict = (await removing.attempt(removing.batch(removing.owner(vpc), GROUP, group)))[group]
    assert isinstance(verdict, Blocked)
    assert "resource has a dependent object" in verdict.by
    assert "peered VPCs" in verdict.by
    # It may be an interface that is no longer listed, but not yet deleted.
    assert verdict.unseen
    assert verdict.until is None


# ---- interfaces


async def test_a_group_waits_for_the_interfaces_that_drain_and_names_them(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    balancer = await build.balancer(vpc, SERVED, groups=[group])
    await removing.cloud.aws.set_rate(0)
    await removing.start()
    going = await removing.go(
        *removing.targets(owner(vpc), "aws.balancer", balancer), *removing.targets(owner(vpc), GROUP, group)
    )
    record = await removing.until(going, group, "blocked", "network interface eni-")
    assert f"ELB {balancer.partition('loadbalancer/')[2]}" in record["detail"]
    assert record["lane"].endswith(INTERFACES)
    before = len(await removing.asked(INTERFACES))

    async def looked_again() -> bool:
        return len(await removing.asked(INTERFACES)) >= before + 3

    await removing.engine.until("it was looked at again", looked_again)
    # While they drain only interfaces are read, and nothing is tried.
    since = (await removing.asked())[-3:]
    assert since == [INTERFACES] * 3
    assert await removing.asked(DELETE) == []
    await removing.cloud.aws.set_rate(1)
    await removing.cloud.aws.advance(60)
    await removing.engine.until_done(going)
    assert await build.standing() == set()
    assert len(await removing.asked(DELETE)) == 1


async def test_waiting_groups_are_checked_at_the_same_time_in_one_call(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    groups = [await build.group(vpc, OURS) for _ in range(6)]
    for group in groups:
        await build.balancer(vpc, SERVED, groups=[group])
    batch = removing.batch(owner(vpc), GROUP, *groups, operation=INTERFACES)
    found = await removing.attempt(batch)
    waits = [verdict.until for verdict in found.values() if isinstance(verdict, Blocked) and verdict.until]
    assert len(waits) == 6
    assert max(waits) - min(waits) < timedelta(milliseconds=50)
    assert await removing.asked() == [INTERFACES]


async def test_an_instances_interface_is_named_with_its_instance_and_checked_less_and_less(
    removing: AwsRemovalFixture,
) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    instance = await build.instance(vpc, [group])
    verdict = (await removing.attempt(removing.batch(owner(vpc), GROUP, group)))[group]
    assert isinstance(verdict, Pending)
    assert f"attached to instance {instance}" in verdict.detail
    batch = removing.batch(owner(vpc), GROUP, group, operation=INTERFACES)
    waiting = (await removing.attempt(batch))[group]
    assert isinstance(waiting, Blocked)
    assert f"attached to instance {instance}" in waiting.by
    assert waiting.until is None


async def test_a_balancers_interface_that_never_drains_is_not_watched_for_ever(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    await build.balancer(vpc, by_cloud_provider("c2", "default/web"), groups=[group])
    fresh = (await removing.attempt(removing.batch(owner(vpc), GROUP, group, operation=INTERFACES)))[group]
    assert isinstance(fresh, Blocked)
    assert fresh.until is not None
    batch = removing.batch(owner(vpc), GROUP, group, operation=INTERFACES, waits=MAX_DRAIN_ROUNDS)
    tired = (await removing.attempt(batch))[group]
    assert isinstance(tired, Blocked)
    assert tired.until is None
