"""Final check: only a new list that is complete and empty releases a cluster, and what was created again is removed."""

from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import FINALLY, Event, Found, Gone, Job, Pause, Pending, Refused, Target, Throttled
from service.contract.kept import RETAINED_TAG
from service.sources.capa import AWS_FINALIZER, EXTERNAL_RESOURCE_TASKS, TASKS, AwsSettings
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_cloud_provider
from tests import capi
from tests.integration.aws_final_check import Taken, attempted, job_of, last_of, listed
from tests.integration.capa_states import object_state
from tests.integration.capi_fixture import MANAGED, CapiFixture, marked
from tests.kubectl import carry_out, command_in
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.final_check import FINAL_CHECK, FinalCheckData
from workers.handlers.protocol import NotCleared

TAGGING = "tagging.GetResources"


# ---- one check


async def test_an_empty_list_releases_the_cluster(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        assert target.after == clusters.settings.section(AwsSettings).settle
        batch = Taken(target.lane, job_of(target))
        assert isinstance(await listed(side, batch), Gone)
        assert batch.returned == {}


@pytest.mark.parametrize(
    "action", [TAGGING, "ec2.DescribeSecurityGroups"], ids=["the list", "the reads that confirm it"]
)
@pytest.mark.parametrize("what", ["html", "close", "error"])
async def test_a_list_that_is_not_whole_is_never_taken_for_an_empty_one(
    clusters: CapiFixture, action: str, what: Any
) -> None:
    vpc = await clusters.resources.vpc()
    clusters.set(finding="tagging")
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        await clusters.resources.group(vpc, by_cloud_provider("prod"))
        fault = AwsFault(what=what, action=action, account=clusters.account, code="InternalError", status=500)
        await clusters.aws.set_faults(fault)
        assert isinstance(await listed(side, Taken(target.lane, job_of(target))), Exception)


async def test_a_denied_read_is_refused_and_names_the_permission(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    clusters.set(finding="describe")
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        await clusters.aws.set_faults(
            AwsFault(what="deny", action="elbv2.DescribeLoadBalancers", account=clusters.account)
        )
        batch = Taken(target.lane, job_of(target))
        verdict = await listed(side, batch)
        assert isinstance(verdict, Refused)
        assert "elasticloadbalancing:DescribeLoadBalancers is denied" in verdict.reason
        # What the lane had drawn for the tagging API was not needed.
        assert batch.returned == {f"{REGION}/tag.GetResources": 1.0}


async def test_a_throttled_list_is_reported_to_the_budget_and_spends_no_attempt(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        await clusters.aws.set_faults(AwsFault(what="throttle", action=TAGGING, account=clusters.account))
        batch = Taken(target.lane, job_of(target))
        assert isinstance(await listed(side, batch), Throttled)
        assert batch.told == [Pause(f"{REGION}/tag.GetResources")]


async def test_what_was_made_again_becomes_late_targets_and_the_check_itself_removes_nothing(
    clusters: CapiFixture,
) -> None:
    vpc = await clusters.resources.vpc()
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        classic = await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"))
        group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
        begun = len(await clusters.aws.journal())
        found = await listed(side, Taken(target.lane, job_of(target)))
        assert isinstance(found, Found)
        assert {one.id for one in found.targets} == {classic, group}
        place = target.lane.rpartition("/")[0]
        assert {one.lane for one in found.targets} == {
            f"{place}/elb.DeleteLoadBalancer", f"{place}/ec2.DeleteSecurityGroup",
        }  # fmt: skip
        assert {one.chain for one in found.targets} == {FINALLY}
        # A name that can be used again is a target of its own each time.
        assert {bool(one.incarnation) for one in found.targets if one.id == classic} == {True}
        made = [one.action for one in await clusters.aws.requests(since=begun) if one.account == clusters.account]
        assert not [action for action in made if "Delete" in action]
        assert {classic, group} <= await clusters.resources.standing()


async def test_a_group_that_a_late_balancer_uses_waits_for_it(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        again = await clusters.resources.cluster_resources("prod", vpc, entangled=True)
        found = await listed(side, Taken(target.lane, job_of(target)))
        assert isinstance(found, Found)
        stages = {one.id: one.stage for one in found.targets}
        assert {stages[one] for one in (*again.classic, *again.balancers)} == {0}
        # Three of its four groups are used by its balancers, and so are its target groups.
        assert sorted(stages[one] for one in again.groups) == [0, 1, 1, 1]
        assert {stages[one] for one in again.target_groups} == {1}


async def test_a_late_target_does_not_carry_what_else_was_abandoned(clusters: CapiFixture) -> None:
    """A thousand late targets of a deletion with a thousand abandoned jobs would be a million ids in Redis. They are
    read when they are needed; what the object's spec names goes with the target."""
    vpc = await clusters.resources.vpc()
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        job, latest = job_of(target), side.collector.latest_objects
        named, late = [await clusters.resources.group(vpc, by_cloud_provider("prod")) for _ in range(2)]
        abandoned = tuple(f"sg-{number:017}" for number in range(1000))
        planned = object_state(msgspec.json.decode(target.data, type=FinalCheckData).claim, TASKS)
        subject = msgspec.structs.replace(planned.subject, spared=(named,))
        state = msgspec.structs.replace(planned, subject=subject, abandoned=abandoned)
        found = await listed(side, Taken(target.lane, job), state)
        assert isinstance(found, Found)
        assert [one.id for one in found.targets] == [late]
        (data,) = (one.data for one in found.targets)
        claim = msgspec.json.decode(data, type=CapaClaim)
        assert claim.spared == (named,)
        assert len(data) < 1000
        # At the call all of them count.
        assert latest.updated(job.deletion, claim).spared == (named, *abandoned)


def forged(target: Target, **changed: Any) -> str:
    """The target's data with other fields in its claim; None takes one out. Fields of `whose` are changed there."""
    data = msgspec.json.decode(target.data)
    claim = data["claim"]
    for key, value in changed.items():
        (claim["whose"] if key in claim["whose"] else claim)[key] = value
    data["claim"] = {key: value for key, value in claim.items() if value is not None}
    return msgspec.json.encode(data).decode()


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    ("changed", "outcome", "words"),
    [
        ({"source": MANAGED}, NotCleared, "the source of"),
        ({"namespace": "others"}, NotCleared, "the namespace of"),
        ({"source": "gone"}, Refused, "source 'gone', which the settings do not have"),
        ({"collector": "ack"}, Refused, "collector 'ack', which this process does not have"),
        ({"collector": None}, msgspec.DecodeError, "collector"),
        ({"account": "999900001111"}, ValueError, "the lane of"),
    ],
)
async def test_a_claim_that_is_not_of_its_object_lists_nothing_removes_nothing_and_releases_nothing(
    clusters: CapiFixture, changed: dict[str, Any], outcome: type, words: str
) -> None:
    vpc = await clusters.resources.vpc()
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
        job = job_of(target)
        begun = len(await clusters.aws.journal())
        other = Job(job.id, job.fence, msgspec.structs.replace(job.record, data=forged(target, **changed)))
        verdict = await attempted(side, Taken(job.record.lane, other), job)
        assert isinstance(verdict, outcome), verdict
        assert words in str(verdict)
        made = [one.action for one in await clusters.aws.requests(since=begun) if one.account == clusters.account]
        assert TAGGING not in made
        assert not [action for action in made if "Delete" in action]
        assert group in await clusters.resources.standing()


@pytest.mark.parametrize("named", ["as it says", "another"])
async def test_a_vpc_that_is_named_after_the_plan_lets_the_final_check_remove_what_is_in_it(
    clusters: CapiFixture, named: str
) -> None:
    """The plan had no VPC, and a group was created later. A VPC that does not exist changes nothing."""
    vpc = await clusters.resources.vpc()
    clusters.set(account=clusters.account, settle=timedelta(hours=1))
    one = await clusters.going(clusters.capi.unmanaged("prod", region=REGION, **marked()))
    async with AsyncExitStack() as stack:
        first = await clusters.work(stack)
        job = await clusters.until_planned(one)
        await first.stop()
        group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
        clusters.set(settle=timedelta(0))
        await clusters.shard(one).retry(job, "test")
        await clusters.work(stack)
        said = (await clusters.until_job(one, FINAL_CHECK, "names no VPC", vpc.id))["detail"]
        assert group in await clusters.resources.standing()
        command = command_in(said)
        if named == "another":
            carry_out(clusters.api, capi.AWS_CLUSTERS, command.replace(vpc.id, "vpc-0123456789abcdef0"))
            await clusters.until_job(
                one, FINAL_CHECK, "vpc-0123456789abcdef0", "is not in account", "releases the object"
            )
            assert group in await clusters.resources.standing()
            return
        carry_out(clusters.api, capi.AWS_CLUSTERS, command)
        await clusters.until_done(one)
    assert group not in await clusters.resources.standing()


async def test_after_something_was_made_again_the_settle_time_begins_anew(clusters: CapiFixture) -> None:
    vpc = await clusters.resources.vpc()
    async with clusters.side() as side:
        target = await last_of(clusters, side, vpc)
        back = await listed(side, Taken(target.lane, job_of(target, resume="{}")))
        assert back == Pending(
            clusters.settings.section(AwsSettings).settle, "nothing is left; looked at once more when it has settled"
        )
        assert isinstance(await listed(side, Taken(target.lane, job_of(target))), Gone)


# ---- with a worker


async def until_all_but_the_last_look_is_done(clusters: CapiFixture, one: Event) -> None:
    async def over() -> bool:
        if "plan" not in await clusters.deletion(one):
            return False
        records = [await clusters.job(job) for job in await clusters.jobs_of(one)]
        states = {record["kind"]: record.get("state", "") for record in records}
        return all(state == "gone" for kind, state in states.items() if kind not in (FINAL_CHECK, "release"))

    await clusters.until("everything but the last look is done", over)


async def test_what_a_late_controller_makes_again_is_collected_before_the_cluster_goes(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    first = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    clusters.set(settle=timedelta(minutes=10))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await until_all_but_the_last_look_is_done(clusters, one)
    assert first not in await clusters.resources.standing()
    again = await clusters.resources.cluster_resources("prod", vpc, entangled=True)
    assert clusters.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clusters.jump(timedelta(minutes=10))

    async def gone() -> bool:
        return not {*again.classic, *again.balancers, *again.target_groups, *again.groups} & (
            await clusters.resources.standing()
        )

    await clusters.until("what was made again is gone", gone)
    # The settle time restarts: whatever created it may do so again.
    await clusters.until_job(one, FINAL_CHECK, "looked at once more", held=False)
    assert clusters.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)
    assert clusters.read(made) is None


async def settling(clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc) -> tuple[Any, Event]:
    """A cluster whose resources are gone; its last look waits for ten minutes."""
    clusters.set(settle=timedelta(minutes=10))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await until_all_but_the_last_look_is_done(clusters, one)
    return made, one


@pytest.mark.long
async def test_one_late_resource_that_may_not_be_removed_does_not_keep_the_others(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    made, one = await settling(clusters, stack, vpc)
    kept = await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"))
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    await clusters.aws.set_faults(AwsFault(what="deny", action="elb.DeleteLoadBalancer", account=clusters.account))
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_job(one, "aws.classic-balancer", "elasticloadbalancing:DeleteLoadBalancer is denied")

    async def alone() -> bool:
        standing = await clusters.resources.standing()
        return group not in standing and kept in standing

    await clusters.until("the group is gone, and the balancer is not", alone)
    assert clusters.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clusters.aws.set_faults()
    await clusters.jump(timedelta(minutes=30))
    await clusters.until_job(one, FINAL_CHECK, "looked at once more", held=False)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)
    assert kept not in await clusters.resources.standing()


@pytest.mark.invariant(10)
async def test_a_late_resource_that_is_abandoned_stays_and_the_object_is_released(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    made, one = await settling(clusters, stack, vpc)
    late = await clusters.resources.balancer(vpc, by_cloud_provider("prod", "default/web"), of="net")
    await clusters.resources.protect(late)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_job(one, "aws.balancer", "protect")
    (job,) = [job for job, target in await clusters.targets_of(one) if target == late]
    await clusters.installation.shard_of_job(job).abandon(job, "somebody")
    await clusters.until_job(one, FINAL_CHECK, "looked at once more", held=False)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)
    assert clusters.read(made) is None
    assert late in await clusters.resources.standing()
    assert await clusters.calls("elbv2.DeleteLoadBalancer") <= 1


@pytest.mark.long
@pytest.mark.invariant(9)
async def test_a_balancer_that_was_removed_and_is_made_again_by_the_same_name_goes_too(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    first = await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"))
    made, one = await settling(clusters, stack, vpc)
    assert first not in await clusters.resources.standing()

    async def gone() -> bool:
        return first not in await clusters.resources.standing()

    for _ in range(2):
        await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"), name=first)
        await clusters.jump(timedelta(minutes=10))
        await clusters.until(f"{first} is gone again", gone)
        await clusters.until_job(one, FINAL_CHECK, "looked at once more", held=False)
    assert clusters.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)
    assert await clusters.calls("elb.DeleteLoadBalancer") == 3


@pytest.mark.invariant(10)
async def test_a_classic_balancer_that_is_abandoned_stays_and_the_object_is_released(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    """It is recognised by its name and its incarnation."""
    vpc = await clusters.resources.vpc()
    made, one = await settling(clusters, stack, vpc)
    late = await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"))
    await clusters.aws.set_faults(AwsFault(what="deny", action="elb.DeleteLoadBalancer", account=clusters.account))
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_job(one, "aws.classic-balancer", "DeleteLoadBalancer is denied")
    (job,) = [job for job, target in await clusters.targets_of(one) if target == late]
    await clusters.installation.shard_of_job(job).abandon(job, "somebody")
    await clusters.aws.set_faults()
    await clusters.until_job(one, FINAL_CHECK, "looked at once more", held=False)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)
    assert clusters.read(made) is None
    assert late in await clusters.resources.standing()


@pytest.mark.invariant(9)
@pytest.mark.invariant(10)
async def test_of_a_name_that_was_abandoned_only_that_balancer_stays_and_a_later_one_of_the_name_goes(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    name = await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"))
    await clusters.aws.set_faults(AwsFault(what="deny", action="elb.DeleteLoadBalancer", account=clusters.account))
    clusters.set(settle=timedelta(minutes=10))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await clusters.until_job(one, "aws.classic-balancer", "DeleteLoadBalancer is denied")
    (job,) = [job for job, target in await clusters.targets_of(one) if target == name]
    await clusters.installation.shard_of_job(job).abandon(job, "somebody")
    await clusters.aws.set_faults()
    last = await clusters.until_planned(one)

    async def settles() -> bool:
        return "due" in await clusters.job(last)

    await clusters.until("the last look has a time", settles)
    # A person deletes it, and the controller makes another one.
    await clusters.resources.elb.delete_load_balancer(LoadBalancerName=name)
    await clusters.resources.classic(vpc, by_cloud_provider("prod", "default/web"), name=name)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_job(one, FINAL_CHECK, "looked at once more", held=False)
    assert name not in await clusters.resources.standing()
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)


@pytest.mark.long
@pytest.mark.invariant(10)
async def test_a_late_resource_that_a_tag_keeps_is_left_and_the_object_is_released(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    _, one = await settling(clusters, stack, vpc)
    kept = {**by_cloud_provider("prod"), RETAINED_TAG: "here/awsclusters/tenant/prod/earlier"}
    group = await clusters.resources.group(vpc, kept)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)
    assert group in await clusters.resources.standing()


async def test_a_permission_that_is_taken_away_keeps_the_cluster_until_it_is_given_back(
    clusters: CapiFixture, stack: AsyncExitStack
) -> None:
    vpc = await clusters.resources.vpc()
    clusters.set(settle=timedelta(minutes=10))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await until_all_but_the_last_look_is_done(clusters, one)
    denied = [
        AwsFault(what="deny", action=action, account=clusters.account)
        for action in (TAGGING, "ec2.DescribeSecurityGroups")
    ]
    await clusters.aws.set_faults(*denied)
    await clusters.jump(timedelta(minutes=10))
    await clusters.until_job(one, FINAL_CHECK, "ec2:DescribeSecurityGroups is denied")
    assert clusters.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clusters.aws.set_faults()
    await clusters.until_done(one)


# ---- tasks changed since the plan


@pytest.mark.parametrize("wanted", ["load-balancer", "load-balancer,security-group"])
async def test_the_final_check_uses_the_tasks_that_are_wanted_by_then(
    clusters: CapiFixture, stack: AsyncExitStack, wanted: str
) -> None:
    """Leftovers of a removed task do not hold the object; those of the others do, until they are gone."""
    vpc = await clusters.resources.vpc()
    clusters.set(settle=timedelta(minutes=10))
    made = clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clusters.going(made)
    await clusters.work(stack)
    await until_all_but_the_last_look_is_done(clusters, one)
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    clusters.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: wanted})
    await clusters.jump(timedelta(minutes=10))
    if "security-group" in wanted:
        await clusters.until_job(one, FINAL_CHECK, "looked at once more", held=False)
        assert clusters.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
        await clusters.jump(timedelta(minutes=10))
    await clusters.until_done(one)
    assert (group in await clusters.resources.standing()) == ("security-group" not in wanted)
