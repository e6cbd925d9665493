"""The last look: only a fresh list that is whole and empty lets a cluster go, and what was made again is collected."""

from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from service.contract import Event, Gone, Pause, Pending, Refused, Throttled, Verdict
from service.contract.aws import AWS_FINALIZER, EXTERNAL_RESOURCE_TASKS
from standins.aws.behaviour import Fault
from standins.aws.tags import by_cloud_provider
from standins.aws.world import REGION
from tests import capi
from tests.integration.aws_looking import Taken, Walk, job_of, last_of, listed
from tests.integration.clustered import Clustered, marked
from tests.kubectl import carry_out, command_in
from workers.handlers.aws.checking import SETTLED

TAGGING = "tagging.GetResources"


# ---- one look


async def test_an_empty_list_lets_the_cluster_go(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    async with clustered.side() as side:
        target = await last_of(clustered, side, vpc)
        assert target.after == clustered.settings.aws.settle
        batch = Taken(target.lane, job_of(target))
        assert isinstance(await listed(side, batch), Gone)
        assert batch.returned == []


@pytest.mark.parametrize(
    "action", [TAGGING, "ec2.DescribeSecurityGroups"], ids=["the list", "the reads that confirm it"]
)
@pytest.mark.parametrize("what", ["html", "close", "error"])
async def test_a_list_that_is_not_whole_is_never_taken_for_an_empty_one(
    clustered: Clustered, action: str, what: Any
) -> None:
    vpc = await clustered.resources.vpc()
    clustered.set(finding="tagging")
    async with clustered.side() as side:
        target = await last_of(clustered, side, vpc)
        await clustered.resources.group(vpc, by_cloud_provider("prod"))
        fault = Fault(what=what, action=action, account=clustered.account, code="InternalError", status=500)
        await clustered.aws.trouble(fault)
        assert isinstance(await listed(side, Taken(target.lane, job_of(target))), Exception)


async def test_a_denied_read_is_refused_and_names_the_permission(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    clustered.set(finding="describe")
    async with clustered.side() as side:
        target = await last_of(clustered, side, vpc)
        await clustered.aws.trouble(Fault(what="deny", action="elbv2.DescribeLoadBalancers", account=clustered.account))
        batch = Taken(target.lane, job_of(target))
        verdict = await listed(side, batch)
        assert isinstance(verdict, Refused)
        assert "elasticloadbalancing:DescribeLoadBalancers is denied" in verdict.reason
        # What the lane had drawn for the tagging API was not needed.
        assert batch.returned == [f"{REGION}/tag.GetResources"]


async def test_a_throttled_list_is_told_to_the_budget_and_spends_no_attempt(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    async with clustered.side() as side:
        target = await last_of(clustered, side, vpc)
        await clustered.aws.trouble(Fault(what="throttle", action=TAGGING, account=clustered.account))
        batch = Taken(target.lane, job_of(target))
        assert isinstance(await listed(side, batch), Throttled)
        assert batch.told == [Pause(f"{REGION}/tag.GetResources")]


async def test_what_was_made_again_sends_the_job_to_the_lane_of_its_kind_and_back(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    async with clustered.side() as side:
        target = await last_of(clustered, side, vpc)
        group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
        job = job_of(target)
        lanes: list[str] = []
        verdict: Verdict | Exception | None = None
        for _ in range(20):
            batch = Taken(job.record.lane, job)
            verdict = await listed(side, batch)
            if isinstance(verdict, Gone):
                break
            assert isinstance(verdict, Pending), verdict
            lane = verdict.lane or job.record.lane
            lanes.append(lane.rpartition("/")[2])
            job = job_of(target, lane=lane, resume=verdict.resume)
        assert isinstance(verdict, Gone)
        assert lanes[0] == "ec2.DeleteSecurityGroup"
        assert lanes[-1] == "tag.GetResources"
        assert group not in await clustered.resources.standing()


@pytest.mark.parametrize("named", ["as it says", "another"])
async def test_a_vpc_that_is_named_after_the_plan_lets_the_last_look_remove_what_is_in_it(
    clustered: Clustered, named: str
) -> None:
    """The plan was made without a VPC, and then somebody made a group. One that is not there changes nothing."""
    vpc = await clustered.resources.vpc()
    clustered.set(account=clustered.account, settle=timedelta(hours=1))
    one = await clustered.going(clustered.capi.unmanaged("prod", region=REGION, **marked()))
    async with AsyncExitStack() as stack:
        first = await clustered.work(stack)
        job = await clustered.until_planned(one)
        await first.stop()
        group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
        clustered.set(settle=timedelta(0))
        await clustered.shard(one).retry(job, "test")
        await clustered.work(stack)
        said = (await clustered.until_job(one, SETTLED, "names no VPC", vpc.id))["detail"]
        assert group in await clustered.resources.standing()
        command = command_in(said)
        if named == "another":
            carry_out(clustered.api, capi.AWS_CLUSTERS, command.replace(vpc.id, "vpc-0123456789abcdef0"))
            await clustered.until_job(one, SETTLED, "vpc-0123456789abcdef0", "is not in account", "lets the object go")
            assert group in await clustered.resources.standing()
            return
        carry_out(clustered.api, capi.AWS_CLUSTERS, command)
        await clustered.until_done(one)
    assert group not in await clustered.resources.standing()


async def test_after_something_was_made_again_the_settle_time_begins_anew(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    async with clustered.side() as side:
        target = await last_of(clustered, side, vpc)
        back = await listed(side, Taken(target.lane, job_of(target, resume="{}")))
        assert back == Pending(
            clustered.settings.aws.settle, "nothing is left; looked at once more when it has settled"
        )
        assert isinstance(await listed(side, Taken(target.lane, job_of(target))), Gone)


async def test_an_errand_that_is_refused_again_is_given_up_for_a_fresh_list(clustered: Clustered) -> None:
    """The first refusal is shown; by the second the resource may be somebody else's, and no errand any more."""
    vpc = await clustered.resources.vpc()
    async with clustered.side() as side:
        target = await last_of(clustered, side, vpc)
        group = await clustered.resources.group(vpc, by_cloud_provider("other"))
        lane = target.lane.replace("tag.GetResources", "ec2.DeleteSecurityGroup")
        errand = f'{{"kind":"aws.security-group","id":"{group}"}}'
        batch = Taken(lane, job_of(target, lane=lane, resume=errand))
        verdict = await listed(side, batch)
        assert isinstance(verdict, Refused)
        assert group in verdict.reason
        batch = Taken(lane, job_of(target, lane=lane, resume=errand, verdict="refused"))
        verdict = await listed(side, batch)
        assert isinstance(verdict, Pending)
        assert verdict.lane == target.lane
        assert group in await clustered.resources.standing()


async def test_all_that_was_made_again_is_removed_between_two_lists(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    async with clustered.side() as side:
        walk = Walk(side, await last_of(clustered, side, vpc))
        groups = [await clustered.resources.group(vpc, by_cloud_provider("prod")) for _ in range(3)]
        assert isinstance(await walk.until(Gone), Gone)
        assert not {*groups} & await clustered.resources.standing()
        # One that finds them, one that finds nothing, and one when it has settled.
        assert walk.lanes.count("tag.GetResources") == 3
        assert walk.lanes.count("ec2.DeleteSecurityGroup") == 3
        # Neither is the list ever asked again at once.
        assert all(walk.waits[at - 1] for at, lane in enumerate(walk.lanes) if at and lane == "tag.GetResources")


async def test_one_that_may_not_be_removed_does_not_keep_the_others(clustered: Clustered) -> None:
    vpc = await clustered.resources.vpc()
    async with clustered.side() as side:
        walk = Walk(side, await last_of(clustered, side, vpc))
        kept = await clustered.resources.classic(vpc, by_cloud_provider("prod", "default/web"))
        group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
        await clustered.aws.trouble(Fault(what="deny", action="elb.DeleteLoadBalancer", account=clustered.account))
        verdict = await walk.until(Refused)
        assert isinstance(verdict, Refused)
        assert kept in verdict.reason
        assert "elasticloadbalancing:DeleteLoadBalancer is denied" in verdict.reason
        standing = await clustered.resources.standing()
        assert group not in standing
        assert kept in standing
        await clustered.aws.trouble()
        assert isinstance(await walk.until(Gone), Gone)
        assert kept not in await clustered.resources.standing()


# ---- with a worker


async def until_all_but_the_last_look_is_done(clustered: Clustered, one: Event) -> None:
    async def over() -> bool:
        if "plan" not in await clustered.deletion(one):
            return False
        records = [await clustered.job(job) for job in await clustered.jobs_of(one)]
        states = {record["kind"]: record.get("state", "") for record in records}
        return all(state == "gone" for kind, state in states.items() if kind not in (SETTLED, "release"))

    await clustered.until("everything but the last look is done", over)


async def test_what_a_late_controller_makes_again_is_collected_before_the_cluster_goes(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    first = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    clustered.set(settle=timedelta(minutes=10))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await until_all_but_the_last_look_is_done(clustered, one)
    assert first not in await clustered.resources.standing()
    again = await clustered.resources.cluster_resources("prod", vpc, entangled=True)
    assert clustered.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clustered.jump(timedelta(minutes=10))

    async def gone() -> bool:
        return not {*again.classic, *again.balancers, *again.target_groups, *again.groups} & (
            await clustered.resources.standing()
        )

    await clustered.until("what was made again is gone", gone)
    # It settles anew: whoever made it may make it once more.
    await clustered.until_job(one, SETTLED, "looked at once more", held=False)
    assert clustered.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clustered.jump(timedelta(minutes=10))
    await clustered.until_done(one)
    assert clustered.read(made) is None


async def test_a_permission_that_is_taken_away_keeps_the_cluster_until_it_is_given_back(
    clustered: Clustered, stack: AsyncExitStack
) -> None:
    vpc = await clustered.resources.vpc()
    clustered.set(settle=timedelta(minutes=10))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await until_all_but_the_last_look_is_done(clustered, one)
    denied = [
        Fault(what="deny", action=action, account=clustered.account)
        for action in (TAGGING, "ec2.DescribeSecurityGroups")
    ]
    await clustered.aws.trouble(*denied)
    await clustered.jump(timedelta(minutes=10))
    await clustered.until_job(one, SETTLED, "ec2:DescribeSecurityGroups is denied")
    assert clustered.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
    await clustered.aws.trouble()
    await clustered.until_done(one)


# ---- what is wanted by then


@pytest.mark.parametrize("wanted", ["load-balancer", "load-balancer,security-group"])
async def test_the_last_look_is_for_the_tasks_that_are_wanted_by_then(
    clustered: Clustered, stack: AsyncExitStack, wanted: str
) -> None:
    """What is left of a task that was taken away does not hold the object; what is left of the others does, until it is
    gone."""
    vpc = await clustered.resources.vpc()
    clustered.set(settle=timedelta(minutes=10))
    made = clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
    one = await clustered.going(made)
    await clustered.work(stack)
    await until_all_but_the_last_look_is_done(clustered, one)
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    clustered.capi.annotate(capi.AWS_CLUSTERS, "prod", **{EXTERNAL_RESOURCE_TASKS: wanted})
    await clustered.jump(timedelta(minutes=10))
    if "security-group" in wanted:
        await clustered.until_job(one, SETTLED, "looked at once more", held=False)
        assert clustered.read(made)["metadata"]["finalizers"] == [AWS_FINALIZER]
        await clustered.jump(timedelta(minutes=10))
    await clustered.until_done(one)
    assert (group in await clustered.resources.standing()) == ("security-group" not in wanted)
