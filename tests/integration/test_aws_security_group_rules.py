"""Foreign rules that are revoked can be recreated from the audit alone, and lack of progress ends with an operator. A
rule that can't be recorded verbatim is not revoked."""

import json
from typing import Any

import msgspec
import pytest

from service.contract import LONGEST_KEPT, Blocked, Job, Pending, Verdict
from service.sources.capa import AWS_CLUSTERS, LBC_CLUSTER, Task
from standins.aws import AwsFault
from standins.aws.builder import Vpc
from standins.aws.tags import by_cloud_provider
from tests.integration.aws_removal import (
    REGION,
    SOURCE,
    AwsRecordingBatch,
    AwsRemovalFixture,
    aws_removal,
    capa_claims,
    named,
    removing,
)
from workers.collectors.capa.capa_object import parse_capa_object
from workers.collectors.capa.latest_objects import LatestObjects, ObjectState
from workers.providers.aws.kinds.blocked_state import MAX_IDLE_ROUNDS, BlockedState, blocked_state_of
from workers.providers.aws.kinds.security_group_rules import ReferringRule

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
GROUP, TARGET_GROUP = "aws.security-group", "aws.target-group"
REVOKE = "ec2.RevokeSecurityGroupIngress"
DELETE = "ec2.DeleteSecurityGroup"
DELETE_LISTENER = "elbv2.DeleteListener"
SAID_GONE = AwsFault(what="error", action=REVOKE, code="InvalidSecurityGroupRuleId.NotFound", status=400)
IN_USE = AwsFault(
    what="error", action="elbv2.DeleteTargetGroup", code="ResourceInUse", status=400, message="it is in use"
)
TAGS = {"Name": "from the database's nodes", "team": "payments", "größe": "„viel“"}


@pytest.fixture(autouse=True)
def foreign(removing: AwsRemovalFixture) -> None:
    removing.aws = msgspec.structs.replace(removing.aws, revoke_foreign_rules=True)


async def referring(removing: AwsRemovalFixture, group: str) -> list[dict[str, Any]]:
    """The rules of a group that refer to another."""
    by_group = [{"Name": "group-id", "Values": [group]}]
    answer = await removing.cloud.builder.ec2.describe_security_group_rules(Filters=by_group)
    return [one for one in answer["SecurityGroupRules"] if one.get("ReferencedGroupInfo")]


async def recorded(removing: AwsRemovalFixture, words: str) -> dict[str, Any]:
    """The audit's record with these words."""
    (note,) = [name for entry in await removing.engine.audit("outcome") for name in entry if words in name]
    found: dict[str, Any] = json.loads(note.partition(f"{words}: ")[2])
    return found


# ---- the record


async def test_a_revoked_rule_can_be_made_again_from_what_the_audit_has(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    words = "allows [db] from {web}: ports #1-3; & more " + "x" * 200
    rule = await build.rule(theirs, ours, port=5432, words=words, tags=TAGS)
    (before,) = await referring(removing, theirs)
    await removing.remove(*removing.targets(removing.owner(vpc), GROUP, ours))
    assert await build.standing() == {theirs}
    found = await recorded(removing, "revoking a rule that is not its owner's")
    assert found == await recorded(removing, f"revoked {rule} of {theirs}, which is not its owner's")
    # As documented.
    again = await build.group(vpc)
    pair = {"GroupId": again, "UserId": found["owner"], "Description": found["description"]}
    await build.ec2.authorize_security_group_ingress(
        GroupId=found["group"],
        IpPermissions=[
            {"IpProtocol": found["protocol"], "FromPort": found["first"], "ToPort": found["last"],
             "UserIdGroupPairs": [pair]}
        ],
        TagSpecifications=[
            {"ResourceType": "security-group-rule",
             "Tags": [{"Key": key, "Value": value} for key, value in found["tags"].items()]}
        ],
    )  # fmt: skip
    (after,) = await referring(removing, theirs)
    for each in (before, after):
        del each["SecurityGroupRuleId"], each["ReferencedGroupInfo"]
        each.pop("SecurityGroupRuleArn", None)
        each["Tags"] = sorted(each["Tags"], key=lambda tag: str(tag["Key"]))
    assert len(before["Tags"]) == len(TAGS)
    assert before == after
    assert before["Description"] == words
    assert found["refers"] == ours


@pytest.mark.parametrize(
    ("words", "tags", "why"),
    [
        ("db password=hunter2", None, "looks like a credential"),
        ("the database", {"token": "hunter2"}, "looks like a credential"),
        ("the database", {f"key-{number}": "hunter2" * 36 for number in range(45)}, "longer than"),
    ],
    ids=["a secret in the description", "a secret in a tag", "too many tags"],
)
async def test_a_rule_that_can_not_be_recorded_whole_is_left_to_an_operator(
    removing: AwsRemovalFixture, words: str, tags: dict[str, str] | None, why: str
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    rule = await build.rule(theirs, ours, words=words, tags=tags)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), GROUP, ours))
    record = await removing.until(going, ours, "blocked", f"rule {rule} of {theirs}")
    assert why in record["detail"]
    assert "by hand" in record["detail"]
    assert "hunter2" not in str((record, await removing.engine.audit()))
    assert await removing.asked(REVOKE, DELETE) == []
    await build.ec2.revoke_security_group_ingress(GroupId=theirs, SecurityGroupRuleIds=[rule])
    await removing.engine.until_done(going)
    assert await build.standing() == {theirs}


async def test_a_rule_that_was_changed_after_it_was_recorded_is_recorded_again(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    rule = await build.rule(theirs, ours)
    batch = removing.batch(removing.owner(vpc), GROUP, ours, operation=REVOKE)
    first = (await removing.attempt(batch))[ours]
    assert isinstance(first, Pending)
    await build.ec2.create_tags(Resources=[rule], Tags=[{"Key": "team", "Value": "payments"}])
    batch = removing.batch(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=first.resume)
    second = (await removing.attempt(batch))[ours]
    assert isinstance(second, Pending)
    assert json.loads(second.kept)["tags"] == {"team": "payments"}
    assert await removing.asked(REVOKE) == []
    batch = removing.batch(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=second.resume)
    third = (await removing.attempt(batch))[ours]
    assert isinstance(third, Pending)
    assert third.kept == second.kept
    assert len(batch.cleared) == 1
    assert await referring(removing, theirs) == []


def test_the_longest_description_and_a_dozen_tags_fit_into_a_record() -> None:
    longest = {f"{number:02}{'k' * 126}": "v" * 256 for number in range(12)}
    rule = ReferringRule(rule="sgr-1", group="sg-1", refers="sg-2", description="d" * 255, tags=longest)
    assert rule.unkept == ""
    assert "longer than" in msgspec.structs.replace(rule, tags={**longest, "z": "v" * LONGEST_KEPT}).unkept


# ---- own and foreign rules


class ConsentRecordingBatch(AwsRecordingBatch):
    """A batch whose consent check records the current object."""

    def __init__(self, batch: AwsRecordingBatch, latest_objects: LatestObjects, vpc: Vpc, *tasks: Task) -> None:
        super().__init__(batch.lane, batch.jobs)
        owner = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "c1", "uid": "1"}
        spec = {"region": REGION, "network": {"vpc": {"id": vpc.id}}}
        found = {"metadata": {"name": "c1", "namespace": "tenant", "ownerReferences": [owner]}, "spec": spec}
        subject, account = parse_capa_object(AWS_CLUSTERS, msgspec.json.encode(found)), batch.lane.split("/")[1]
        self._terms = ObjectState(subject=subject, source=SOURCE, account=account, tasks=tasks)
        self._wanting = latest_objects

    async def clear(self, *jobs: Job) -> None:
        await super().clear(*jobs)
        for job in jobs:
            self._wanting.record(job.deletion, self._terms)


async def test_the_live_object_decides_whether_rules_are_own_before_they_are_revoked(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    removing.aws = msgspec.structs.replace(removing.aws, revoke_foreign_rules=False)
    vpc = await build.vpc()
    ours, other = await build.group(vpc, OURS), await build.group(vpc, {LBC_CLUSTER: "c1"})
    rule = await build.rule(other, ours)
    planned = msgspec.structs.replace(removing.owner(vpc), both=True)

    async def attempted(*tasks: Task) -> Verdict | Exception:
        latest_objects = LatestObjects()
        claims = capa_claims(removing.aws, "deletion", account=removing.cloud.account, latest_objects=latest_objects)
        removal = aws_removal(named(GROUP), removing.reach, removing.aws, claims)
        batch = ConsentRecordingBatch(
            removing.batch(planned, GROUP, ours, operation=REVOKE), latest_objects, vpc, *tasks
        )
        ((_, verdict),) = [pair async for pair in removal.attempt(batch)]
        return verdict

    kept = await attempted("security-group")
    assert isinstance(kept, Blocked)
    assert "not its owner's own" in kept.by
    assert [one["SecurityGroupRuleId"] for one in await referring(removing, other)] == [rule]
    assert isinstance(await attempted("security-group", "aws-load-balancer-controller"), Pending)
    assert await referring(removing, other) == []


# ---- idle rounds


@pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])
async def test_a_rule_that_is_shown_and_can_not_be_revoked_is_reported_after_some_rounds(
    removing: AwsRemovalFixture, own: bool
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, other = await build.group(vpc, OURS), await build.group(vpc, OURS if own else None)
    rule = await build.rule(other, ours)
    await removing.cloud.aws.set_faults(SAID_GONE)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), GROUP, ours))
    record = await removing.until(going, ours, "blocked", "no such rule is to be found")
    assert f"ingress rule of {other}" in record["detail"]
    assert "peered VPCs" in record["detail"]
    tried = len(await removing.asked(REVOKE))
    assert tried >= MAX_IDLE_ROUNDS + 1
    assert await removing.asked(DELETE) == []

    async def looked_at_again() -> bool:
        return len(await removing.asked(REVOKE)) > tried

    # The job is kept, and the group is deleted once the rule is revoked by anyone.
    await removing.engine.until("it is looked at again", looked_at_again)
    assert (await removing.job(going, ours))["verdict"] == "blocked"
    await build.ec2.revoke_security_group_ingress(GroupId=other, SecurityGroupRuleIds=[rule])
    await removing.engine.until_done(going)
    assert await build.standing() == {other}


async def test_idle_rounds_are_counted_anew_once_something_was_revoked(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, sister = await build.group(vpc, OURS), await build.group(vpc, OURS)
    await build.rule(sister, ours)
    await removing.cloud.aws.set_faults(SAID_GONE)
    tired = BlockedState(idle_rounds=MAX_IDLE_ROUNDS - 1).text
    batch = removing.batch(removing.owner(vpc), GROUP, ours, resume=tired)
    hop = (await removing.attempt(batch))[ours]
    assert isinstance(hop, Pending)
    assert hop.resume == tired
    batch = removing.batch(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=tired)
    back = (await removing.attempt(batch))[ours]
    assert isinstance(back, Pending)
    assert blocked_state_of(back.resume).idle_rounds == MAX_IDLE_ROUNDS
    assert back.check_after
    batch = removing.batch(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=back.resume)
    assert isinstance((await removing.attempt(batch))[ours], Blocked)
    await removing.cloud.aws.set_faults()
    batch = removing.batch(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=back.resume)
    revoked = (await removing.attempt(batch))[ours]
    assert isinstance(revoked, Pending)
    assert blocked_state_of(revoked.resume).idle_rounds == 0


async def test_what_can_not_be_revoked_one_way_does_not_keep_the_other_way_from_its_turn(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, sister = await build.group(vpc, OURS), await build.group(vpc, OURS)
    await build.rule(sister, ours)
    await build.rule(sister, ours, egress=True)
    lanes = set()
    for idle_rounds in range(2):
        batch = removing.batch(removing.owner(vpc), GROUP, ours, resume=BlockedState(idle_rounds=idle_rounds).text)
        verdict = (await removing.attempt(batch))[ours]
        assert isinstance(verdict, Pending)
        lanes.add(verdict.lane)
    assert len(lanes) == 2


@pytest.mark.long
async def test_a_target_group_that_nothing_seems_to_use_is_reported_after_some_rounds_and_deleted_when_possible(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    target_group = await build.target_group(vpc, SERVED)
    await removing.cloud.aws.set_faults(IN_USE)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), TARGET_GROUP, target_group))
    record = await removing.until(going, target_group, "blocked", "no listener and no listener's rule")
    assert "it is in use" in record["detail"]
    assert blocked_state_of(record["resume"]).idle_rounds >= MAX_IDLE_ROUNDS
    await removing.cloud.aws.set_faults()
    await removing.engine.until_done(going)
    assert await build.standing() == set()


async def test_a_target_group_without_progress_is_checked_less_and_less_and_a_listener_is_still_noticed(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    target_group = await build.target_group(vpc, SERVED)
    await removing.cloud.aws.set_faults(IN_USE)
    waits = []
    for idle_rounds in (0, MAX_IDLE_ROUNDS, MAX_IDLE_ROUNDS + 2):
        batch = removing.batch(
            removing.owner(vpc), TARGET_GROUP, target_group, resume=BlockedState(idle_rounds=idle_rounds).text
        )
        verdict = (await removing.attempt(batch))[target_group]
        assert isinstance(verdict, Blocked)
        assert verdict.until is not None
        waits.append(verdict.until / removing.aws.check_after)
    assert waits[0] <= 1.5 < waits[2]
    assert waits[2] >= 4
    batch = removing.batch(
        removing.owner(vpc), TARGET_GROUP, target_group, resume=BlockedState(idle_rounds=MAX_IDLE_ROUNDS).text, waits=1
    )
    hop = (await removing.attempt(batch))[target_group]
    assert isinstance(hop, Pending)
    assert str(hop.lane).endswith(DELETE_LISTENER)
    assert blocked_state_of(hop.resume).idle_rounds == MAX_IDLE_ROUNDS
    await build.elbv2.create_listener(
        LoadBalancerArn=balancer, Protocol="HTTP", Port=80,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": target_group}],
    )  # fmt: skip
    batch = removing.batch(
        removing.owner(vpc), TARGET_GROUP, target_group, operation=DELETE_LISTENER, resume=hop.resume
    )
    gone = (await removing.attempt(batch))[target_group]
    assert isinstance(gone, Pending)
    assert blocked_state_of(gone.resume).idle_rounds == 0
    assert len(await removing.asked(DELETE_LISTENER)) == 1
