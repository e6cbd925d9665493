"""What is kept on AWS: by a person's tag, by the tag that keeping leaves, and by what is remembered of decisions."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import VERSION, Left, Pending, Refused
from service.contract.aws import AWS_ACCOUNT, CAPA, CLUSTER_PAUSED, DELETE_FOR_MOVE, TASKS
from service.contract.jobs import Record
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG, Abandoned, Decision
from service.contract.names import DELETION_POLICY, PREFIX
from service.local.aws.behaviour import Fault
from service.local.aws.networks import Vpc
from service.local.aws.tags import by_cloud_provider, pairs
from service.local.aws.world import REGION
from service.stream.kept import KeptMemory
from tests.capi import Capi
from tests.integration.aws_removing import Removing, removing
from tests.integration.clustered import UNMANAGED, Clustered, marked
from workers.handlers.aws.checking import SETTLED, Settling
from workers.handlers.aws.limits import limits_of, place_of_account
from workers.handlers.aws.model import Owner, Whose
from workers.handlers.memory import Keep, NotMarked
from workers.judging.keeping import AGAIN, DONE, WITHIN, KeepingStep
from workers.runtime.quota import BudgetQuota

__all__ = ["removing"]


async def tag(clustered: Clustered, resource: str, tags: Mapping[str, str]) -> None:
    await clustered.resources.ec2.create_tags(Resources=[resource], Tags=pairs(dict(tags)))


@pytest.mark.invariant(10)
async def test_a_persons_tag_keeps_a_resource_until_it_is_taken_off(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    group, other = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    # Its rules are not touched either.
    await clustered.resources.rule(group, other)
    await tag(clustered, group, {PREVENT_DELETE_TAG: "true"})
    one = await clustered.going(clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clustered.work(stack)
    await clustered.until_job(one, "aws.security-group", PREVENT_DELETE_TAG, "jobs abandon")
    await clustered.until_job(one, "aws.security-group", f"ingress rule of {group}")
    assert {group, other} <= await clustered.resources.standing()
    await clustered.resources.ec2.delete_tags(Resources=[group], Tags=[{"Key": PREVENT_DELETE_TAG}])
    await clustered.until_done(one)
    assert not {group, other} & await clustered.resources.standing()


@pytest.mark.invariant(10)
async def test_what_the_tag_of_an_earlier_object_keeps_is_left_and_the_object_goes_without_it(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    before, free = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    await tag(clustered, before, {RETAINED_TAG: "uid/kind/tenant/prod/1"})
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        targets = await clustered.planned(found, side)
        assert {target.id for target in targets if target.kind != SETTLED} == {free}
    one = clustered.event(found)
    await clustered.publish(one)
    await clustered.work(stack)
    await clustered.until_done(one)
    assert {before, free} & await clustered.resources.standing() == {before}


@pytest.mark.invariant(10)
@pytest.mark.parametrize(("name", "verdict"), [(PREVENT_DELETE_TAG, Refused), (RETAINED_TAG, Left)])
async def test_a_tag_that_comes_after_the_plan_keeps_the_resource_as_well(
    removing: Removing, name: str, verdict: type
) -> None:
    vpc = await removing.cloud.world.vpc()
    group = await removing.cloud.world.group(vpc, {**by_cloud_provider("c1"), name: "true"})
    hand = removing.hand(removing.owner(vpc), "aws.security-group", group)
    found = await removing.attempt(hand)
    assert isinstance(found[group], verdict)
    assert hand.cleared == []
    assert group in await removing.cloud.world.standing()


# ---- what is remembered


async def known(clustered: Clustered, name: str = "prod") -> list[Decision]:
    return await KeptMemory(clustered.installation).decisions(f"aws/{clustered.account}/{REGION}", name)


def retained(clustered: Clustered, vpc: Vpc) -> Mapping[str, Any]:
    """A cluster whose resources stay."""
    annotations = {f"{PREFIX}/{DELETION_POLICY}": "retain"}
    return dict(clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked(annotations=annotations)))


@pytest.mark.invariant(10)
async def test_a_tag_that_is_refused_is_recorded_and_fails_nothing(clustered: Clustered, stack: AsyncExitStack) -> None:
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    balancer = await clustered.resources.balancer(vpc, by_cloud_provider("prod", "default/web"))
    await clustered.aws.trouble(Fault(what="deny", action="ec2.CreateTags", account=clustered.account))
    one = await clustered.going(retained(clustered, vpc))
    await clustered.work(stack)
    await clustered.until_done(one)
    (decision,) = await known(clustered)
    tags = {resource.id: resource.tag for resource in decision.resources}
    assert tags == {group: "not tagged: ec2:CreateTags: UnauthorizedOperation", balancer: ""}
    assert decision.uid == one.uid


async def test_an_abandoned_resource_is_tagged_and_remembered(clustered: Clustered, stack: AsyncExitStack) -> None:
    vpc = await clustered.resources.vpc()
    made, one, balancer = await clustered.stopped(stack, vpc)
    (job,) = [job for job, target in await clustered.targets_of(one) if target == balancer]
    await clustered.installation.shard_of_job(job).abandon(job, "somebody")
    await clustered.until_done(one)
    (decision,) = await known(clustered)
    assert [(resource.id, resource.tag) for resource in decision.resources] == [(balancer, "")]
    found = await clustered.resources.elbv2.describe_tags(ResourceArns=[balancer])
    tags = {tag["Key"]: tag["Value"] for tag in found["TagDescriptions"][0]["Tags"]}
    assert tags[RETAINED_TAG].endswith(f"/prod/{made['metadata']['uid']}")
    assert PREVENT_DELETE_TAG not in tags


@pytest.mark.invariant(9)
async def test_a_later_object_of_that_name_is_held_until_the_decision_is_forgotten(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    await clustered.resources.group(vpc, by_cloud_provider("prod"))
    place, memory = f"aws/{clustered.account}/{REGION}", KeptMemory(clustered.installation)
    found = clustered.delete_marked("prod", vpc)
    for uid in ("earlier", found["metadata"]["uid"]):
        decision = Decision(
            v=VERSION, place=place, name="prod", object="awsclusters tenant/prod", uid=uid, source="unmanaged",
            why="retain: so", at=1,
        )  # fmt: skip
        await memory.remember(decision)
    held = await clustered.held(found)
    assert f"knell kept forget {place}/prod" in held.reason
    assert "uid earlier" in held.reason
    async with clustered.side() as side:
        # Nor is anything called that was planned before.
        assert "uid earlier" in str(await side.collector.objects_to(await clustered.facts(found)))
    # What can't be read holds as well.
    await clustered.client.hset(memory.key, f"{place}/prod", "earlier {")
    assert "can't be read" in (await clustered.held(found)).reason
    await memory.forget(f"{place}/prod", "earlier")
    assert len(await clustered.planned(found)) == 2


async def test_a_release_waits_for_marks_for_minutes_and_no_longer(clustered: Clustered) -> None:
    """By the time of day, so that a restart does not begin the wait anew."""
    vpc = await clustered.resources.vpc()
    await clustered.resources.group(vpc, by_cloud_provider("prod"))
    facts = await clustered.facts(clustered.delete(retained(clustered, vpc)))
    about = msgspec.structs.replace(facts.about, kept="retain: so")
    fault = Fault(what="error", action="ec2.CreateTags", account=clustered.account, code="InternalError", status=500)
    await clustered.aws.trouble(fault)
    now, memory = 1_700_000_000.0, KeptMemory(clustered.installation)
    async with clustered.side() as side:
        collectors = {CAPA: side.collector}
        step = KeepingStep(clustered.settings.sources, clustered.lately, collectors, memory, now=lambda: now)
        first = await step.keep(about, "")
        assert first is not None
        assert (first.check_after, "ec2:CreateTags" in first.detail) == (AGAIN, True)
        assert await known(clustered) == []
        now += WITHIN.total_seconds() + 1
        # Another process, which knows nothing but the job's record.
        step = KeepingStep(clustered.settings.sources, clustered.lately, collectors, memory, now=lambda: now)
        last = await step.keep(about, first.resume)
        assert last is not None
        assert (last.check_after, last.resume) == (timedelta(0), DONE)
        assert await step.keep(about, last.resume) is None
    (decision,) = await known(clustered)
    assert "ec2:CreateTags" in decision.remark


@pytest.mark.parametrize("whole", [True, False])
async def test_for_want_of_room_a_release_comes_back_when_there_is_some_and_tags_what_is_left(
    clustered: Clustered, whole: bool
) -> None:
    """Nothing is waited for in the attempt, and nothing is tagged twice."""
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    balancer = await clustered.resources.balancer(vpc, by_cloud_provider("prod", "default/web"))
    found = clustered.delete(retained(clustered, vpc))
    about = msgspec.structs.replace((await clustered.facts(found)).about, kept="retain: so" if whole else "abandoned")
    if not whole:
        key = clustered.installation.shard_of(about.deletion).stem + f"abandoned:{about.deletion}"
        jobs = [abandoned(clustered, vpc, group), abandoned(clustered, vpc, balancer, kind="aws.balancer")]
        records = {f"{about.deletion}#1.{number}": msgspec.json.encode(job) for number, job in enumerate(jobs)}
        await clustered.client.hset(key, mapping=records)
    quota = BudgetQuota(clustered.installation.budgets, 0.1)
    (changes, _), place = limits_of(REGION, "elbv2.AddTags"), place_of_account(clustered.account)
    async with clustered.side(quota=quota) as side:
        step = KeepingStep(
            clustered.settings.sources, clustered.lately, {CAPA: side.collector}, KeptMemory(clustered.installation),
            now=lambda: 1_700_000_000.0,
        )  # fmt: skip

        async def attempt(resume: str) -> Pending:
            while True:
                said = await step.keep(about, resume)
                assert said is not None
                if "listing goes on" not in said.detail:
                    return said

        await quota.refused(place, changes.limit, timedelta(seconds=100))
        first = await attempt("")
        assert "NoRoomInBudget" in first.detail
        assert AGAIN < first.check_after < timedelta(minutes=2)
        assert await tagged(clustered) == {group}
        # Where there is room only after the wait, the last attempt is when that ends.
        await quota.refused(place, changes.limit, timedelta(hours=1))
        assert (await attempt(first.resume)).check_after == WITHIN
        await clustered.client.delete(clustered.installation.keys.budget(place))
        assert (await attempt(first.resume)).resume == DONE
    assert await clustered.calls("ec2.CreateTags") == await clustered.calls("elbv2.AddTags") == 1
    (decision,) = await known(clustered)
    assert {resource.id: resource.tag for resource in decision.resources} == {group: "", balancer: ""}


@pytest.mark.long
@pytest.mark.invariant(10)
async def test_what_belongs_to_an_abandoned_balancer_is_not_taken_from_it(
    clustered: Clustered, stack: AsyncExitStack
) -> None:  # fmt: skip
    """Its listener uses a target group of the cluster, which would else be freed by deleting the listener."""
    vpc, tags = await clustered.resources.vpc(), by_cloud_provider("prod", "default/web")
    balancer = await clustered.resources.balancer(vpc, tags)
    await clustered.resources.target_group(vpc, tags, behind=balancer)
    await clustered.resources.protect(balancer)
    one = await clustered.going(clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clustered.work(stack)
    await clustered.until_job(one, "aws.balancer", "protect")
    (job,) = [job for job, target in await clustered.targets_of(one) if target == balancer]
    await clustered.installation.shard_of_job(job).abandon(job, "somebody")
    await clustered.until_job(one, "aws.target-group", "abandoned")
    listeners = await clustered.resources.elbv2.describe_listeners(LoadBalancerArn=balancer)
    assert len(listeners["Listeners"]) == 1


# ---- what is not marked

OTHERS = "999999999999"
"""An account that the caller is not in."""


async def keep(clustered: Clustered, found: Mapping[str, Any], *abandoned: Record) -> Sequence[Decision]:
    """What is to be remembered of an object that is retained, or of which only this was abandoned."""
    facts = await clustered.facts(found)
    about = msgspec.structs.replace(facts.about, kept="retain: so")
    asked = Keep(
        about=about, live=facts.live, abandoned=Abandoned(abandoned), whole=not abandoned, at=1, mark="kept/1"
    )  # fmt: skip
    async with clustered.side() as side:
        while True:
            try:
                return list(await side.collector.keep(asked))
            except NotMarked as error:
                if "listing goes on" not in str(error):
                    return error.decisions


async def tagged(clustered: Clustered) -> set[str]:
    """Groups and volumes that carry the service's tag."""
    ec2 = clustered.resources.ec2
    found = [(one["GroupId"], one) for one in (await ec2.describe_security_groups())["SecurityGroups"]]
    found += [(one["VolumeId"], one) for one in (await ec2.describe_volumes())["Volumes"]]
    return {name for name, one in found if any(tag["Key"] == RETAINED_TAG for tag in one.get("Tags", ()))}


def abandoned(
    clustered: Clustered, vpc: Vpc, target: str, *, account: str = "", settled: bool = False,
    kind: str = "aws.security-group",
) -> Record:  # fmt: skip
    """The record of a job about a resource, or of the last look."""
    whose = Whose(source=UNMANAGED, namespace=clustered.capi.namespace, region=REGION)
    owner = Owner(whose=whose, account=account or clustered.account, name="prod", vpc=vpc.id)
    data = msgspec.json.encode(Settling(owner=owner, tasks=TASKS) if settled else owner).decode()
    kind = SETTLED if settled else kind
    return Record(v=VERSION, stage=1, lane="", kind=kind, target=target, data=data, state="abandoned")


@pytest.mark.parametrize("by", [DELETE_FOR_MOVE, CLUSTER_PAUSED, "spec.paused"])
async def test_nothing_is_kept_of_a_cluster_that_moves_or_is_paused(clustered: Clustered, by: str) -> None:
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    annotations = {f"{PREFIX}/{DELETION_POLICY}": "retain"} | ({} if by == "spec.paused" else {by: ""})
    found = clustered.delete_marked("prod", vpc, annotations=annotations)
    clustered.capi.pause("prod", paused=by == "spec.paused")
    assert await keep(clustered, found) == []
    assert await keep(clustered, found, abandoned(clustered, vpc, group)) == []
    assert await tagged(clustered) == set()


@pytest.mark.invariant(9)
@pytest.mark.parametrize("apart", [True, False])
async def test_what_may_be_a_namesakes_is_not_marked_and_its_name_not_held(
    clustered: Clustered, elsewhere: Capi, apart: bool
) -> None:
    vpc, other = [await clustered.resources.vpc() for _ in range(2)]
    group, _ = [await clustered.resources.group(one, by_cloud_provider("prod")) for one in (vpc, other)]
    await clustered.resources.volume(by_cloud_provider("prod"))
    found = clustered.delete_marked("prod", vpc)
    elsewhere.unmanaged("prod", region=REGION, vpc=other.id if apart else vpc.id)
    assert await keep(clustered, found) == []
    assert await tagged(clustered) == ({group} if apart else set())


@pytest.mark.invariant(9)
async def test_beside_a_namesake_only_what_was_abandoned_by_its_id_is_marked(
    clustered: Clustered, elsewhere: Capi
) -> None:
    vpc = await clustered.resources.vpc()
    group, _ = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    found = clustered.delete_marked("prod", vpc)
    elsewhere.unmanaged("prod", region=REGION, vpc=vpc.id)
    assert await keep(clustered, found, abandoned(clustered, vpc, "prod", settled=True)) == []
    assert await tagged(clustered) == set()
    assert await keep(clustered, found, abandoned(clustered, vpc, group)) == []
    assert await tagged(clustered) == {group}


@pytest.mark.invariant(9)
async def test_an_account_that_nothing_confirms_does_not_hold_the_name_of_a_namesake_there(
    clustered: Clustered, elsewhere: Capi
) -> None:
    vpc = await clustered.resources.vpc()
    found = clustered.delete_marked("prod", vpc, annotations={AWS_ACCOUNT: OTHERS})
    assert [one.place for one in await keep(clustered, found)] == [f"aws/{OTHERS}/{REGION}"]
    elsewhere.unmanaged("prod", region=REGION, annotations={AWS_ACCOUNT: OTHERS})
    assert list(await keep(clustered, found)) == []


@pytest.mark.invariant(9)
async def test_of_what_was_abandoned_only_what_is_there_and_still_its_own_is_marked(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    anothers = await clustered.resources.group(vpc, by_cloud_provider("other"))
    found = clustered.delete_marked("prod", vpc)
    jobs = [abandoned(clustered, vpc, one) for one in (group, anothers, "sg-0123456789abcdef0")]
    assert await keep(clustered, found, *jobs[1:]) == []
    (decision,) = await keep(clustered, found, *jobs)
    assert [one.id for one in decision.resources] == [group]
    assert await tagged(clustered) == {group}


async def test_a_record_of_another_account_than_the_objects_marks_nothing(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    found = clustered.delete_marked("prod", vpc)
    for settled in (False, True):
        job = abandoned(clustered, vpc, group, account=OTHERS, settled=settled)
        (decision,) = await keep(clustered, found, job)
        assert decision.place == f"aws/{clustered.account}/{REGION}"
        assert "another account" in decision.remark
    assert await tagged(clustered) == set()


async def test_nothing_is_remembered_of_a_cluster_that_left_nothing(clustered: Clustered) -> None:
    found = clustered.delete_marked("prod", await clustered.resources.vpc())
    assert await keep(clustered, found) == []
    # What may not be listed may be there.
    await clustered.aws.trouble(Fault(what="deny", action="ec2.DescribeVolumes", account=clustered.account))
    clustered.set(finding="describe")
    (decision,) = await keep(clustered, found)
    assert "aws.volume" in decision.remark


@pytest.mark.invariant(10)
async def test_one_that_can_not_take_the_tag_does_not_keep_the_others_from_theirs(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    groups = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(5)]
    fault = Fault(
        what="error", action="ec2.CreateTags", account=clustered.account, about=groups[2], code="TagLimitExceeded",
        status=400,
    )  # fmt: skip
    await clustered.aws.trouble(fault)
    (decision,) = await keep(clustered, clustered.delete_marked("prod", vpc))
    assert {one.id for one in decision.resources if one.tag} == {groups[2]}
    assert await tagged(clustered) == {*groups} - {groups[2]}


async def test_a_missing_permission_is_not_asked_for_one_by_one(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    groups = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(8)]
    await clustered.aws.trouble(Fault(what="deny", action="ec2.CreateTags", account=clustered.account))
    (decision,) = await keep(clustered, clustered.delete_marked("prod", vpc))
    assert {one.id for one in decision.resources if one.tag} == {*groups}
    assert await clustered.calls("ec2.CreateTags") == 1 + 2 + 4
