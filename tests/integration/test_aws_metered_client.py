"""Metered client: calls spend what the lane reserved, and beyond that draw on the shared budget."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

from service.contract import Draw, Limit, Pause, Throttled
from standins.aws import AwsFault
from standins.aws.tags import by_cloud_provider
from tests.engine.waiting import until
from tests.integration.aws_removal import REGION, AwsRecordingBatch, AwsRemovalFixture, removing
from workers.handlers.lane_meter import LaneMeter
from workers.handlers.protocol import NotCleared
from workers.providers.aws.client.metered_client import MeteredClient
from workers.providers.aws.errors import BUDGET_EXHAUSTED, AwsError
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import AwsLimits, place_of_account
from workers.runtime.call_budget import CallBudget

__all__ = ["removing"]

LIMITS = AwsLimits(KINDS)
READ = "elbv2.DescribeTargetGroups"
SERVED = by_cloud_provider("c1", "default/web")


class CountedBudget:
    """The shared budgets, and how often they were called."""

    def __init__(self, quota: CallBudget) -> None:
        self._quota, self.drawn = quota, 0

    async def draw(self, place: str, draws: Sequence[Draw]) -> timedelta:
        self.drawn += 1
        return await self._quota.draw(place, draws)

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        await self._quota.refused(place, limit, wait, others)


@pytest.fixture
def quota(removing: AwsRemovalFixture) -> CountedBudget:
    made = removing.reach.quota = CountedBudget(CallBudget(removing.engine.installation.budgets, 0.1))
    return made


async def counted(removing: AwsRemovalFixture, batch: AwsRecordingBatch, jobs: int) -> tuple[MeteredClient, LaneMeter]:
    """The client of a batch with one reserved read per job."""
    meter, scope = LaneMeter(LIMITS.of(REGION, READ), jobs, batch.report_quota), removing.owner().scope
    beyond = partial(removing.reach.client, scope, paced=True)
    return MeteredClient(await removing.reach.client(scope), meter, beyond, LIMITS), meter


async def exhaust(removing: AwsRemovalFixture, quota: CountedBudget) -> None:
    """Leaves no tokens for reads for a while."""
    limit = LIMITS.of(REGION, READ)[0].limit
    await quota.refused(place_of_account(removing.cloud.account), limit, timedelta(minutes=1))


async def test_what_is_reserved_costs_no_word_to_the_budget_and_what_is_not_draws_for_itself(
    removing: AwsRemovalFixture, quota: CountedBudget
) -> None:
    batch = removing.batch(removing.owner(), "aws.target-group", "a", "b")
    client, meter = await counted(removing, batch, 2)
    for _ in range(2):
        await client.call("elbv2", "describe_target_groups")
    assert quota.drawn == 0
    await client.call("elbv2", "describe_target_groups")
    assert quota.drawn == 1
    await client.call("ec2", "describe_volumes")
    assert quota.drawn == 2
    assert meter.close() == {}


@pytest.mark.invariant(2)
@pytest.mark.parametrize("room", [True, False])
async def test_a_change_beyond_what_is_reserved_goes_at_once_or_not_at_all(
    removing: AwsRemovalFixture, quota: CountedBudget, room: bool
) -> None:
    """Consent and the reads before it would grow old while the call waits for tokens."""
    vpc = await removing.cloud.builder.vpc()
    group = await removing.cloud.builder.target_group(vpc, SERVED)
    client, _ = await counted(removing, removing.batch(removing.owner(), "aws.target-group", group), 1)
    if room:
        await client.call("elbv2", "delete_target_group", TargetGroupArn=group)
        assert (await removing.asked(), quota.drawn) == (["elbv2.DeleteTargetGroup"], 1)
        return
    limit = LIMITS.of(REGION, "elbv2.DeleteTargetGroup")[0].limit
    await quota.refused(place_of_account(removing.cloud.account), limit, timedelta(seconds=2))
    with pytest.raises(AwsError) as failed:
        await client.call("elbv2", "delete_target_group", TargetGroupArn=group)
    assert (failed.value.what, failed.value.code) == ("throttled", BUDGET_EXHAUSTED)
    assert await removing.asked() == []
    assert group in await removing.cloud.builder.standing()


async def test_a_refusal_names_every_limit_that_the_call_drew_on(
    removing: AwsRemovalFixture, quota: CountedBudget
) -> None:
    batch = removing.batch(removing.owner(), "aws.target-group", "a")
    client, _ = await counted(removing, batch, 1)
    await removing.cloud.aws.set_faults(AwsFault(what="throttle", action="elbv2.*"))
    with pytest.raises(AwsError, match="Throttling"):
        await client.call("elbv2", "describe_target_groups")
    assert batch.told == [Pause(f"{REGION}/elbv2.reads", others=(f"{REGION}/elbv2.all",))]


async def test_each_page_beyond_what_is_reserved_draws_for_itself(
    removing: AwsRemovalFixture, quota: CountedBudget
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    for _ in range(5):
        await build.target_group(vpc, SERVED)
    await removing.cloud.aws.behave(page_size=2)
    client, _ = await counted(removing, removing.batch(removing.owner(), "aws.target-group", "a"), 1)
    pages = client.pages("elbv2", "describe_target_groups", "TargetGroups", PageSize=2)
    assert [len(page) async for page in pages] == [2, 2, 1]
    assert quota.drawn == 2


async def test_without_room_for_it_a_call_is_not_made_at_all(removing: AwsRemovalFixture, quota: CountedBudget) -> None:
    client, _ = await counted(removing, removing.batch(removing.owner(), "aws.target-group", "a"), 1)
    await exhaust(removing, quota)
    await client.call("elbv2", "describe_target_groups")
    with pytest.raises(AwsError) as failed:
        await client.call("elbv2", "describe_target_groups")
    assert (failed.value.what, failed.value.code) == ("throttled", BUDGET_EXHAUSTED)
    assert failed.value.after is not None
    assert await removing.asked() == [READ]


async def test_jobs_for_which_there_is_no_room_wait_and_the_limit_is_not_paused_for_it(
    removing: AwsRemovalFixture, quota: CountedBudget
) -> None:
    """A list of many pages is read if one id is missing: more than two jobs have reserved."""
    build = removing.cloud.builder
    vpc = await build.vpc()
    here, *_ = [await build.target_group(vpc, SERVED) for _ in range(6)]
    await removing.cloud.aws.behave(page_size=1)
    batch = removing.batch(removing.owner(vpc), "aws.target-group", here, f"{here[:-4]}none", resume="1")
    await exhaust(removing, quota)
    for verdict in (await removing.attempt(batch)).values():
        assert isinstance(verdict, Throttled), verdict
        assert verdict.unasked
        assert verdict.retry_after is not None
        assert verdict.retry_after > timedelta(seconds=30)
    assert batch.told == []
    # What was reserved for the calls that were not made: the deletions.
    assert batch.returned == {f"{REGION}/elbv2.changes": 2.0, f"{REGION}/elbv2.all": 2.0}
    assert here in await build.standing()


# ---- returned tokens


async def test_reads_that_were_made_for_a_job_that_is_not_cleared_stay_drawn(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    volume = await build.volume(by_cloud_provider("c1"))
    one = removing.batch(removing.owner(vpc), "aws.volume", volume, clear=NotCleared("paused"))
    assert isinstance((await removing.attempt(one))[volume], NotCleared)
    asked = await removing.asked()
    assert asked == ["ec2.DescribeVolumes"]
    assert one.spent == {f"{REGION}/ec2.DescribeVolumes": 1.0}


async def test_a_batch_that_is_called_off_gives_nothing_back_twice(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    volumes = [await build.volume(by_cloud_provider("c1")) for _ in range(2)]
    batch = removing.batch(removing.owner(vpc), "aws.volume", *volumes)
    held, arrived = asyncio.Event(), list[str]()

    class HeldBatch(AwsRecordingBatch):
        async def clear(self, *jobs: object) -> None:
            arrived.append("here")
            await held.wait()

    one = HeldBatch(batch.lane, batch.jobs)
    attempt = asyncio.create_task(removing.attempt(one))

    async def before_the_call() -> bool:
        return len(arrived) == 2

    await until("both are in front of their calls", before_the_call)
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)
    assert one.spent == {f"{REGION}/ec2.DescribeVolumes": 1.0}
