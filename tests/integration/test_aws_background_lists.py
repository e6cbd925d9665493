"""Lists that take longer than an attempt or a plan: they continue in the background, and each ends. The account's
target groups fill several slow pages."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from service.contract import Found, Gone, Hold, Pending, Plan, Target, Verdict
from service.sources.capa import AwsSettings
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, Vpc
from standins.aws.tags import by_balancer_controller, by_cloud_provider
from tests.integration.aws_final_check import GOES_ON, Taken, Walk, attempted, job_of, last_of
from tests.integration.capi_fixture import CapaSide, CapiFixture, marked
from workers.collectors.capa.final_check import state_of

pytestmark = pytest.mark.long

PAGES = "elbv2.DescribeTargetGroups"


@pytest.fixture(autouse=True)
async def many(clusters: CapiFixture, vpc: Vpc) -> None:
    """Three pages, which are read twice."""
    for _ in range(5):
        await clusters.resources.target_group(vpc, by_cloud_provider("other", "default/web"))
    await clusters.aws.behave(page_size=2)
    clusters.set(finding="describe")


@pytest.fixture
async def target(clusters: CapiFixture, vpc: Vpc, many: None) -> Target:
    """The final check of a cluster that owns nothing, planned while nothing was slow."""
    async with clusters.side() as side:
        return await last_of(clusters, side, vpc)


@pytest.fixture
async def side(clusters: CapiFixture, target: Target) -> AsyncIterator[CapaSide]:
    """Components whose callers wait a little more than half a second for a list."""
    clusters.change("worker", attempt_timeout=timedelta(seconds=1))
    async with clusters.side() as made:
        yield made


async def slowly(clusters: CapiFixture, *others: AwsFault) -> None:
    """From now on a list takes two seconds."""
    slow = AwsFault(what="slow", action=PAGES, account=clusters.account, seconds=0.35)
    await clusters.aws.set_faults(*others, slow)


async def until_asked(clusters: CapiFixture, number: int) -> None:
    async def asked() -> bool:
        return await clusters.calls(PAGES) >= number

    await clusters.until(f"{number} pages were asked for", asked)


def left(verdict: object) -> str:
    """The resume state of a job whose list continues."""
    assert isinstance(verdict, Pending), verdict
    assert GOES_ON in verdict.detail
    assert verdict.lane is None
    assert timedelta(0) < verdict.check_after <= timedelta(seconds=10)
    return verdict.resume


async def answer(walk: Walk) -> Verdict | Exception:
    """The verdict once the list is complete."""
    for _ in range(20):
        verdict = await walk.on()
        if not (isinstance(verdict, Pending) and GOES_ON in verdict.detail):
            return verdict
    raise AssertionError("the list never ends")


# ---- the final check


@pytest.mark.long
async def test_a_list_that_takes_longer_than_an_attempt_ends_and_reads_each_page_once(
    clusters: CapiFixture, target: Target, stack: AsyncExitStack
) -> None:
    patient = await stack.enter_async_context(clusters.side())
    before = await clusters.actions()
    assert isinstance(await attempted(patient, Taken(target.lane, job_of(target))), Gone)
    whole = await clusters.actions() - before
    assert whole[PAGES] == 6
    await slowly(clusters)
    clusters.change("worker", attempt_timeout=timedelta(seconds=1))
    side = await stack.enter_async_context(clusters.side())
    before, walk, visits = await clusters.actions(), Walk(side, target), 0
    while not isinstance(verdict := await walk.on(), Gone):
        # No second settle time: nothing was removed.
        left(verdict)
        visits += 1
        assert visits < 20
    assert visits >= 2
    assert await clusters.actions() - before == whole


@pytest.mark.long
async def test_what_was_drawn_for_the_tagging_api_and_not_used_goes_back_each_time(
    clusters: CapiFixture, side: CapaSide, target: Target
) -> None:
    await slowly(clusters)
    batch = Taken(target.lane, job_of(target))
    left(await attempted(side, batch))
    assert batch.returned == {f"{REGION}/tag.GetResources": 1.0}


@pytest.mark.long
async def test_a_new_request_does_not_get_a_list_that_began_before(
    clusters: CapiFixture, side: CapaSide, target: Target, vpc: Vpc
) -> None:
    """Not even for the same cluster: only the caller that requested it before, by its name."""
    asked = await clusters.calls(PAGES)
    await slowly(clusters)
    early = left(await attempted(side, Taken(target.lane, job_of(target))))
    await until_asked(clusters, asked + 6)
    made = await clusters.resources.target_group(vpc, by_cloud_provider("prod", "default/web"))
    verdict = await answer(Walk(side, target))
    assert isinstance(verdict, Found), verdict
    assert made in {one.id for one in verdict.targets}
    assert isinstance(await attempted(side, Taken(target.lane, job_of(target, resume=early))), Gone)


@pytest.mark.long
async def test_a_later_request_of_another_cluster_gets_its_own_list(
    clusters: CapiFixture, side: CapaSide, target: Target, vpc: Vpc
) -> None:
    asked = await clusters.calls(PAGES)
    await slowly(clusters)
    early = left(await attempted(side, Taken(target.lane, job_of(target))))
    await until_asked(clusters, asked + 1)
    made = await clusters.resources.target_group(vpc, by_cloud_provider("late", "default/web"))
    found = clusters.delete_marked("late", vpc)
    plan = await clusters.collect(found, side)
    for _ in range(20):
        if isinstance(plan, Plan):
            break
        assert GOES_ON in plan.reason
        plan = await clusters.collect(found, side)
    assert isinstance(plan, Plan), plan
    assert made in {one.id for one in plan.targets}
    # The first caller's list is still there for it.
    assert isinstance(await attempted(side, Taken(target.lane, job_of(target, resume=early))), Gone)


@pytest.mark.long
async def test_after_a_restart_in_the_middle_it_begins_anew_and_ends(clusters: CapiFixture, target: Target) -> None:
    clusters.change("worker", attempt_timeout=timedelta(seconds=1))
    async with clusters.side() as side:
        await slowly(clusters)
        resume = left(await attempted(side, Taken(target.lane, job_of(target))))
    asked = await clusters.calls(PAGES)
    async with clusters.side() as side:
        walk = Walk(side, target, resume=resume)
        verdict = await walk.on()
        again = left(verdict)
        # Both names are kept: the other process may still run, and take the job next.
        assert len(state_of(again).asked) == 2
        assert state_of(again).asked[0] == state_of(resume).asked[0]
        assert isinstance(await walk.until(Gone), Gone)
    # A slow call in flight when the first process ended appears in the journal only later.
    assert await clusters.calls(PAGES) - asked in (6, 7)


@pytest.mark.long
async def test_a_list_that_fails_after_its_asker_left_is_heard_of_and_made_again(
    clusters: CapiFixture, side: CapaSide, target: Target
) -> None:
    await slowly(clusters)
    walk = Walk(side, target)
    left(await walk.on())
    await slowly(clusters, AwsFault(what="error", action=PAGES, account=clusters.account, code="InternalError"))
    failure = await walk.until(Gone)
    assert isinstance(failure, Exception)
    assert "InternalError" in str(failure)
    await slowly(clusters)
    assert isinstance(await walk.until(Gone), Gone)


# ---- plans


async def test_a_plan_returns_for_its_list_and_reads_each_page_once(
    clusters: CapiFixture, side: CapaSide, vpc: Vpc
) -> None:
    made = await clusters.resources.target_group(vpc, by_cloud_provider("going", "default/web"))
    found, asked = clusters.delete_marked("going", vpc), await clusters.calls(PAGES)
    await slowly(clusters)
    holds: list[Hold] = []
    while isinstance(plan := await clusters.collect(found, side), Hold):
        holds.append(plan)
        assert GOES_ON in plan.reason
        assert plan.again
        assert plan.after is not None
        assert len(holds) < 20
    assert holds
    assert made in {one.id for one in plan.targets}
    assert await clusters.calls(PAGES) - asked == 6


async def test_one_list_serves_both_tags_of_a_cluster(clusters: CapiFixture, vpc: Vpc) -> None:
    owned = [by_cloud_provider("prod", "default/web"), by_balancer_controller("prod")]
    made = {await clusters.resources.target_group(vpc, tags) for tags in owned}
    clusters.set(tasks=(*clusters.settings.section(AwsSettings).tasks, "aws-load-balancer-controller"))
    targets = await clusters.planned(clusters.delete_marked("prod", vpc))
    assert made == {one.id for one in targets if one.kind == "aws.target-group"}
    # Four pages by now, which are read twice.
    assert await clusters.calls(PAGES) == 8


async def test_a_plan_whose_list_failed_says_so(clusters: CapiFixture, side: CapaSide, vpc: Vpc) -> None:
    found = clusters.delete_marked("going", vpc)
    await slowly(clusters)
    assert GOES_ON in (await clusters.held(found, side)).reason
    await slowly(clusters, AwsFault(what="error", action=PAGES, account=clusters.account, code="InternalError"))
    hold = await clusters.held(found, side)
    for _ in range(20):
        if GOES_ON not in hold.reason:
            break
        hold = await clusters.held(found, side)
    assert "InternalError" in hold.reason


# ---- with a worker


@pytest.mark.long
async def test_a_cluster_goes_although_no_list_of_its_account_fits_into_an_attempt(
    clusters: CapiFixture, stack: AsyncExitStack, vpc: Vpc
) -> None:
    mine = await clusters.resources.target_group(vpc, by_cloud_provider("prod", "default/web"))
    clusters.change("worker", attempt_timeout=timedelta(seconds=2))
    await clusters.aws.set_faults(AwsFault(what="slow", action=PAGES, account=clusters.account, seconds=0.5))
    one = await clusters.going(clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clusters.work(stack)
    await clusters.until_waiting(one, GOES_ON)

    async def done() -> bool:
        # Wakes the waiting job: the ten seconds until its next check are not the subject of this test.
        await clusters.jump(timedelta(seconds=5))
        return (await clusters.deletion(one)).get("state") == "done"

    await clusters.until("it is done", done)
    assert mine not in await clusters.resources.standing()
    record = await clusters.until_job(one, "aws.settled", "a fresh list is empty", held=False)
    assert record.get("attempts", "0") == "0"
