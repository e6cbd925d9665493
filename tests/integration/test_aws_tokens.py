"""What a batch calls with: what its lane reserved for it, and beyond that what it draws on the shared budget itself."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

from service.contract import Draw, Limit, Pause, Throttled
from standins.aws import Fault
from standins.aws.tags import by_cloud_provider
from tests.engine.waiting import until
from tests.integration.aws_removing import REGION, Hand, Removing, removing
from workers.handlers.aws.errors import NO_ROOM, AwsError
from workers.handlers.aws.lanes import lane_draws
from workers.handlers.aws.limits import limits_of, place_of_account
from workers.handlers.aws.tokens import Counted
from workers.handlers.protocol import NotCleared
from workers.handlers.tokens import Tokens
from workers.runtime.quota import BudgetQuota

__all__ = ["removing"]

READ = "elbv2.DescribeTargetGroups"
SERVED = by_cloud_provider("c1", "default/web")


class Noted:
    """The shared budgets, and how often they were asked."""

    def __init__(self, quota: BudgetQuota) -> None:
        self._quota, self.drawn = quota, 0

    async def draw(self, place: str, draws: Sequence[Draw]) -> timedelta:
        self.drawn += 1
        return await self._quota.draw(place, draws)

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        await self._quota.refused(place, limit, wait, others)


@pytest.fixture
def quota(removing: Removing) -> Noted:
    made = removing.reach.quota = Noted(BudgetQuota(removing.world.installation.budgets, 0.1))
    return made


async def counted(removing: Removing, hand: Hand, jobs: int) -> tuple[Counted, Tokens]:
    """Calls of a batch for each of whose jobs one read was reserved."""
    tokens, whose = Tokens(hand, limits_of(REGION, READ), jobs), removing.owner().whose
    beyond = partial(removing.reach.calls, whose, paced=True)
    return Counted(await removing.reach.calls(whose), tokens, beyond), tokens


async def exhaust(removing: Removing, quota: Noted) -> None:
    """Nobody gets anything of the reads for a while."""
    limit = limits_of(REGION, READ)[0].limit
    await quota.refused(place_of_account(removing.cloud.account), limit, timedelta(minutes=1))


async def test_what_is_reserved_costs_no_word_to_the_budget_and_what_is_not_draws_for_itself(
    removing: Removing, quota: Noted
) -> None:
    hand = removing.hand(removing.owner(), "aws.target-group", "a", "b")
    calls, tokens = await counted(removing, hand, 2)
    for _ in range(2):
        await calls.call("elbv2", "describe_target_groups")
    assert quota.drawn == 0
    await calls.call("elbv2", "describe_target_groups")
    assert quota.drawn == 1
    await calls.call("ec2", "describe_volumes")
    assert quota.drawn == 2
    tokens.give_back()
    assert hand.returned == {}


async def test_a_refusal_names_every_limit_that_the_call_drew_on(removing: Removing, quota: Noted) -> None:
    hand = removing.hand(removing.owner(), "aws.target-group", "a")
    calls, _ = await counted(removing, hand, 1)
    await removing.cloud.aws.trouble(Fault(what="throttle", action="elbv2.*"))
    with pytest.raises(AwsError, match="Throttling"):
        await calls.call("elbv2", "describe_target_groups")
    assert hand.told == [Pause(f"{REGION}/elbv2.reads", others=(f"{REGION}/elbv2.all",))]


async def test_each_page_beyond_what_is_reserved_draws_for_itself(removing: Removing, quota: Noted) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    for _ in range(5):
        await build.target_group(vpc, SERVED)
    await removing.cloud.aws.behave(page_size=2)
    calls, _ = await counted(removing, removing.hand(removing.owner(), "aws.target-group", "a"), 1)
    pages = calls.pages("elbv2", "describe_target_groups", "TargetGroups", PageSize=2)
    assert [len(page) async for page in pages] == [2, 2, 1]
    assert quota.drawn == 2


async def test_without_room_for_it_a_call_is_not_made_at_all(removing: Removing, quota: Noted) -> None:
    calls, _ = await counted(removing, removing.hand(removing.owner(), "aws.target-group", "a"), 1)
    await exhaust(removing, quota)
    await calls.call("elbv2", "describe_target_groups")
    with pytest.raises(AwsError) as failed:
        await calls.call("elbv2", "describe_target_groups")
    assert (failed.value.what, failed.value.code) == ("throttled", NO_ROOM)
    assert failed.value.after is not None
    assert await removing.asked() == [READ]


async def test_jobs_for_which_there_is_no_room_wait_and_the_limit_is_not_paused_for_it(
    removing: Removing, quota: Noted
) -> None:
    """A list of many pages is read where one is missing: more than two jobs have reserved."""
    build = removing.cloud.world
    vpc = await build.vpc()
    here, *_ = [await build.target_group(vpc, SERVED) for _ in range(6)]
    await removing.cloud.aws.behave(page_size=1)
    hand = removing.hand(removing.owner(vpc), "aws.target-group", here, f"{here[:-4]}none", resume="1")
    await exhaust(removing, quota)
    for verdict in (await removing.attempt(hand)).values():
        assert isinstance(verdict, Throttled), verdict
        assert verdict.unasked
        assert verdict.retry_after is not None
        assert verdict.retry_after > timedelta(seconds=30)
    assert hand.told == []
    # What was reserved for the calls that were not made: the deletions.
    assert hand.returned == {f"{REGION}/elbv2.changes": 2.0, f"{REGION}/elbv2.all": 2.0}
    assert here in await build.standing()


# ---- what goes back


class Runtime(Hand):
    """As a flight of the runtime: what was reserved for a job that was not cleared goes back by itself."""

    def hand_back(self, jobs: int) -> None:
        for draw in lane_draws(self.lane) or ():
            self.unused(draw.limit.name, draw.cost * jobs)


def reserved(hand: Hand) -> dict[str, float]:
    return {draw.limit.name: draw.cost * len(hand.jobs) for draw in lane_draws(hand.lane) or ()}


def spent(hand: Hand) -> dict[str, float]:
    """What stays drawn after everything has come back."""
    left = {name: tokens - hand.returned.get(name, 0.0) for name, tokens in reserved(hand).items()}
    return {name: tokens for name, tokens in left.items() if tokens}


async def test_reads_that_were_made_for_a_job_that_is_not_cleared_stay_drawn(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    volume = await build.volume(by_cloud_provider("c1"))
    hand = removing.hand(removing.owner(vpc), "aws.volume", volume, clear=NotCleared("paused"))
    one = Runtime(hand.lane, hand.jobs, clear=NotCleared("paused"))
    assert isinstance((await removing.attempt(one))[volume], NotCleared)
    one.hand_back(1)
    asked = await removing.asked()
    assert asked == ["ec2.DescribeVolumes"]
    assert spent(one) == {f"{REGION}/ec2.DescribeVolumes": 1.0}


async def test_a_batch_that_is_called_off_gives_nothing_back_twice(removing: Removing) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    volumes = [await build.volume(by_cloud_provider("c1")) for _ in range(2)]
    hand = removing.hand(removing.owner(vpc), "aws.volume", *volumes)
    held, arrived = asyncio.Event(), list[str]()

    class Held(Runtime):
        async def clear(self, *jobs: object) -> None:
            arrived.append("here")
            await held.wait()

    one = Held(hand.lane, hand.jobs)
    attempt = asyncio.create_task(removing.attempt(one))

    async def before_the_call() -> bool:
        return len(arrived) == 2

    await until("both are in front of their calls", before_the_call)
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)
    one.hand_back(2)
    assert spent(one) == {f"{REGION}/ec2.DescribeVolumes": 1.0}
