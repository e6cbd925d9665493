"""What comes after everything else: the last chain of a plan waits for all others, and the release waits for it."""

from datetime import timedelta

import pytest

from service.contract import FINALLY, Event, Gone, Pending, Target
from service.engine.arrange import arrange
from service.engine.rows import CHUNK, rows
from service.engine.views.deletions import story
from service.engine.withdrawal import withdraw
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World

LEFT, RIGHT, LAST, RELEASE = "sim/acct/left", "sim/acct/right", "sim/acct/check", "cluster/c1/release"
GRACE = timedelta(minutes=1)


def targets() -> list[Target]:
    """Named so that by its name the last chain would be neither the first nor the last."""
    return [
        thing("left", LEFT, chain="a-left"),
        thing("right", RIGHT, chain="z-right"),
        thing("later", RIGHT, chain="z-right", stage=1),
        thing("check", LAST, chain=FINALLY),
        thing("look again", LAST, chain=FINALLY, stage=3),
    ]


async def end(world: World, one: Event, lane: str) -> None:
    """What is due in a lane is taken and gone; what that opens is opened."""
    taken = await world.take(one, "hand", lane)
    assert [len(found.jobs) for found in taken.lanes] == [1]
    assert await world.settle(taken, "hand", Gone()) == [True]
    while (await world.shard(one).open())[1]:
        pass


async def tidy_later(world: World) -> None:
    """The janitor leaves alone what was planned a moment ago; what one round finds, the next one opens."""
    await world.jump(GRACE)
    for _ in range(2):
        await world.tidy()


@pytest.mark.invariant(4)
async def test_the_last_chain_opens_when_every_other_has_ended_and_the_release_after_it(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, targets())
    for lane in (RIGHT, LEFT):
        await end(world, one, lane)
        assert not await world.queue(LAST)
    await end(world, one, RIGHT)
    assert list(await world.queue(LAST)) == [jobs["check"]]
    await end(world, one, LAST)
    assert list(await world.queue(LAST)) == [jobs["look again"]]
    assert await world.state(one) == "running"
    assert not await world.queue(RELEASE)
    await end(world, one, LAST)
    assert await world.state(one) == "releasing"
    await end(world, one, RELEASE)
    assert await world.state(one) == "done"


async def test_a_delay_in_the_last_chain_begins_when_that_opens_and_survives_the_loss_of_a_lane(world: World) -> None:
    one, settle = event("a"), timedelta(minutes=1)
    jobs = await world.lay(one, [thing("left", LEFT, chain="a"), thing("check", LAST, chain=FINALLY, after=settle)])
    # The others took longer than that.
    await world.jump(2 * settle)
    earliest = await world.now()
    await end(world, one, LEFT)
    latest = await world.now()
    due = (await world.queue(LAST))[jobs["check"]]
    assert earliest - 1 <= due - settle / timedelta(milliseconds=1) <= latest + 1
    assert int((await world.job(jobs["check"]))["due"]) == due
    assert not (await world.take(one, "hand", LAST)).lanes
    before = await world.queue(LAST)
    assert await world.client.delete(f"{world.shard(one).stem}lane:{LAST}:urgent") == 1
    await world.tidy()
    assert await world.queue(LAST) == before
    await world.jump(settle)
    await end(world, one, LAST)
    assert await world.state(one) == "releasing"


@pytest.mark.every_server
async def test_workers_carry_it_out_in_that_order(world: World) -> None:
    outside = Outside()
    outside.answers["left"] = [Pending(timedelta(milliseconds=50))] * 3
    outside.answers["check"] = [Pending(timedelta(milliseconds=1))] * 2
    going = outside.has("a", targets())
    await world.publish(going)
    for _ in range(2):
        await world.start(outside)
    await world.until_done(going)
    first = outside.called.index("check")
    assert set(outside.called[:first]) == {"left", "right", "later"}
    assert outside.called[first:] == ["check", "check", "check", "look again"]


async def test_a_plan_with_nothing_else_begins_with_it(world: World) -> None:
    outside = Outside()
    going = outside.has("a", [target for target in targets() if target.chain == FINALLY])
    jobs = await world.lay(going, [target for target in targets() if target.chain == FINALLY])
    assert list(await world.queue(LAST)) == [jobs["check"]]
    await tidy_later(world)
    assert list(await world.queue(LAST)) == [jobs["check"]]
    await world.start(outside)
    await world.until_done(going)
    assert outside.called == ["check", "look again"]


async def test_of_a_large_plan_it_is_not_opened_with_the_first_stages(world: World) -> None:
    outside = Outside()
    many = [thing(f"t{number}", LEFT) for number in range(CHUNK + 5)]
    going = outside.has("a", [*many, thing("check", LAST, chain=FINALLY)])
    await world.lay(going, [*many, thing("check", LAST, chain=FINALLY)])
    assert len(await world.queue(LEFT)) == len(many)
    assert not await world.queue(LAST)
    await world.start(outside, concurrency=500, lane_cap=500)
    await world.until_done(going)
    assert outside.called.index("check") == len(many)


async def test_the_janitor_opens_it_neither_early_nor_never(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, targets())
    await tidy_later(world)
    assert not await world.members("opening")
    assert not await world.queue(LAST)
    await end(world, one, LEFT)
    await end(world, one, RIGHT)
    await tidy_later(world)
    assert not await world.queue(LAST)
    taken = await world.take(one, "hand", RIGHT)
    await world.settle(taken, "hand", Gone())
    # Whoever settled has died before he could open it, and a hand has done the rest.
    assert await world.client.delete(world.shard(one).stem + "opening") == 1
    await tidy_later(world)
    assert list(await world.queue(LAST)) == [jobs["check"]]
    assert not await world.queue(RELEASE)
    outside = Outside()
    await world.start(outside)
    await world.until_done(one)
    assert outside.called == ["check", "look again"]


async def test_what_was_settled_by_one_who_then_died_is_gone_on_with(world: World) -> None:
    one = event("a")
    await world.lay(one, targets())
    await end(world, one, LEFT)
    await end(world, one, RIGHT)
    taken = await world.take(one, "victim", RIGHT)
    assert await world.settle(taken, "victim", Gone()) == [True]
    before = await world.deletion(one)
    assert await world.settle(taken, "victim", Gone()) == [False]
    assert await world.deletion(one) == before
    outside = Outside()
    await world.start(outside)
    await world.until_done(one)
    assert outside.called == ["check", "look again"]


async def test_what_is_abandoned_before_it_opened_keeps_it_from_nothing(world: World) -> None:
    one, outside = event("a"), Outside()
    jobs = await world.lay(one, targets())
    assert await world.shard(one).abandon(jobs["later"], "tests") == "abandoned"
    assert await world.shard(one).abandon(jobs["check"], "tests") == "abandoned"
    assert not await world.members("opening")
    await end(world, one, LEFT)
    await tidy_later(world)
    assert not await world.queue(LAST)
    await world.start(outside)
    await world.until_done(one)
    assert outside.called == ["right", "look again"]


async def test_all_of_it_may_be_abandoned_and_the_release_still_waits_for_the_rest(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, targets())
    for target in ("check", "look again"):
        assert await world.shard(one).abandon(jobs[target], "tests") == "abandoned"
    await end(world, one, LEFT)
    await end(world, one, RIGHT)
    await tidy_later(world)
    assert await world.state(one) == "running"
    await end(world, one, RIGHT)
    assert await world.state(one) == "releasing"
    assert list(await world.queue(RELEASE)) == [(await world.jobs_of(one))[-1]]


async def test_a_retry_does_not_bring_it_forward(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, targets())
    assert await world.shard(one).retry(jobs["check"], "tests") == "waiting"
    assert not await world.queue(LAST)


@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "open"])
async def test_a_withdrawn_deletion_does_not_come_to_it(world: World, begun: bool) -> None:
    one, outside = event("a"), Outside()
    await world.lay(one, targets())
    if begun:
        for lane in (LEFT, RIGHT, RIGHT):
            await end(world, one, lane)
    assert await withdraw(world.installation, one.deletion, "for a test")
    assert (await world.deletion(one))["abandoned"] == ("2" if begun else "5")
    assert not await world.queue(LAST)
    await world.start(outside)
    await world.until_done(one)
    assert not outside.calls


async def test_a_withdrawal_that_stops_halfway_opens_nothing_of_it(world: World) -> None:
    one, outside = event("a"), Outside()
    await world.lay(one, targets())
    shard = world.shard(one)
    assert await shard.withdraw(one.deletion, "for a test", 2) == ("withdrawn", 1)
    for lane in (LEFT, RIGHT):
        await end(world, one, lane)
    await world.start(outside)
    await world.until_done(one)
    assert set(outside.called) <= {"later"}


async def test_a_lost_record_of_it_has_all_planned_anew_and_it_waits_again(world: World) -> None:
    outside = Outside()
    going = outside.has("a", targets())
    jobs = await world.lay(going, targets())
    plan, _, number = jobs["check"].rpartition(".")
    assert await world.client.hdel(f"{world.shard(going).stem}job:{plan}", number) == 1
    for lane in (LEFT, RIGHT, RIGHT):
        await end(world, going, lane)
    for _ in range(2):
        await tidy_later(world)
    assert await world.decisions("planned anew") == [going.deletion]
    await world.start(outside)
    await world.until_done(going)
    first = outside.called.index("check")
    assert set(outside.called[:first]) == {"left", "right", "later"}


async def test_it_is_shown_as_a_chain_of_its_own(world: World) -> None:
    one = event("a")
    await world.lay(one, targets())
    await end(world, one, LEFT)
    told = await story(world.installation, one.deletion)
    assert told is not None
    shown = [(stage.chain, stage.jobs, stage.left, stage.opened_at is not None, stage.release) for stage in told.stages]
    assert shown == [
        ("a-left", 1, 0, True, False),
        ("z-right", 1, 1, True, False),
        ("z-right", 1, 1, False, False),
        (FINALLY, 1, 1, False, False),
        (FINALLY, 1, 1, False, False),
        ("release", 1, 1, False, True),
    ]
    assert {job.target: job.state for job in told.jobs}["check"] == "waiting"


def test_an_arranged_plan_names_it_only_where_there_is_something_to_wait_for() -> None:
    one = event("a")
    whole = arrange(one, targets(), GRACE)
    assert (whole.chains, whole.finale, whole.release) == (3, 3, 5)
    assert [first for _, _, first in whole.stages] == [1, 1, 0, 0, 0, 0]
    (row,) = rows(one, "1-1", whole)
    assert row.last == f"5 {RELEASE} 1 3"
    alone = arrange(one, [target for target in targets() if target.chain == FINALLY], GRACE)
    assert (alone.chains, alone.finale, alone.release) == (1, None, 2)
    (row,) = rows(one, "1-1", alone)
    assert row.last == f"2 {RELEASE} 1"


@pytest.mark.invariant(4)
async def test_a_stage_that_ended_while_it_was_being_opened_does_not_end_again(world: World) -> None:
    one = event("a")
    late = [thing(f"late{number}", chain="a", stage=1) for number in range(3)]
    jobs = await world.lay(one, [thing("first", chain="a"), *late, thing("other", RIGHT, chain="z")])
    shard = world.shard(one)
    assert await shard.abandon(jobs["late2"], "tests") == "abandoned"
    await world.settle(await world.take(one, "w", LANE), "w", Gone())
    assert (await shard.open(2))[1] == 1
    await world.settle(await world.take(one, "w", LANE), "w", Gone())
    while (await shard.open(2))[1]:
        pass
    # The other chain has its job still to do.
    record = await world.deletion(one)
    assert (record["state"], record["chains_left"]) == ("running", "1")
