"""What a removal does when AWS says no, says nothing, or says that it is somebody else's; and what it costs."""

import msgspec
import pytest

from service.contract import Blocked, Gone, Job, Pause, Pending, Refused, Throttled
from service.local.aws import Fault
from service.local.aws.tags import by_cloud_provider, by_cluster_api
from tests.integration.aws_removing import Removing, removing
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.kinds.balancers import LIFTS
from workers.handlers.aws.readying import LET_BE
from workers.handlers.protocol import NotCleared

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
THEIRS = by_cloud_provider("c2", "default/web")
CHANGES = ("DeleteLoadBalancer", "DeleteTargetGroup", "DeleteSecurityGroup", "DeleteListener", "ModifyLoadBalancer")


def changes(asked: list[str]) -> list[str]:
    return [one for one in asked if one.partition(".")[2].startswith(CHANGES)]


# ---- whose it is


async def test_what_is_not_the_clusters_is_refused_and_never_called(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc, other = await build.vpc(), await build.vpc()
    theirs = await build.balancer(vpc, THEIRS)
    api_server = await build.balancer(vpc, by_cluster_api("c1"))
    elsewhere = await build.balancer(other, SERVED)
    found = await removing.attempt(removing.hand(owner(vpc), "aws.balancer", theirs, api_server, elsewhere))
    assert found[theirs] == Refused(f"{theirs} is not tagged kubernetes.io/cluster/c1=owned; {LET_BE}")
    assert "no tag kubernetes.io/service-name" in str(found[api_server]) or "Cluster API" in str(found[api_server])
    assert found[elsewhere] == Refused(f"{elsewhere} is in VPC {other.id}, and cluster c1 in {vpc.id}; {LET_BE}")
    assert changes(await removing.asked()) == []


async def test_nothing_is_done_in_another_account_than_the_owners(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    elsewhere = msgspec.structs.replace(removing.owner(vpc), account="999900001111")
    found = await removing.attempt(removing.hand(elsewhere, "aws.security-group", group))
    verdict = found[group]
    assert isinstance(verdict, Blocked)
    assert "999900001111" in verdict.by
    assert removing.cloud.account in verdict.by
    assert await removing.asked() == []


async def test_a_job_of_another_place_than_its_lane_is_a_failed_attempt(removing: Removing) -> None:
    owner = removing.owner()
    hand = removing.hand(owner, "aws.volume", "vol-1")
    hand.lane = f"aws/{removing.cloud.account}/us-east-1/ec2.DeleteVolume"
    (verdict,) = (await removing.attempt(hand)).values()
    assert isinstance(verdict, ValueError)
    garbled = removing.hand(owner, "aws.volume", "vol-1", data="{}")
    (verdict,) = (await removing.attempt(garbled)).values()
    assert isinstance(verdict, msgspec.ValidationError)
    assert await removing.asked() == []


async def test_a_name_that_came_back_as_another_s_is_not_ours_any_more(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    name = await build.classic(vpc, SERVED)
    deleted = (await removing.attempt(removing.hand(owner(vpc), "aws.classic-balancer", name)))[name]
    assert isinstance(deleted, Pending)
    assert deleted.resume

    async def check(resume: str) -> object:
        lane = "elb.DescribeLoadBalancers"
        hand = removing.hand(owner(vpc), "aws.classic-balancer", name, operation=lane, resume=resume)
        return (await removing.attempt(hand))[name]

    assert await check(deleted.resume) == Gone()
    await build.classic(vpc, THEIRS, name=name)
    # moto gives a name the same address each time; AWS never does.
    assert await check(f"{deleted.resume}-of-before") == Gone("it is gone, and another one has its name by now")
    assert name in await build.standing()


# ---- reading


@pytest.mark.parametrize("count", [1, 3, 6])
async def test_what_is_missing_hides_nothing_of_its_batch(removing: Removing, count: int) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    there = [await build.target_group(vpc, SERVED) for _ in range(count)]
    missing = f"{there[0].rpartition('/')[0].rpartition('/')[0]}/never/0123456789abcdef"
    found = await removing.attempt(removing.hand(owner(vpc), "aws.target-group", *there, missing))
    assert found[missing] == Gone()
    assert {type(found[one]) for one in there} == {Pending}
    asked = await removing.asked()
    assert len(changes(asked)) == count
    # The one that failed, the list, and the tags.
    assert len(asked) - count == 3


async def test_one_that_vanishes_between_its_description_and_its_tags_hides_nothing(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    arns = [await build.balancer(vpc, SERVED) for _ in range(5)]
    gone = Fault(what="error", action="elbv2.DescribeTags", about=arns[2], code="LoadBalancerNotFound", status=400)
    await removing.cloud.aws.trouble(gone)
    found = await removing.attempt(removing.hand(owner(vpc), "aws.balancer", *arns))
    assert found.pop(arns[2]) == Gone()
    assert {type(one) for one in found.values()} == {Pending}
    assert len(found) == 4


async def test_absence_of_many_is_proven_by_one_list_and_of_one_by_asking_for_it(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    stays = await build.balancer(vpc, SERVED)
    gone = [f"{stays[:-2]}{number:02}x" for number in range(15)]
    checking = "elbv2.DescribeLoadBalancers"
    found = await removing.attempt(removing.hand(owner(vpc), "aws.balancer", *gone, stays, operation=checking))
    assert {found[one] for one in gone} == {Gone()}
    back = found[stays]
    assert isinstance(back, Pending)
    assert back.lane == f"{owner(vpc).place}/elbv2.DeleteLoadBalancer"
    assert await removing.asked() == [checking]
    assert await removing.attempt(removing.hand(owner(vpc), "aws.balancer", gone[0], operation=checking)) == {
        gone[0]: Gone()
    }
    assert await removing.asked() == [checking, checking]


async def test_an_answer_that_is_none_of_awss_proves_nothing(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    for fault in (Fault(what="html"), Fault(what="close")):
        await removing.cloud.aws.trouble(fault)
        for operation in ("ec2.DeleteSecurityGroup", "ec2.DescribeSecurityGroups"):
            hand = removing.hand(owner(vpc), "aws.security-group", group, operation=operation)
            (verdict,) = (await removing.attempt(hand)).values()
            assert isinstance(verdict, AwsError | Blocked)
    await removing.cloud.aws.trouble()
    assert await build.standing() == {group}


# ---- being refused


async def test_a_denied_permission_is_named_and_holds_only_its_own_kind(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    balancer, volume = await build.balancer(vpc, SERVED), await build.volume(OURS)
    await removing.cloud.aws.trouble(Fault(what="deny", action="elbv2.DeleteLoadBalancer"))
    await removing.start()
    going = await removing.go(
        *removing.targets(owner(vpc), "aws.balancer", balancer), *removing.targets(owner(vpc), "aws.volume", volume)
    )
    record = await removing.until(going, balancer, "refused", "elasticloadbalancing:DeleteLoadBalancer is denied")
    assert "deploy/aws/iam-policy.json" in record["detail"]
    await removing.until(going, volume, "gone")
    assert await build.standing() == {balancer}
    denied = Fault(what="deny", action="elbv2.DescribeTags")
    await removing.cloud.aws.trouble(denied)
    found = await removing.attempt(removing.hand(owner(vpc), "aws.balancer", balancer))
    assert "elasticloadbalancing:DescribeTags is denied" in str(found[balancer])


@pytest.mark.long
async def test_a_throttle_spends_no_attempt_and_pauses_the_limit_that_was_short(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    await removing.cloud.aws.trouble(Fault(what="throttle", action="ec2.DeleteSecurityGroup", times=1))
    hand = removing.hand(owner(vpc), "aws.security-group", group)
    assert isinstance((await removing.attempt(hand))[group], Throttled)
    assert hand.told == [Pause("eu-west-1/ec2.DeleteSecurityGroup")]
    await removing.cloud.aws.trouble(Fault(what="throttle", action="ec2.DescribeSecurityGroups", times=1))
    hand = removing.hand(owner(vpc), "aws.security-group", group)
    assert isinstance((await removing.attempt(hand))[group], Throttled)
    assert hand.told == [Pause("eu-west-1/ec2.DescribeSecurityGroups")]
    await removing.cloud.aws.trouble(Fault(what="throttle", action="ec2.DeleteSecurityGroup", times=2))
    going = await removing.remove(*removing.targets(owner(vpc), "aws.security-group", group))
    assert (await removing.job(going, group)).get("attempts", "0") == "0"
    assert await build.standing() == set()


async def test_a_deletion_whose_answer_was_lost_is_repeated_without_harm(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    await removing.cloud.aws.trouble(Fault(what="lost", action="elbv2.DeleteLoadBalancer", times=1))
    going = await removing.remove(*removing.targets(owner(vpc), "aws.balancer", balancer))
    assert await build.standing() == set()
    assert changes(await removing.asked()) == ["elbv2.DeleteLoadBalancer"]
    assert (await removing.job(going, balancer))["attempts"] == "1"


async def test_said_to_be_gone_is_not_yet_proven_gone(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    lie = Fault(what="error", action="ec2.DeleteSecurityGroup", code="InvalidGroup.NotFound", status=400)
    await removing.cloud.aws.trouble(lie)
    verdict = (await removing.attempt(removing.hand(owner(vpc), "aws.security-group", group)))[group]
    assert isinstance(verdict, Pending)
    assert verdict.lane == f"{owner(vpc).place}/ec2.DescribeSecurityGroups"


# ---- deletion protection


async def test_deletion_protection_is_named_and_left(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    await build.protect(balancer)
    verdict = (await removing.attempt(removing.hand(owner(vpc), "aws.balancer", balancer)))[balancer]
    assert isinstance(verdict, Refused)
    assert balancer in verdict.reason
    assert "deletion_protection.enabled" in verdict.reason
    assert "aws.lift_deletion_protection" in verdict.reason
    assert await removing.asked("elbv2.ModifyLoadBalancerAttributes") == []


async def test_deletion_protection_is_lifted_where_the_settings_allow_it(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    removing.aws = msgspec.structs.replace(removing.aws, lift_deletion_protection=True)
    vpc = await build.vpc()
    ours, theirs = await build.balancer(vpc, SERVED), await build.balancer(vpc, THEIRS)
    await build.protect(ours)
    await build.protect(theirs)
    await removing.remove(*removing.targets(owner(vpc), "aws.balancer", ours))
    assert await build.standing() == {theirs}
    attributes = (await build.elbv2.describe_load_balancer_attributes(LoadBalancerArn=theirs))["Attributes"]
    assert {"Key": "deletion_protection.enabled", "Value": "true"} in attributes


async def test_a_protection_that_can_not_be_lifted_is_not_lifted_again_and_again(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    removing.aws = msgspec.structs.replace(removing.aws, lift_deletion_protection=True)
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    no = Fault(what="error", action="elbv2.DeleteLoadBalancer", code="OperationNotPermitted", status=400, message="no")
    await removing.cloud.aws.trouble(no)
    await removing.start()
    going = await removing.go(*removing.targets(owner(vpc), "aws.balancer", balancer))
    await removing.until(going, balancer, "blocked", "was lifted")
    assert len(await removing.asked("elbv2.ModifyLoadBalancerAttributes")) == 1
    await removing.until(going, balancer, "refused", "has deletion protection again")
    assert len(await removing.asked("elbv2.ModifyLoadBalancerAttributes")) == LIFTS


# ---- listeners


async def test_a_listener_of_a_foreign_balancer_is_named_and_left(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    theirs = await build.balancer(vpc, THEIRS)
    target_group = await build.target_group(vpc, SERVED, behind=theirs)
    await removing.start()
    going = await removing.go(*removing.targets(owner(vpc), "aws.target-group", target_group))
    await removing.until(going, target_group, "blocked", f"not the cluster's: {theirs}")
    assert await removing.asked("elbv2.DeleteListener") == []
    assert await build.standing() == {theirs, target_group}


@pytest.mark.parametrize("by_rule", [False, True])
async def test_a_listener_of_the_clusters_own_balancer_is_deleted_where_it_blocks(
    removing: Removing, by_rule: bool
) -> None:
    """As where the balancer was made after the plan: it is to go, but only the last look finds it."""
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    if by_rule:
        default = await build.target_group(vpc, THEIRS, behind=balancer)
        target_group = await build.target_group(vpc, SERVED)
        listeners = (await build.elbv2.describe_listeners(LoadBalancerArn=balancer))["Listeners"]
        await build.elbv2.create_rule(
            ListenerArn=listeners[0]["ListenerArn"], Priority=1,
            Conditions=[{"Field": "path-pattern", "Values": ["/x"]}],
            Actions=[{"Type": "forward", "TargetGroupArn": target_group}],
        )  # fmt: skip
        left = {balancer, default}
    else:
        target_group = await build.target_group(vpc, SERVED, behind=balancer)
        left = {balancer}
    await removing.remove(*removing.targets(owner(vpc), "aws.target-group", target_group))
    assert await build.standing() == left
    assert await removing.asked("elbv2.DeleteListener") == ["elbv2.DeleteListener"]


# ---- tokens


async def test_what_was_reserved_and_not_called_is_given_back(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    there = [await build.group(vpc, OURS) for _ in range(4)]
    hand = removing.hand(owner(vpc), "aws.security-group", *there, "sg-0123456789abcdef0")
    await removing.attempt(hand)
    # One reading of the groups, two of what refers to them, one of interfaces, and four of five deletions.
    assert hand.returned == {
        "eu-west-1/ec2.DeleteSecurityGroup": 1,
        "eu-west-1/ec2.DescribeSecurityGroups": 15 - 3,
        "eu-west-1/ec2.DescribeNetworkInterfaces": 5 - 1,
    }


async def test_what_the_runtime_gives_back_for_jobs_that_were_not_cleared_is_not_given_back_twice(
    removing: Removing,
) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc = await build.vpc()
    groups = [await build.group(vpc, OURS) for _ in range(2)]
    hand = removing.hand(owner(vpc), "aws.security-group", *groups, clear=NotCleared("paused by hand"))
    found = await removing.attempt(hand)
    assert {type(one) for one in found.values()} == {NotCleared}
    # All but the reads, which were made.
    assert hand.returned == {
        "eu-west-1/ec2.DescribeSecurityGroups": -3.0, "eu-west-1/ec2.DescribeNetworkInterfaces": -1.0,
    }  # fmt: skip
    assert changes(await removing.asked()) == []


async def test_several_owners_of_one_account_are_read_in_one_go_and_judged_apart(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    vpc, other = await build.vpc(), await build.vpc()
    one, astray = [await build.group(vpc, by_cloud_provider("c1")) for _ in range(2)]
    two = await build.group(other, by_cloud_provider("c2"))
    hand = removing.hand(owner(vpc), "aws.security-group", one, two, astray)
    second = msgspec.json.encode(owner(other, name="c2")).decode()
    first, *rest = hand.jobs
    hand.jobs = [first, *(Job(job.id, 7, msgspec.structs.replace(job.record, data=second)) for job in rest)]
    found = await removing.attempt(hand)
    assert isinstance(found[one], Pending)
    assert isinstance(found[two], Pending)
    assert isinstance(found[astray], Refused)
    assert len(await removing.asked("ec2.DescribeNetworkInterfaces")) == 1


async def test_ten_resources_are_read_together_and_deleted_once_each(removing: Removing) -> None:
    build, owner = removing.cloud.world, removing.owner
    await removing.cloud.aws.behave(drain=0.0)
    mine = await build.cluster_resources("c1")
    await removing.start()
    going = await removing.go(
        *removing.targets(owner(mine.vpc), "aws.classic-balancer", *mine.classic),
        *removing.targets(owner(mine.vpc), "aws.balancer", *mine.balancers),
        *removing.targets(owner(mine.vpc), "aws.target-group", *mine.target_groups),
        *removing.targets(owner(mine.vpc), "aws.security-group", *mine.groups),
    )
    await removing.world.until_done(going)
    assert await build.standing() == set()
    asked = await removing.asked()
    assert sum(".Delete" in one for one in asked) == 10
    # Usually 15; each look that comes too early, as on a busy machine, costs a call more.
    assert len(asked) - 10 < 30
