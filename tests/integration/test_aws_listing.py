"""Lists that take longer than an attempt or a plan may: they go on by themselves, and each ends.
The account's target groups fill several pages, each of which is slow to come."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from service.contract import Gone, Hold, Pending, Plan, Target, Verdict
from standins.aws.behaviour import Fault
from standins.aws.networks import Vpc
from standins.aws.tags import by_balancer_controller, by_cloud_provider
from standins.aws.world import REGION
from tests.integration.aws_looking import GOES_ON, Taken, Walk, attempted, job_of, last_of
from tests.integration.clustered import Clustered, marked
from workers.handlers.aws.errands import errand_of
from workers.handlers.aws.wiring import AwsSide

PAGES = "elbv2.DescribeTargetGroups"


@pytest.fixture(autouse=True)
async def many(clustered: Clustered, vpc: Vpc) -> None:
    """Three pages, which are turned twice."""
    for _ in range(5):
        await clustered.resources.target_group(vpc, by_cloud_provider("other", "default/web"))
    await clustered.aws.behave(page_size=2)
    clustered.set(finding="describe")


@pytest.fixture
async def target(clustered: Clustered, vpc: Vpc, many: None) -> Target:
    """The last look of a cluster that owns nothing, planned while nothing was slow."""
    async with clustered.side() as side:
        return await last_of(clustered, side, vpc)


@pytest.fixture
async def side(clustered: Clustered, target: Target) -> AsyncIterator[AwsSide]:
    """Who waits for a list here has a little more than half a second."""
    clustered.change("worker", attempt_timeout=timedelta(seconds=1))
    async with clustered.side() as made:
        yield made


async def slowly(clustered: Clustered, *others: Fault) -> None:
    """The list takes two seconds from now on."""
    slow = Fault(what="slow", action=PAGES, account=clustered.account, seconds=0.35)
    await clustered.aws.trouble(*others, slow)


async def until_asked(clustered: Clustered, number: int) -> None:
    async def asked() -> bool:
        return await clustered.calls(PAGES) >= number

    await clustered.until(f"{number} pages were asked for", asked)


def left(verdict: object) -> str:
    """What the job takes along that left a list to itself."""
    assert isinstance(verdict, Pending), verdict
    assert GOES_ON in verdict.detail
    assert verdict.lane is None
    assert timedelta(0) < verdict.check_after <= timedelta(seconds=10)
    return verdict.resume


async def answer(walk: Walk) -> Verdict | Exception:
    """What comes of a look once its list is there."""
    for _ in range(20):
        verdict = await walk.on()
        if not (isinstance(verdict, Pending) and GOES_ON in verdict.detail):
            return verdict
    raise AssertionError("the list never ends")


# ---- the last look


@pytest.mark.long
async def test_a_list_that_takes_longer_than_an_attempt_ends_and_asks_for_each_page_once(
    clustered: Clustered, target: Target, stack: AsyncExitStack
) -> None:
    patient = await stack.enter_async_context(clustered.side())
    before = await clustered.actions()
    assert isinstance(await attempted(patient, Taken(target.lane, job_of(target))), Gone)
    whole = await clustered.actions() - before
    assert whole[PAGES] == 6
    await slowly(clustered)
    clustered.change("worker", attempt_timeout=timedelta(seconds=1))
    side = await stack.enter_async_context(clustered.side())
    before, walk, visits = await clustered.actions(), Walk(side, target), 0
    while not isinstance(verdict := await walk.on(), Gone):
        # Never once more after a settle time: nothing was removed.
        left(verdict)
        visits += 1
        assert visits < 20
    assert visits >= 2
    assert await clustered.actions() - before == whole


@pytest.mark.long
async def test_what_was_drawn_for_the_tagging_api_and_not_used_goes_back_each_time(
    clustered: Clustered, side: AwsSide, target: Target
) -> None:
    await slowly(clustered)
    batch = Taken(target.lane, job_of(target))
    left(await attempted(side, batch))
    assert batch.returned == [f"{REGION}/tag.GetResources"]


@pytest.mark.long
async def test_who_asks_anew_is_not_given_a_list_that_began_before(
    clustered: Clustered, side: AwsSide, target: Target, vpc: Vpc
) -> None:
    """Not even where it is the same cluster that asks: only who asked before it began, and took its name along."""
    asked = await clustered.calls(PAGES)
    await slowly(clustered)
    early = left(await attempted(side, Taken(target.lane, job_of(target))))
    await until_asked(clustered, asked + 6)
    made = await clustered.resources.target_group(vpc, by_cloud_provider("prod", "default/web"))
    verdict = await answer(Walk(side, target))
    assert isinstance(verdict, Pending), verdict
    assert made in verdict.detail
    assert isinstance(await attempted(side, Taken(target.lane, job_of(target, resume=early))), Gone)


@pytest.mark.long
async def test_a_cluster_that_asks_later_is_answered_by_a_list_of_its_own(
    clustered: Clustered, side: AwsSide, target: Target, vpc: Vpc
) -> None:
    asked = await clustered.calls(PAGES)
    await slowly(clustered)
    early = left(await attempted(side, Taken(target.lane, job_of(target))))
    await until_asked(clustered, asked + 1)
    made = await clustered.resources.target_group(vpc, by_cloud_provider("late", "default/web"))
    found = clustered.delete_marked("late", vpc)
    plan = await clustered.collect(found, side)
    for _ in range(20):
        if isinstance(plan, Plan):
            break
        assert GOES_ON in plan.reason
        plan = await clustered.collect(found, side)
    assert isinstance(plan, Plan), plan
    assert made in {one.id for one in plan.targets}
    # The first one's is still there for it.
    assert isinstance(await attempted(side, Taken(target.lane, job_of(target, resume=early))), Gone)


@pytest.mark.long
async def test_after_a_restart_in_the_middle_it_begins_anew_and_ends(clustered: Clustered, target: Target) -> None:
    clustered.change("worker", attempt_timeout=timedelta(seconds=1))
    async with clustered.side() as side:
        await slowly(clustered)
        resume = left(await attempted(side, Taken(target.lane, job_of(target))))
    asked = await clustered.calls(PAGES)
    async with clustered.side() as side:
        walk = Walk(side, target, resume=resume)
        verdict = await walk.on()
        again = left(verdict)
        # Both are kept: the other process may be there still, and have the job next.
        assert len(errand_of(again).asked) == 2
        assert errand_of(again).asked[0] == errand_of(resume).asked[0]
        assert isinstance(await walk.until(Gone), Gone)
    # A slow call that was on its way when the first one ended is in the journal only later.
    assert await clustered.calls(PAGES) - asked in (6, 7)


@pytest.mark.long
async def test_a_list_that_fails_after_its_asker_left_is_heard_of_and_made_again(
    clustered: Clustered, side: AwsSide, target: Target
) -> None:
    await slowly(clustered)
    walk = Walk(side, target)
    left(await walk.on())
    await slowly(clustered, Fault(what="error", action=PAGES, account=clustered.account, code="InternalError"))
    failure = await walk.until(Gone)
    assert isinstance(failure, Exception)
    assert "InternalError" in str(failure)
    await slowly(clustered)
    assert isinstance(await walk.until(Gone), Gone)


# ---- plans


async def test_a_plan_comes_back_for_its_list_and_asks_for_each_page_once(
    clustered: Clustered, side: AwsSide, vpc: Vpc
) -> None:
    made = await clustered.resources.target_group(vpc, by_cloud_provider("going", "default/web"))
    found, asked = clustered.delete_marked("going", vpc), await clustered.calls(PAGES)
    await slowly(clustered)
    holds: list[Hold] = []
    while isinstance(plan := await clustered.collect(found, side), Hold):
        holds.append(plan)
        assert GOES_ON in plan.reason
        assert plan.again
        assert plan.after is not None
        assert len(holds) < 20
    assert holds
    assert made in {one.id for one in plan.targets}
    assert await clustered.calls(PAGES) - asked == 6


async def test_one_list_serves_both_tags_of_a_cluster(clustered: Clustered, vpc: Vpc) -> None:
    owned = [by_cloud_provider("prod", "default/web"), by_balancer_controller("prod")]
    made = {await clustered.resources.target_group(vpc, tags) for tags in owned}
    clustered.set(tasks=(*clustered.settings.aws.tasks, "aws-load-balancer-controller"))
    targets = await clustered.planned(clustered.delete_marked("prod", vpc))
    assert made == {one.id for one in targets if one.kind == "aws.target-group"}
    # Four pages by now, which are turned twice.
    assert await clustered.calls(PAGES) == 8


async def test_a_plan_whose_list_failed_says_so(clustered: Clustered, side: AwsSide, vpc: Vpc) -> None:
    found = clustered.delete_marked("going", vpc)
    await slowly(clustered)
    assert GOES_ON in (await clustered.held(found, side)).reason
    await slowly(clustered, Fault(what="error", action=PAGES, account=clustered.account, code="InternalError"))
    hold = await clustered.held(found, side)
    for _ in range(20):
        if GOES_ON not in hold.reason:
            break
        hold = await clustered.held(found, side)
    assert "InternalError" in hold.reason


# ---- with a worker


@pytest.mark.long
async def test_a_cluster_goes_although_no_list_of_its_account_fits_into_an_attempt(
    clustered: Clustered, stack: AsyncExitStack, vpc: Vpc
) -> None:
    mine = await clustered.resources.target_group(vpc, by_cloud_provider("prod", "default/web"))
    clustered.change("worker", attempt_timeout=timedelta(seconds=2))
    await clustered.aws.trouble(Fault(what="slow", action=PAGES, account=clustered.account, seconds=0.5))
    one = await clustered.going(clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clustered.work(stack)
    await clustered.until_waiting(one, GOES_ON)

    async def done() -> bool:
        # Whoever waits for a list is woken: the ten seconds until he looks again are not what this is about.
        await clustered.jump(timedelta(seconds=5))
        return (await clustered.deletion(one)).get("state") == "done"

    await clustered.until("it is done", done)
    assert mine not in await clustered.resources.standing()
    record = await clustered.until_job(one, "aws.settled", "a fresh list is empty", held=False)
    assert record.get("attempts", "0") == "0"
