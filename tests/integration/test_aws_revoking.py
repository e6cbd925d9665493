"""Foreign rules that are revoked can be made again from the audit alone, and what is tried in vain ends with a person.
Whatever the record can't have word for word is not revoked."""

import json
from typing import Any

import msgspec
import pytest

from service.contract import LONGEST_KEPT, Blocked, Job, Pending, Verdict
from service.contract.aws import AWS_CLUSTERS, LBC_CLUSTER, Task
from standins.aws import Fault
from standins.aws.networks import Vpc
from standins.aws.tags import by_cloud_provider
from tests.integration.aws_removing import REGION, Hand, Removing, named, removing
from workers.handlers.aws.owners import subject_of
from workers.handlers.aws.removal import Removal
from workers.handlers.aws.revoking import Rule
from workers.handlers.aws.trails import VAIN, Trail, trail_of
from workers.handlers.aws.wanting import Terms, Wanting

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
GROUP, TARGET_GROUP = "aws.security-group", "aws.target-group"
REVOKE = "ec2.RevokeSecurityGroupIngress"
DELETE = "ec2.DeleteSecurityGroup"
DELETE_LISTENER = "elbv2.DeleteListener"
SAID_GONE = Fault(what="error", action=REVOKE, code="InvalidSecurityGroupRuleId.NotFound", status=400)
IN_USE = Fault(what="error", action="elbv2.DeleteTargetGroup", code="ResourceInUse", status=400, message="it is in use")
TAGS = {"Name": "from the database's nodes", "team": "payments", "größe": "„viel“"}


@pytest.fixture(autouse=True)
def foreign(removing: Removing) -> None:
    removing.aws = msgspec.structs.replace(removing.aws, revoke_foreign_rules=True)


async def referring(removing: Removing, group: str) -> list[dict[str, Any]]:
    """The rules of a group that refer to another."""
    by_group = [{"Name": "group-id", "Values": [group]}]
    answer = await removing.cloud.world.ec2.describe_security_group_rules(Filters=by_group)
    return [one for one in answer["SecurityGroupRules"] if one.get("ReferencedGroupInfo")]


async def recorded(removing: Removing, words: str) -> dict[str, Any]:
    """What the audit has behind these words."""
    (note,) = [name for entry in await removing.world.audit("outcome") for name in entry if words in name]
    found: dict[str, Any] = json.loads(note.partition(f"{words}: ")[2])
    return found


# ---- what is kept


async def test_a_revoked_rule_can_be_made_again_from_what_the_audit_has(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    words = "allows [db] from {web}: ports #1-3; & more " + "x" * 200
    rule = await build.rule(theirs, ours, port=5432, words=words, tags=TAGS)
    (before,) = await referring(removing, theirs)
    await removing.remove(*removing.targets(removing.owner(vpc), GROUP, ours))
    assert await build.standing() == {theirs}
    found = await recorded(removing, "revoking a rule that is not the cluster's")
    assert found == await recorded(removing, f"revoked {rule} of {theirs}, which is not the cluster's")
    # As the documentation says it.
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
async def test_a_rule_that_can_not_be_written_down_whole_is_a_persons_to_revoke(
    removing: Removing, words: str, tags: dict[str, str] | None, why: str
) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    rule = await build.rule(theirs, ours, words=words, tags=tags)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), GROUP, ours))
    record = await removing.until(going, ours, "blocked", f"rule {rule} of {theirs}")
    assert why in record["detail"]
    assert "by hand" in record["detail"]
    assert "hunter2" not in str((record, await removing.world.audit()))
    assert await removing.asked(REVOKE, DELETE) == []
    await build.ec2.revoke_security_group_ingress(GroupId=theirs, SecurityGroupRuleIds=[rule])
    await removing.world.until_done(going)
    assert await build.standing() == {theirs}


async def test_a_rule_that_was_changed_after_it_was_written_down_is_written_down_again(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    ours, theirs = await build.group(vpc, OURS), await build.group(vpc)
    rule = await build.rule(theirs, ours)
    hand = removing.hand(removing.owner(vpc), GROUP, ours, operation=REVOKE)
    first = (await removing.attempt(hand))[ours]
    assert isinstance(first, Pending)
    await build.ec2.create_tags(Resources=[rule], Tags=[{"Key": "team", "Value": "payments"}])
    hand = removing.hand(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=first.resume)
    second = (await removing.attempt(hand))[ours]
    assert isinstance(second, Pending)
    assert json.loads(second.kept)["tags"] == {"team": "payments"}
    assert await removing.asked(REVOKE) == []
    hand = removing.hand(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=second.resume)
    third = (await removing.attempt(hand))[ours]
    assert isinstance(third, Pending)
    assert third.kept == second.kept
    assert len(hand.cleared) == 1
    assert await referring(removing, theirs) == []


def test_the_longest_description_and_a_dozen_tags_fit_into_a_record() -> None:
    longest = {f"{number:02}{'k' * 126}": "v" * 256 for number in range(12)}
    rule = Rule(rule="sgr-1", group="sg-1", refers="sg-2", description="d" * 255, tags=longest)
    assert rule.unkept == ""
    assert "longer than" in msgspec.structs.replace(rule, tags={**longest, "z": "v" * LONGEST_KEPT}).unkept


# ---- whose rules they are


class Asked(Hand):
    """Who clears is told what the object says now."""

    def __init__(self, hand: Hand, wanting: Wanting, vpc: Vpc, *tasks: Task) -> None:
        super().__init__(hand.lane, hand.jobs)
        owner = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "c1", "uid": "1"}
        spec = {"region": REGION, "network": {"vpc": {"id": vpc.id}}}
        found = {"metadata": {"name": "c1", "namespace": "tenant", "ownerReferences": [owner]}, "spec": spec}
        self._terms = Terms(subject_of(AWS_CLUSTERS, msgspec.json.encode(found)), tasks)
        self._wanting = wanting

    async def clear(self, *jobs: Job) -> None:
        await super().clear(*jobs)
        for job in jobs:
            self._wanting.note(job.deletion, self._terms)


async def test_whether_rules_are_own_is_asked_of_the_live_object_before_they_are_revoked(removing: Removing) -> None:
    build = removing.cloud.world
    removing.aws = msgspec.structs.replace(removing.aws, revoke_foreign_rules=False)
    vpc = await build.vpc()
    ours, other = await build.group(vpc, OURS), await build.group(vpc, {LBC_CLUSTER: "c1"})
    rule = await build.rule(other, ours)
    planned = msgspec.structs.replace(removing.owner(vpc), both=True)

    async def attempted(*tasks: Task) -> Verdict | Exception:
        wanting = Wanting()
        removal = Removal(named(GROUP), removing.reach, removing.aws, wanting)
        hand = Asked(removing.hand(planned, GROUP, ours, operation=REVOKE), wanting, vpc, *tasks)
        ((_, verdict),) = [pair async for pair in removal.attempt(hand)]
        return verdict

    kept = await attempted("security-group")
    assert isinstance(kept, Blocked)
    assert "not the cluster's own" in kept.by
    assert [one["SecurityGroupRuleId"] for one in await referring(removing, other)] == [rule]
    assert isinstance(await attempted("security-group", "aws-load-balancer-controller"), Pending)
    assert await referring(removing, other) == []


# ---- in vain


@pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])
async def test_a_rule_that_is_shown_and_can_not_be_revoked_is_told_after_some_rounds(
    removing: Removing, own: bool
) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    ours, other = await build.group(vpc, OURS), await build.group(vpc, OURS if own else None)
    rule = await build.rule(other, ours)
    await removing.cloud.aws.trouble(SAID_GONE)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), GROUP, ours))
    record = await removing.until(going, ours, "blocked", "no such rule is to be found")
    assert f"ingress rule of {other}" in record["detail"]
    assert "peered VPCs" in record["detail"]
    tried = len(await removing.asked(REVOKE))
    assert tried >= VAIN + 1
    assert await removing.asked(DELETE) == []

    async def looked_at_again() -> bool:
        return len(await removing.asked(REVOKE)) > tried

    # It is not forgotten, and goes once the rule does, whoever revokes it.
    await removing.world.until("it is looked at again", looked_at_again)
    assert (await removing.job(going, ours))["verdict"] == "blocked"
    await build.ec2.revoke_security_group_ingress(GroupId=other, SecurityGroupRuleIds=[rule])
    await removing.world.until_done(going)
    assert await build.standing() == {other}


async def test_rounds_in_vain_are_counted_anew_once_something_was_revoked(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    ours, sister = await build.group(vpc, OURS), await build.group(vpc, OURS)
    await build.rule(sister, ours)
    await removing.cloud.aws.trouble(SAID_GONE)
    tired = Trail(vain=VAIN - 1).text
    hand = removing.hand(removing.owner(vpc), GROUP, ours, resume=tired)
    hop = (await removing.attempt(hand))[ours]
    assert isinstance(hop, Pending)
    assert hop.resume == tired
    hand = removing.hand(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=tired)
    back = (await removing.attempt(hand))[ours]
    assert isinstance(back, Pending)
    assert trail_of(back.resume).vain == VAIN
    assert back.check_after
    hand = removing.hand(removing.owner(vpc), GROUP, ours, operation=REVOKE, resume=back.resume)
    assert isinstance((await removing.attempt(hand))[ours], Blocked)
    await removing.cloud.aws.trouble()
    revoked = (await removing.attempt(hand))[ours]
    assert isinstance(revoked, Pending)
    assert trail_of(revoked.resume).vain == 0


async def test_what_can_not_be_revoked_one_way_does_not_keep_the_other_way_from_its_turn(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    ours, sister = await build.group(vpc, OURS), await build.group(vpc, OURS)
    await build.rule(sister, ours)
    await build.rule(sister, ours, egress=True)
    lanes = set()
    for vain in range(2):
        hand = removing.hand(removing.owner(vpc), GROUP, ours, resume=Trail(vain=vain).text)
        verdict = (await removing.attempt(hand))[ours]
        assert isinstance(verdict, Pending)
        lanes.add(verdict.lane)
    assert len(lanes) == 2


@pytest.mark.long
async def test_a_target_group_that_nothing_seems_to_use_is_told_after_some_rounds_and_goes_when_it_can(
    removing: Removing,
) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    target_group = await build.target_group(vpc, SERVED)
    await removing.cloud.aws.trouble(IN_USE)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), TARGET_GROUP, target_group))
    record = await removing.until(going, target_group, "blocked", "no listener and no listener's rule")
    assert "it is in use" in record["detail"]
    assert trail_of(record["resume"]).vain >= VAIN
    await removing.cloud.aws.trouble()
    await removing.world.until_done(going)
    assert await build.standing() == set()


async def test_a_target_group_in_vain_is_looked_at_less_and_less_and_a_listener_is_still_noticed(
    removing: Removing,
) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    target_group = await build.target_group(vpc, SERVED)
    await removing.cloud.aws.trouble(IN_USE)
    waits = []
    for vain in (0, VAIN, VAIN + 2):
        hand = removing.hand(removing.owner(vpc), TARGET_GROUP, target_group, resume=Trail(vain=vain).text)
        verdict = (await removing.attempt(hand))[target_group]
        assert isinstance(verdict, Blocked)
        assert verdict.until is not None
        waits.append(verdict.until / removing.aws.check_after)
    assert waits[0] <= 1.5 < waits[2]
    assert waits[2] >= 4
    hand = removing.hand(removing.owner(vpc), TARGET_GROUP, target_group, resume=Trail(vain=VAIN).text, waits=1)
    hop = (await removing.attempt(hand))[target_group]
    assert isinstance(hop, Pending)
    assert str(hop.lane).endswith(DELETE_LISTENER)
    assert trail_of(hop.resume).vain == VAIN
    await build.elbv2.create_listener(
        LoadBalancerArn=balancer, Protocol="HTTP", Port=80,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": target_group}],
    )  # fmt: skip
    hand = removing.hand(removing.owner(vpc), TARGET_GROUP, target_group, operation=DELETE_LISTENER, resume=hop.resume)
    gone = (await removing.attempt(hand))[target_group]
    assert isinstance(gone, Pending)
    assert trail_of(gone.resume).vain == 0
    assert len(await removing.asked(DELETE_LISTENER)) == 1
