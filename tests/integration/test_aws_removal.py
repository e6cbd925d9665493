"""Removal when AWS refuses, does not respond, or reports another owner; and what it costs."""

from datetime import timedelta

import msgspec
import pytest

from service.contract import Blocked, Gone, Job, Pause, Pending, Refused, Throttled
from service.contract.kept import PREVENT_DELETE_TAG
from service.sources.capa import CAPA
from standins.aws import AwsFault
from standins.aws.tags import by_cloud_provider, by_cluster_api
from tests.aws_kinds import AWS_KINDS
from tests.integration.aws_removal import (
    LIMITS,
    OWNER_SCOPE,
    AwsRemovalFixture,
    aws_removal,
    capa_claims,
    named,
    removing,
)
from workers.handlers.protocol import NotCleared
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kind_calls import NOT_OWNED_HINT, AwsKindCalls, RemovalContext
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.kinds.deletion_protection import MAX_LIFTS
from workers.providers.aws.rechecks import ConsentRechecks
from workers.providers.aws.services import is_read
from workers.removal import LONGEST_REPEAT, ClaimedJob, RemovalProgress

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
THEIRS = by_cloud_provider("c2", "default/web")
CHANGES = ("DeleteLoadBalancer", "DeleteTargetGroup", "DeleteSecurityGroup", "DeleteListener", "ModifyLoadBalancer")


def changes(asked: list[str]) -> list[str]:
    return [one for one in asked if one.partition(".")[2].startswith(CHANGES)]


# ---- ownership


async def test_what_is_not_the_clusters_is_refused_and_never_called(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc, other = await build.vpc(), await build.vpc()
    theirs = await build.balancer(vpc, THEIRS)
    api_server = await build.balancer(vpc, by_cluster_api("c1"))
    elsewhere = await build.balancer(other, SERVED)
    found = await removing.attempt(removing.batch(owner(vpc), "aws.balancer", theirs, api_server, elsewhere))
    assert found[theirs] == Refused(f"{theirs} is not tagged kubernetes.io/cluster/c1=owned; {NOT_OWNED_HINT}")
    assert "no tag kubernetes.io/service-name" in str(found[api_server]) or "Cluster API" in str(found[api_server])
    assert found[elsewhere] == Refused(
        f"{elsewhere} is in VPC {other.id}, and cluster c1 in {vpc.id}; {NOT_OWNED_HINT}"
    )
    assert changes(await removing.asked()) == []


@pytest.mark.invariant(2)
@pytest.mark.parametrize(
    ("kind", "operation"),
    [(kind.name, operation) for kind in KINDS for operation, step in kind.steps.items() if step.checks_ownership],
)
async def test_no_step_changes_what_is_not_the_clusters_or_is_kept_by_a_tag(
    removing: AwsRemovalFixture, kind: str, operation: str
) -> None:
    build, row = removing.cloud.builder, AWS_KINDS[kind]
    removing.aws = msgspec.structs.replace(
        removing.aws, lift_deletion_protection=True, revoke_foreign_rules=True, snapshot_first=True
    )
    vpc = await build.vpc()
    theirs = await row.make(build, vpc, row.tags("c2"))
    kept = await row.make(build, vpc, {**row.tags("c1"), PREVENT_DELETE_TAG: "true"})
    batch = removing.batch(removing.owner(vpc), kind, theirs, kept, operation=operation)
    found = await removing.attempt(batch)
    assert all(isinstance(one, Refused) for one in found.values()), found
    assert NOT_OWNED_HINT in str(found[theirs])
    assert PREVENT_DELETE_TAG in str(found[kept])
    assert batch.cleared == []
    assert [one for one in await removing.asked() if not is_read(one)] == []


async def test_nothing_is_done_in_another_account_than_the_owners(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    elsewhere = msgspec.structs.replace(removing.owner(vpc), account="999900001111")
    found = await removing.attempt(removing.batch(elsewhere, "aws.security-group", group))
    verdict = found[group]
    assert isinstance(verdict, Blocked)
    assert "999900001111" in verdict.by
    assert removing.cloud.account in verdict.by
    assert await removing.asked() == []


async def test_a_job_of_another_place_than_its_lane_is_a_failed_attempt(removing: AwsRemovalFixture) -> None:
    owner = removing.owner()
    batch = removing.batch(owner, "aws.volume", "vol-1")
    batch.lane = f"aws/{removing.cloud.account}/us-east-1/ec2.DeleteVolume"
    (verdict,) = (await removing.attempt(batch)).values()
    assert isinstance(verdict, ValueError)
    garbled = removing.batch(owner, "aws.volume", "vol-1", data="{}")
    (verdict,) = (await removing.attempt(garbled)).values()
    assert isinstance(verdict, msgspec.ValidationError)
    assert await removing.asked() == []


@pytest.mark.invariant(8)
async def test_a_claim_of_a_collector_that_is_not_there_is_refused_and_nothing_is_read(
    removing: AwsRemovalFixture,
) -> None:
    volume = await removing.cloud.builder.volume(OURS)
    forged = {**msgspec.to_builtins(removing.owner()), "collector": "ack"}
    batch = removing.batch(removing.owner(), "aws.volume", volume, data=msgspec.json.encode(forged).decode())
    verdict = (await removing.attempt(batch))[volume]
    assert isinstance(verdict, Refused)
    assert "collector 'ack', which this process does not have" in verdict.reason
    assert await removing.asked() == []


@pytest.mark.invariant(8)
@pytest.mark.parametrize("consented", ["", "another"])
async def test_without_the_consent_of_its_own_collector_nothing_is_changed(
    removing: AwsRemovalFixture, consented: str
) -> None:
    volume = await removing.cloud.builder.volume(OURS)
    batch, claims = removing.batch(removing.owner(), "aws.volume", volume), capa_claims(removing.aws)
    if consented:
        claims.consented(consented, batch.jobs[0].deletion, OWNER_SCOPE, removing.cloud.account)
    removal = aws_removal(named("aws.volume"), removing.reach, removing.aws, claims)
    ((job, verdict),) = [pair async for pair in removal.attempt(batch)]
    assert isinstance(verdict, Refused)
    assert "but the object that consented is of" in verdict.reason
    # The runtime was asked, and read what it had to; only the call was not made.
    assert batch.cleared == [job.id]
    assert {one for one in await removing.asked() if "Describe" not in one} == set()


@pytest.mark.invariant(8)
@pytest.mark.parametrize("what", ["source", "namespace", "region", "account"])
async def test_consent_of_an_object_elsewhere_changes_nothing(removing: AwsRemovalFixture, what: str) -> None:
    volume = await removing.cloud.builder.volume(OURS)
    batch, claims = removing.batch(removing.owner(), "aws.volume", volume), capa_claims(removing.aws)
    scope = OWNER_SCOPE if what == "account" else msgspec.structs.replace(OWNER_SCOPE, **{what: "another"})
    account = "999900001111" if what == "account" else removing.cloud.account
    claims.consented(CAPA, batch.jobs[0].deletion, scope, account)
    removal = aws_removal(named("aws.volume"), removing.reach, removing.aws, claims)
    ((_, verdict),) = [pair async for pair in removal.attempt(batch)]
    assert isinstance(verdict, NotCleared)
    assert verdict.refused
    assert f"the {what} of the object that consented is" in str(verdict)
    assert {one for one in await removing.asked() if "Describe" not in one} == set()


async def test_a_name_that_came_back_as_another_s_is_not_ours_any_more(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    name = await build.classic(vpc, SERVED)
    deleted = (await removing.attempt(removing.batch(owner(vpc), "aws.classic-balancer", name)))[name]
    assert isinstance(deleted, Pending)
    assert deleted.resume

    async def check(resume: str) -> object:
        lane = "elb.DescribeLoadBalancers"
        batch = removing.batch(owner(vpc), "aws.classic-balancer", name, operation=lane, resume=resume)
        return (await removing.attempt(batch))[name]

    assert await check(deleted.resume) == Gone()
    await build.classic(vpc, THEIRS, name=name)
    gone = await check(deleted.resume)
    assert isinstance(gone, Gone)
    assert gone.detail.startswith("it is gone, and another one has its name by now")
    assert name in await build.standing()


@pytest.mark.invariant(9)
async def test_only_the_balancer_that_was_planned_goes_and_not_a_later_one_of_its_name(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    name = await build.classic(vpc, SERVED)
    batch = removing.batch(removing.owner(vpc), "aws.classic-balancer", name, incarnation="earlier.elb.amazonaws.com")
    gone = (await removing.attempt(batch))[name]
    assert isinstance(gone, Gone)
    assert "another one has its name by now" in gone.detail
    assert name in await build.standing()


async def test_deletes_that_are_accepted_without_effect_are_repeated_later_and_later(
    removing: AwsRemovalFixture,
) -> None:
    volume = await removing.cloud.builder.volume(OURS)
    waits = []
    for deletes in (1, 2, 3, 4, 5000):
        resume = str(RemovalProgress("", deletes))
        batch = removing.batch(removing.owner(), "aws.volume", volume, operation="ec2.DescribeVolumes", resume=resume)
        again = (await removing.attempt(batch))[volume]
        assert isinstance(again, Pending)
        assert str(again.lane).endswith("/ec2.DeleteVolume")
        assert f"its deletion was accepted {deletes} times" in again.detail
        waits.append(again.check_after.total_seconds())
    assert waits == [0, 15, 30, 60, LONGEST_REPEAT.total_seconds()]


async def test_a_deletion_that_goes_on_is_looked_at_less_often_after_a_while(removing: AwsRemovalFixture) -> None:
    removing.aws = msgspec.structs.replace(removing.aws, check_after=timedelta(minutes=10))
    calls = AwsKindCalls(
        named("aws.nat-gateway"),
        RemovalContext(removing.reach, removing.aws, capa_claims(removing.aws), LIMITS, ConsentRechecks()),
    )
    # Aligned with the checks of other resources: between half a period and one and a half.
    for checks, period in ((0, 10), (3, 10), (4, 20), (8, 40), (5000, 40)):
        assert period / 2 <= calls.check_delay(checks).total_seconds() / 60 <= period * 1.5


# ---- reading


@pytest.mark.parametrize("count", [1, 3, 6])
async def test_what_is_missing_hides_nothing_of_its_batch(removing: AwsRemovalFixture, count: int) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    there = [await build.target_group(vpc, SERVED) for _ in range(count)]
    missing = f"{there[0].rpartition('/')[0].rpartition('/')[0]}/never/0123456789abcdef"
    found = await removing.attempt(removing.batch(owner(vpc), "aws.target-group", *there, missing))
    assert found[missing] == Gone()
    assert {type(found[one]) for one in there} == {Pending}
    asked = await removing.asked()
    assert len(changes(asked)) == count
    # The call that failed, the list, and the tags.
    assert len(asked) - count == 3


async def test_one_that_vanishes_between_its_description_and_its_tags_hides_nothing(
    removing: AwsRemovalFixture,
) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    arns = [await build.balancer(vpc, SERVED) for _ in range(5)]
    gone = AwsFault(what="error", action="elbv2.DescribeTags", about=arns[2], code="LoadBalancerNotFound", status=400)
    await removing.cloud.aws.set_faults(gone)
    found = await removing.attempt(removing.batch(owner(vpc), "aws.balancer", *arns))
    assert found.pop(arns[2]) == Gone()
    assert {type(one) for one in found.values()} == {Pending}
    assert len(found) == 4


async def test_absence_of_many_is_proven_by_one_list_and_of_one_by_asking_for_it(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    stays = await build.balancer(vpc, SERVED)
    gone = [f"{stays[:-2]}{number:02}x" for number in range(15)]
    checking = "elbv2.DescribeLoadBalancers"
    found = await removing.attempt(removing.batch(owner(vpc), "aws.balancer", *gone, stays, operation=checking))
    assert {found[one] for one in gone} == {Gone()}
    back = found[stays]
    assert isinstance(back, Pending)
    assert back.lane == f"{owner(vpc).place}/elbv2.DeleteLoadBalancer"
    assert await removing.asked() == [checking]
    assert await removing.attempt(removing.batch(owner(vpc), "aws.balancer", gone[0], operation=checking)) == {
        gone[0]: Gone()
    }
    assert await removing.asked() == [checking, checking]


async def test_an_answer_that_is_none_of_awss_proves_nothing(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    for fault in (AwsFault(what="html"), AwsFault(what="close")):
        await removing.cloud.aws.set_faults(fault)
        for operation in ("ec2.DeleteSecurityGroup", "ec2.DescribeSecurityGroups"):
            batch = removing.batch(owner(vpc), "aws.security-group", group, operation=operation)
            (verdict,) = (await removing.attempt(batch)).values()
            assert isinstance(verdict, AwsError | Blocked)
    await removing.cloud.aws.set_faults()
    assert await build.standing() == {group}


# ---- refusals


async def test_a_denied_permission_is_named_and_holds_only_its_own_kind(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    balancer, volume = await build.balancer(vpc, SERVED), await build.volume(OURS)
    await removing.cloud.aws.set_faults(AwsFault(what="deny", action="elbv2.DeleteLoadBalancer"))
    await removing.start()
    going = await removing.go(
        *removing.targets(owner(vpc), "aws.balancer", balancer), *removing.targets(owner(vpc), "aws.volume", volume)
    )
    record = await removing.until(going, balancer, "refused", "elasticloadbalancing:DeleteLoadBalancer is denied")
    assert "knell role --aws-policy" in record["detail"]
    await removing.until(going, volume, "gone")
    assert await build.standing() == {balancer}
    denied = AwsFault(what="deny", action="elbv2.DescribeTags")
    await removing.cloud.aws.set_faults(denied)
    found = await removing.attempt(removing.batch(owner(vpc), "aws.balancer", balancer))
    assert "elasticloadbalancing:DescribeTags is denied" in str(found[balancer])


@pytest.mark.long
async def test_a_throttle_spends_no_attempt_and_pauses_the_limit_that_was_short(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    await removing.cloud.aws.set_faults(AwsFault(what="throttle", action="ec2.DeleteSecurityGroup", times=1))
    batch = removing.batch(owner(vpc), "aws.security-group", group)
    assert isinstance((await removing.attempt(batch))[group], Throttled)
    assert batch.told == [Pause("eu-west-1/ec2.DeleteSecurityGroup")]
    await removing.cloud.aws.set_faults(AwsFault(what="throttle", action="ec2.DescribeSecurityGroups", times=1))
    batch = removing.batch(owner(vpc), "aws.security-group", group)
    assert isinstance((await removing.attempt(batch))[group], Throttled)
    assert batch.told == [Pause("eu-west-1/ec2.DescribeSecurityGroups")]
    await removing.cloud.aws.set_faults(AwsFault(what="throttle", action="ec2.DeleteSecurityGroup", times=2))
    going = await removing.remove(*removing.targets(owner(vpc), "aws.security-group", group))
    assert (await removing.job(going, group)).get("attempts", "0") == "0"
    assert await build.standing() == set()


async def test_where_the_look_for_what_uses_it_is_throttled_only_the_jobs_that_need_it_wait(
    removing: AwsRemovalFixture,
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs = [await build.group(vpc, tags) for tags in (OURS, THEIRS)]
    await removing.cloud.aws.set_faults(
        AwsFault(what="throttle", action="ec2.DescribeNetworkInterfaces", account=removing.cloud.account)
    )
    missing = "sg-0123456789abcdef0"
    found = await removing.attempt(removing.batch(removing.owner(vpc), "aws.security-group", ours, theirs, missing))
    assert [type(found[one]) for one in (ours, theirs, missing)] == [Throttled, Refused, Gone]
    assert changes(await removing.asked()) == []


async def test_a_deletion_whose_answer_was_lost_is_repeated_without_harm(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    await removing.cloud.aws.set_faults(AwsFault(what="lost", action="elbv2.DeleteLoadBalancer", times=1))
    going = await removing.remove(*removing.targets(owner(vpc), "aws.balancer", balancer))
    assert await build.standing() == set()
    assert changes(await removing.asked()) == ["elbv2.DeleteLoadBalancer"]
    assert (await removing.job(going, balancer))["attempts"] == "1"


async def test_said_to_be_gone_is_not_yet_proven_gone(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    group = await build.group(vpc, OURS)
    lie = AwsFault(what="error", action="ec2.DeleteSecurityGroup", code="InvalidGroup.NotFound", status=400)
    await removing.cloud.aws.set_faults(lie)
    verdict = (await removing.attempt(removing.batch(owner(vpc), "aws.security-group", group)))[group]
    assert isinstance(verdict, Pending)
    assert verdict.lane == f"{owner(vpc).place}/ec2.DescribeSecurityGroups"


# ---- deletion protection


async def test_deletion_protection_is_named_and_left(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    await build.protect(balancer)
    verdict = (await removing.attempt(removing.batch(owner(vpc), "aws.balancer", balancer)))[balancer]
    assert isinstance(verdict, Refused)
    assert balancer in verdict.reason
    assert "deletion_protection.enabled" in verdict.reason
    assert "aws.lift_deletion_protection" in verdict.reason
    assert await removing.asked("elbv2.ModifyLoadBalancerAttributes") == []


async def test_deletion_protection_is_lifted_where_the_settings_allow_it(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    removing.aws = msgspec.structs.replace(removing.aws, lift_deletion_protection=True)
    vpc = await build.vpc()
    ours, theirs = await build.balancer(vpc, SERVED), await build.balancer(vpc, THEIRS)
    await build.protect(ours)
    await build.protect(theirs)
    await removing.remove(*removing.targets(owner(vpc), "aws.balancer", ours))
    assert await build.standing() == {theirs}
    attributes = (await build.elbv2.describe_load_balancer_attributes(LoadBalancerArn=theirs))["Attributes"]
    assert {"Key": "deletion_protection.enabled", "Value": "true"} in attributes


async def test_a_protection_that_can_not_be_lifted_is_not_lifted_again_and_again(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    removing.aws = msgspec.structs.replace(removing.aws, lift_deletion_protection=True)
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    no = AwsFault(
        what="error", action="elbv2.DeleteLoadBalancer", code="OperationNotPermitted", status=400, message="no"
    )
    await removing.cloud.aws.set_faults(no)
    await removing.start()
    going = await removing.go(*removing.targets(owner(vpc), "aws.balancer", balancer))
    await removing.until(going, balancer, "blocked", "was lifted")
    assert len(await removing.asked("elbv2.ModifyLoadBalancerAttributes")) == 1
    await removing.until(going, balancer, "refused", "has deletion protection again")
    assert len(await removing.asked("elbv2.ModifyLoadBalancerAttributes")) == MAX_LIFTS


# ---- listeners


async def test_a_listener_of_a_foreign_balancer_is_named_and_left(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    theirs = await build.balancer(vpc, THEIRS)
    target_group = await build.target_group(vpc, SERVED, behind=theirs)
    await removing.start()
    going = await removing.go(*removing.targets(owner(vpc), "aws.target-group", target_group))
    await removing.until(going, target_group, "blocked", f"not its owner's: {theirs}")
    assert await removing.asked("elbv2.DeleteListener") == []
    assert await build.standing() == {theirs, target_group}


@pytest.mark.parametrize("by_rule", [False, True])
async def test_a_listener_of_the_clusters_own_balancer_is_deleted_where_it_blocks(
    removing: AwsRemovalFixture, by_rule: bool
) -> None:
    """As if the load balancer was created after the plan: it is to be deleted, but only the final check finds it."""
    build, owner = removing.cloud.builder, removing.owner
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


async def test_what_was_reserved_and_not_called_is_given_back(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    there = [await build.group(vpc, OURS) for _ in range(4)]
    batch = removing.batch(owner(vpc), "aws.security-group", *there, "sg-0123456789abcdef0")
    await removing.attempt(batch)
    # One read of the groups, two of what refers to them, one of interfaces, and four of five deletions.
    assert batch.returned == {
        "eu-west-1/ec2.DeleteSecurityGroup": 1,
        "eu-west-1/ec2.DescribeSecurityGroups": 15 - 3,
        "eu-west-1/ec2.DescribeNetworkInterfaces": 5 - 1,
    }


async def test_what_the_runtime_gives_back_for_jobs_that_were_not_cleared_is_not_given_back_twice(
    removing: AwsRemovalFixture,
) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    groups = [await build.group(vpc, OURS) for _ in range(2)]
    batch = removing.batch(owner(vpc), "aws.security-group", *groups, clear=NotCleared("paused by hand"))
    found = await removing.attempt(batch)
    assert {type(one) for one in found.values()} == {NotCleared}
    # All but the reads, which were made.
    assert batch.spent == {
        "eu-west-1/ec2.DescribeSecurityGroups": 3.0, "eu-west-1/ec2.DescribeNetworkInterfaces": 1.0,
    }  # fmt: skip
    assert changes(await removing.asked()) == []


async def test_several_owners_of_one_account_are_read_in_one_go_and_judged_apart(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc, other = await build.vpc(), await build.vpc()
    one, astray = [await build.group(vpc, by_cloud_provider("c1")) for _ in range(2)]
    two = await build.group(other, by_cloud_provider("c2"))
    batch = removing.batch(owner(vpc), "aws.security-group", one, two, astray)
    second = msgspec.json.encode(owner(other, name="c2")).decode()
    first, *rest = batch.jobs
    batch.jobs = [
        first,
        *(Job(f"another-{job.id}", 7, msgspec.structs.replace(job.record, data=second)) for job in rest),
    ]
    found = await removing.attempt(batch)
    assert isinstance(found[one], Pending)
    assert isinstance(found[two], Pending)
    assert isinstance(found[astray], Refused)
    assert len(await removing.asked("ec2.DescribeNetworkInterfaces")) == 1


async def test_jobs_of_two_sources_are_never_read_together(removing: AwsRemovalFixture) -> None:
    """Identities of one name may be different ones in the clusters of two sources, with other permissions."""
    made = removing.batch(removing.owner(), "aws.volume", "vol-a", "vol-b", "vol-c")
    context = RemovalContext(removing.reach, removing.aws, capa_claims(removing.aws), LIMITS, ConsentRechecks())
    scopes = [msgspec.structs.replace(OWNER_SCOPE, source=source) for source in ("one", "two", "one")]
    claimed = [
        ClaimedJob(job, msgspec.structs.replace(removing.owner(), scope=scope), removing.judge)
        for job, scope in zip(made.jobs, scopes, strict=True)
    ]
    connected = await AwsKindCalls(named("aws.volume"), context).connect(claimed, made)
    assert [[one.job.target for one in group] for group in connected.groups] == [["vol-a", "vol-c"], ["vol-b"]]


async def test_ten_resources_are_read_together_and_deleted_once_each(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    await removing.cloud.aws.behave(drain=0.0)
    mine = await build.cluster_resources("c1")
    await removing.start()
    going = await removing.go(
        *removing.targets(owner(mine.vpc), "aws.classic-balancer", *mine.classic),
        *removing.targets(owner(mine.vpc), "aws.balancer", *mine.balancers),
        *removing.targets(owner(mine.vpc), "aws.target-group", *mine.target_groups),
        *removing.targets(owner(mine.vpc), "aws.security-group", *mine.groups),
    )
    await removing.engine.until_done(going)
    assert await build.standing() == set()
    asked = await removing.asked()
    assert sum(".Delete" in one for one in asked) == 10
    # Usually 15; each check that comes too early, as on a busy machine, costs one more call.
    assert len(asked) - 10 < 30
