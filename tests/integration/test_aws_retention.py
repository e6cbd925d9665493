"""Resources kept on AWS: by a protection tag, by the tag of a release, and by stored decisions."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import VERSION, Left, Pending, Refused
from service.contract.jobs import JobRecord
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG, Abandoned, KeepDecision
from service.contract.names import DELETION_POLICY, PREFIX
from service.engine.kept_store import KeptStore
from service.policy.capi import CLUSTER_PAUSED, DELETE_FOR_MOVE
from service.sources.capa import AWS_ACCOUNT, CAPA, TASKS
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider, pairs
from tests.capi import CapiObjects
from tests.integration.aws_removal import AwsRemovalFixture, removing
from tests.integration.capi_fixture import MANAGED, UNMANAGED, CapiFixture, marked
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.final_check import FINAL_CHECK, FinalCheckData
from workers.handlers.kept_resources import KeepRequest, NotMarked
from workers.judging.kept_marking import AGAIN, DONE, WITHIN, KeptMarkingStep
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import AwsLimits, place_of_account
from workers.providers.aws.model import CallScope
from workers.runtime.call_budget import CallBudget

__all__ = ["removing"]


async def tag(clusters: CapiFixture, resource: str, tags: Mapping[str, str]) -> None:
    await clusters.resources.ec2.create_tags(Resources=[resource], Tags=pairs(dict(tags)))


@pytest.mark.invariant(10)
async def test_a_protection_tag_keeps_a_resource_until_it_is_removed(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    group, other = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    # Its rules are not touched either.
    await clusters.resources.rule(group, other)
    await tag(clusters, group, {PREVENT_DELETE_TAG: "true"})
    one = await clusters.going(clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clusters.work(stack)
    await clusters.until_job(one, "aws.security-group", PREVENT_DELETE_TAG, "jobs abandon")
    await clusters.until_job(one, "aws.security-group", f"ingress rule of {group}")
    assert {group, other} <= await clusters.resources.standing()
    await clusters.resources.ec2.delete_tags(Resources=[group], Tags=[{"Key": PREVENT_DELETE_TAG}])
    await clusters.until_done(one)
    assert not {group, other} & await clusters.resources.standing()


@pytest.mark.invariant(10)
async def test_what_the_tag_of_an_earlier_object_keeps_is_left_and_the_object_goes_without_it(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    before, free = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    await tag(clusters, before, {RETAINED_TAG: "uid/kind/tenant/prod/1"})
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:
        targets = await clusters.planned(found, side)
        assert {target.id for target in targets if target.kind != FINAL_CHECK} == {free}
    one = clusters.event(found)
    await clusters.publish(one)
    await clusters.work(stack)
    await clusters.until_done(one)
    assert {before, free} & await clusters.resources.standing() == {before}


@pytest.mark.invariant(10)
@pytest.mark.parametrize(("name", "verdict"), [(PREVENT_DELETE_TAG, Refused), (RETAINED_TAG, Left)])
async def test_a_tag_that_comes_after_the_plan_keeps_the_resource_as_well(
    removing: AwsRemovalFixture, name: str, verdict: type
) -> None:
    vpc = await removing.cloud.builder.vpc()
    group = await removing.cloud.builder.group(vpc, {**by_cloud_provider("c1"), name: "true"})
    batch = removing.batch(removing.owner(vpc), "aws.security-group", group)
    found = await removing.attempt(batch)
    assert isinstance(found[group], verdict)
    assert batch.cleared == []
    assert group in await removing.cloud.builder.standing()


# ---- stored decisions


async def known(clusters: CapiFixture, name: str = "prod") -> list[KeepDecision]:
    return await KeptStore(clusters.installation).decisions(f"aws/{clusters.account}/{REGION}", name)


def retained(clusters: CapiFixture, vpc: Vpc) -> Mapping[str, Any]:
    """A cluster whose resources stay."""
    annotations = {f"{PREFIX}/{DELETION_POLICY}": "retain"}
    return dict(clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked(annotations=annotations)))


@pytest.mark.invariant(10)
async def test_a_tag_that_is_refused_is_recorded_and_fails_nothing(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    balancer = await clusters.resources.balancer(vpc, by_cloud_provider("prod", "default/web"))
    await clusters.aws.set_faults(AwsFault(what="deny", action="ec2.CreateTags", account=clusters.account))
    one = await clusters.going(retained(clusters, vpc))
    await clusters.work(stack)
    await clusters.until_done(one)
    (decision,) = await known(clusters)
    tags = {resource.id: resource.tag for resource in decision.resources}
    assert tags == {group: "not tagged: ec2:CreateTags: UnauthorizedOperation", balancer: ""}
    assert decision.uid == one.uid


async def test_an_abandoned_resource_is_tagged_and_remembered(clusters: CapiFixture, stack: AsyncExitStack) -> None:
    vpc = await clusters.resources.vpc()
    made, one, balancer = await clusters.stopped(stack, vpc)
    (job,) = [job for job, target in await clusters.targets_of(one) if target == balancer]
    await clusters.installation.shard_of_job(job).abandon(job, "somebody")
    await clusters.until_done(one)
    (decision,) = await known(clusters)
    assert [(resource.id, resource.tag) for resource in decision.resources] == [(balancer, "")]
    found = await clusters.resources.elbv2.describe_tags(ResourceArns=[balancer])
    tags = {tag["Key"]: tag["Value"] for tag in found["TagDescriptions"][0]["Tags"]}
    assert tags[RETAINED_TAG].endswith(f"/prod/{made['metadata']['uid']}")
    assert PREVENT_DELETE_TAG not in tags


@pytest.mark.invariant(9)
async def test_a_later_object_of_that_name_is_held_until_the_decision_is_forgotten(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    await clusters.resources.group(vpc, by_cloud_provider("prod"))
    place, memory = f"aws/{clusters.account}/{REGION}", KeptStore(clusters.installation)
    found = clusters.delete_marked("prod", vpc)
    for uid in ("earlier", found["metadata"]["uid"]):
        decision = KeepDecision(
            v=VERSION, place=place, name="prod", object="awsclusters tenant/prod", uid=uid, source="unmanaged",
            why="retain: so", at=1,
        )  # fmt: skip
        await memory.save(decision)
    held = await clusters.held(found)
    assert f"knell kept forget {place}/prod" in held.reason
    assert "uid earlier" in held.reason
    async with clusters.side() as side:
        # Nor is anything called that was planned before.
        assert "uid earlier" in str(await side.collector.objections(await clusters.facts(found)))
    # Records that can't be read hold as well.
    await clusters.client.hset(memory.key, f"{place}/prod", "earlier {")
    assert "can't be read" in (await clusters.held(found)).reason
    await memory.remove(f"{place}/prod", "earlier")
    assert len(await clusters.planned(found)) == 2


async def test_a_release_waits_for_marks_for_minutes_and_no_longer(clusters: CapiFixture) -> None:
    """By wall clock time, so that a restart does not begin the wait anew."""
    vpc = await clusters.resources.vpc()
    await clusters.resources.group(vpc, by_cloud_provider("prod"))
    facts = await clusters.facts(clusters.delete(retained(clusters, vpc)))
    ref = msgspec.structs.replace(facts.ref, kept="retain: so")
    fault = AwsFault(what="error", action="ec2.CreateTags", account=clusters.account, code="InternalError", status=500)
    await clusters.aws.set_faults(fault)
    now, memory = 1_700_000_000.0, KeptStore(clusters.installation)
    async with clusters.side() as side:
        collectors = {CAPA: side.collector}
        step = KeptMarkingStep(clusters.settings.sources, clusters.lately, collectors, memory, now=lambda: now)
        first = await step.keep(ref, "")
        assert first is not None
        assert (first.check_after, "ec2:CreateTags" in first.detail) == (AGAIN, True)
        assert await known(clusters) == []
        now += WITHIN.total_seconds() + 1
        # Another process, which knows nothing but the job's record.
        step = KeptMarkingStep(clusters.settings.sources, clusters.lately, collectors, memory, now=lambda: now)
        last = await step.keep(ref, first.resume)
        assert last is not None
        assert (last.check_after, last.resume) == (timedelta(0), DONE)
        assert await step.keep(ref, last.resume) is None
    (decision,) = await known(clusters)
    assert "ec2:CreateTags" in decision.remark


@pytest.mark.parametrize("whole", [True, False])
async def test_for_want_of_room_a_release_comes_back_when_there_is_some_and_tags_what_is_left(
    clusters: CapiFixture, whole: bool
) -> None:
    """Nothing is waited for in the attempt, and nothing is tagged twice."""
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    balancer = await clusters.resources.balancer(vpc, by_cloud_provider("prod", "default/web"))
    found = clusters.delete(retained(clusters, vpc))
    ref = msgspec.structs.replace((await clusters.facts(found)).ref, kept="retain: so" if whole else "abandoned")
    if not whole:
        key = clusters.installation.shard_of(ref.deletion).stem + f"abandoned:{ref.deletion}"
        jobs = [abandoned(clusters, vpc, group), abandoned(clusters, vpc, balancer, kind="aws.balancer")]
        records = {f"{ref.deletion}#1.{number}": msgspec.json.encode(job) for number, job in enumerate(jobs)}
        await clusters.client.hset(key, mapping=records)
    quota = CallBudget(clusters.installation.budgets, 0.1)
    (changes, _), place = AwsLimits(KINDS).of(REGION, "elbv2.AddTags"), place_of_account(clusters.account)
    async with clusters.side(quota=quota) as side:
        step = KeptMarkingStep(
            clusters.settings.sources, clusters.lately, {CAPA: side.collector}, KeptStore(clusters.installation),
            now=lambda: 1_700_000_000.0,
        )  # fmt: skip

        async def attempt(resume: str) -> Pending:
            while True:
                said = await step.keep(ref, resume)
                assert said is not None
                if "listing goes on" not in said.detail:
                    return said

        await quota.refused(place, changes.limit, timedelta(seconds=100))
        first = await attempt("")
        assert "NoRoomInBudget" in first.detail
        assert AGAIN < first.check_after < timedelta(minutes=2)
        assert await tagged(clusters) == {group}
        # If tokens come only after the wait, the last attempt is when that ends.
        await quota.refused(place, changes.limit, timedelta(hours=1))
        assert (await attempt(first.resume)).check_after == WITHIN
        await clusters.client.delete(clusters.installation.keys.budget(place))
        assert (await attempt(first.resume)).resume == DONE
    assert await clusters.calls("ec2.CreateTags") == await clusters.calls("elbv2.AddTags") == 1
    (decision,) = await known(clusters)
    assert {resource.id: resource.tag for resource in decision.resources} == {group: "", balancer: ""}


@pytest.mark.long
@pytest.mark.invariant(10)
async def test_what_belongs_to_an_abandoned_balancer_is_not_taken_from_it(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:  # fmt: skip
    """Its listener uses a target group of the cluster, which would else be freed by deleting the listener."""
    vpc, tags = await clusters.resources.vpc(), by_cloud_provider("prod", "default/web")
    balancer = await clusters.resources.balancer(vpc, tags)
    await clusters.resources.target_group(vpc, tags, behind=balancer)
    await clusters.resources.protect(balancer)
    one = await clusters.going(clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clusters.work(stack)
    await clusters.until_job(one, "aws.balancer", "protect")
    (job,) = [job for job, target in await clusters.targets_of(one) if target == balancer]
    await clusters.installation.shard_of_job(job).abandon(job, "somebody")
    await clusters.until_job(one, "aws.target-group", "abandoned")
    listeners = await clusters.resources.elbv2.describe_listeners(LoadBalancerArn=balancer)
    assert len(listeners["Listeners"]) == 1


# ---- not tagged

OTHERS = "999999999999"
"""An account other than the credentials'."""


async def keep(
    clusters: CapiFixture, found: Mapping[str, Any], *abandoned: JobRecord, gone: bool = False
) -> Sequence[KeepDecision]:
    """The decisions for an object that is retained, or of which only these were abandoned."""
    facts = await clusters.facts(found)
    ref = msgspec.structs.replace(facts.ref, kept="retain: so")
    asked = KeepRequest(
        ref=ref, live=None if gone else facts.live, abandoned=Abandoned(abandoned), whole=not abandoned, at=1,
        mark="kept/1",
    )  # fmt: skip
    async with clusters.side() as side:
        while True:
            try:
                return list(await side.collector.keep(asked))
            except NotMarked as error:
                if "listing goes on" not in str(error):
                    return error.decisions


async def tagged(clusters: CapiFixture) -> set[str]:
    """Groups and volumes that carry the service's tag."""
    ec2 = clusters.resources.ec2
    found = [(one["GroupId"], one) for one in (await ec2.describe_security_groups())["SecurityGroups"]]
    found += [(one["VolumeId"], one) for one in (await ec2.describe_volumes())["Volumes"]]
    return {name for name, one in found if any(tag["Key"] == RETAINED_TAG for tag in one.get("Tags", ()))}


def abandoned(
    clusters: CapiFixture, vpc: Vpc, target: str, *, account: str = "", settled: bool = False,
    kind: str = "aws.security-group", source: str = UNMANAGED, namespace: str = "",
) -> JobRecord:  # fmt: skip
    """The record of a job about a resource, or of the last look."""
    whose = CallScope(source=source, namespace=namespace or clusters.capi.namespace, region=REGION)
    claim = CapaClaim(scope=whose, account=account or clusters.account, name="prod", vpc=vpc.id)
    data = msgspec.json.encode(FinalCheckData(claim=claim, tasks=TASKS) if settled else claim).decode()
    kind = FINAL_CHECK if settled else kind
    return JobRecord(v=VERSION, stage=1, lane="", kind=kind, target=target, data=data, state="abandoned")


@pytest.mark.parametrize("by", [DELETE_FOR_MOVE, CLUSTER_PAUSED, "spec.paused"])
async def test_nothing_is_kept_of_a_cluster_that_moves_or_is_paused(clusters: CapiFixture, by: str) -> None:
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    annotations = {f"{PREFIX}/{DELETION_POLICY}": "retain"} | ({} if by == "spec.paused" else {by: ""})
    found = clusters.delete_marked("prod", vpc, annotations=annotations)
    clusters.capi.pause("prod", paused=by == "spec.paused")
    assert await keep(clusters, found) == []
    assert await keep(clusters, found, abandoned(clusters, vpc, group)) == []
    assert await tagged(clusters) == set()


@pytest.mark.invariant(9)
@pytest.mark.parametrize("apart", [True, False])
async def test_what_may_be_a_namesakes_is_not_marked_and_its_name_not_held(
    clusters: CapiFixture, elsewhere: CapiObjects, apart: bool
) -> None:
    vpc, other = [await clusters.resources.vpc() for _ in range(2)]
    group, _ = [await clusters.resources.group(one, by_cloud_provider("prod")) for one in (vpc, other)]
    await clusters.resources.volume(by_cloud_provider("prod"))
    found = clusters.delete_marked("prod", vpc)
    elsewhere.unmanaged("prod", region=REGION, vpc=other.id if apart else vpc.id)
    assert await keep(clusters, found) == []
    assert await tagged(clusters) == ({group} if apart else set())


@pytest.mark.invariant(9)
async def test_beside_a_namesake_only_what_was_abandoned_by_its_id_is_marked(
    clusters: CapiFixture, elsewhere: CapiObjects
) -> None:
    vpc = await clusters.resources.vpc()
    group, _ = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    found = clusters.delete_marked("prod", vpc)
    elsewhere.unmanaged("prod", region=REGION, vpc=vpc.id)
    assert await keep(clusters, found, abandoned(clusters, vpc, "prod", settled=True)) == []
    assert await tagged(clusters) == set()
    assert await keep(clusters, found, abandoned(clusters, vpc, group)) == []
    assert await tagged(clusters) == {group}


@pytest.mark.invariant(9)
async def test_an_account_that_nothing_confirms_does_not_hold_the_name_of_a_namesake_there(
    clusters: CapiFixture, elsewhere: CapiObjects
) -> None:
    vpc = await clusters.resources.vpc()
    found = clusters.delete_marked("prod", vpc, annotations={AWS_ACCOUNT: OTHERS})
    assert [one.place for one in await keep(clusters, found)] == [f"aws/{OTHERS}/{REGION}"]
    elsewhere.unmanaged("prod", region=REGION, annotations={AWS_ACCOUNT: OTHERS})
    assert list(await keep(clusters, found)) == []


@pytest.mark.invariant(9)
async def test_of_what_was_abandoned_only_what_is_there_and_still_its_own_is_marked(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    anothers = await clusters.resources.group(vpc, by_cloud_provider("other"))
    found = clusters.delete_marked("prod", vpc)
    jobs = [abandoned(clusters, vpc, one) for one in (group, anothers, "sg-0123456789abcdef0")]
    assert await keep(clusters, found, *jobs[1:]) == []
    (decision,) = await keep(clusters, found, *jobs)
    assert [one.id for one in decision.resources] == [group]
    assert await tagged(clusters) == {group}


async def test_a_record_of_another_account_than_the_objects_marks_nothing(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    found = clusters.delete_marked("prod", vpc)
    for settled in (False, True):
        job = abandoned(clusters, vpc, group, account=OTHERS, settled=settled)
        (decision,) = await keep(clusters, found, job)
        assert decision.place == f"aws/{clusters.account}/{REGION}"
        assert "another account" in decision.remark
    assert await tagged(clusters) == set()


@pytest.mark.invariant(8)
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("forged", [{"source": MANAGED}, {"source": ""}, {"namespace": "others"}])
async def test_of_an_object_that_is_gone_a_record_of_another_source_or_namespace_marks_nothing(
    clusters: CapiFixture, forged: dict[str, str], settled: bool
) -> None:
    vpc = await clusters.resources.vpc()
    group, other = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
    found = clusters.delete_marked("prod", vpc)
    right, wrong = abandoned(clusters, vpc, group), abandoned(clusters, vpc, other, settled=settled, **forged)
    for jobs in ((wrong,), (right, wrong), (wrong, right)):
        decisions = await keep(clusters, found, *jobs, gone=True)
        # A decision that is not needed only holds.
        assert all("is of source" in one.remark and not one.resources for one in decisions)
        assert await tagged(clusters) == set()
    (decision,) = await keep(clusters, found, right, gone=True)
    assert [one.id for one in decision.resources] == [group]
    assert await tagged(clusters) == {group}


async def test_nothing_is_remembered_of_a_cluster_that_left_nothing(clusters: CapiFixture) -> None:
    found = clusters.delete_marked("prod", await clusters.resources.vpc())
    assert await keep(clusters, found) == []
    # Resources that can't be listed may exist.
    await clusters.aws.set_faults(AwsFault(what="deny", action="ec2.DescribeVolumes", account=clusters.account))
    clusters.set(finding="describe")
    (decision,) = await keep(clusters, found)
    assert "aws.volume" in decision.remark


@pytest.mark.invariant(10)
async def test_one_that_can_not_take_the_tag_does_not_keep_the_others_from_theirs(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    groups = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(5)]
    fault = AwsFault(
        what="error", action="ec2.CreateTags", account=clusters.account, about=groups[2], code="TagLimitExceeded",
        status=400,
    )  # fmt: skip
    await clusters.aws.set_faults(fault)
    (decision,) = await keep(clusters, clusters.delete_marked("prod", vpc))
    assert {one.id for one in decision.resources if one.tag} == {groups[2]}
    assert await tagged(clusters) == {*groups} - {groups[2]}


async def test_a_missing_permission_is_not_tried_for_each_resource(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    groups = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(8)]
    await clusters.aws.set_faults(AwsFault(what="deny", action="ec2.CreateTags", account=clusters.account))
    (decision,) = await keep(clusters, clusters.delete_marked("prod", vpc))
    assert {one.id for one in decision.resources if one.tag} == {*groups}
    assert await clusters.calls("ec2.CreateTags") == 1 + 2 + 4
