"""The chain `finally`: it waits for all other chains, and the release waits for it."""

from datetime import timedelta

import pytest

from service.contract import FINALLY, Event, Gone, Pending, Target
from service.engine.plan_layout import lay_out_plan
from service.engine.script_arguments import CHUNK, plan_rows
from service.engine.views.deletions import deletion_details
from service.engine.withdrawal import withdraw
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

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


async def end(engine: EngineUnderTest, one: Event, lane: str) -> None:
    """What is due in a lane is taken and gone; what that opens is opened."""
    taken = await engine.take(one, "hand", lane)
    assert [len(found.jobs) for found in taken.lanes] == [1]
    assert await engine.settle(taken, "hand", Gone()) == [True]
    while (await engine.shard(one).open_stages())[1]:
        pass


async def tidy_later(engine: EngineUnderTest) -> None:
    """The janitor leaves alone what was planned a moment ago; what one round finds, the next one opens."""
    await engine.jump(GRACE)
    for _ in range(2):
        await engine.tidy()


@pytest.mark.invariant(4)
async def test_the_last_chain_opens_when_every_other_has_ended_and_the_release_after_it(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    jobs = await engine.lay(one, targets())
    for lane in (RIGHT, LEFT):
        await end(engine, one, lane)
        assert not await engine.queue(LAST)
    await end(engine, one, RIGHT)
    assert list(await engine.queue(LAST)) == [jobs["check"]]
    await end(engine, one, LAST)
    assert list(await engine.queue(LAST)) == [jobs["look again"]]
    assert await engine.state(one) == "running"
    assert not await engine.queue(RELEASE)
    await end(engine, one, LAST)
    assert await engine.state(one) == "releasing"
    await end(engine, one, RELEASE)
    assert await engine.state(one) == "done"


async def test_a_delay_in_the_last_chain_begins_when_that_opens_and_survives_the_loss_of_a_lane(
    engine: EngineUnderTest,
) -> None:
    one, settle = event("a"), timedelta(minutes=1)
    jobs = await engine.lay(one, [thing("left", LEFT, chain="a"), thing("check", LAST, chain=FINALLY, after=settle)])
    # The others took longer than that.
    await engine.jump(2 * settle)
    earliest = await engine.now()
    await end(engine, one, LEFT)
    latest = await engine.now()
    due = (await engine.queue(LAST))[jobs["check"]]
    assert earliest - 1 <= due - settle / timedelta(milliseconds=1) <= latest + 1
    assert int((await engine.job(jobs["check"]))["due"]) == due
    assert not (await engine.take(one, "hand", LAST)).lanes
    before = await engine.queue(LAST)
    assert await engine.client.delete(f"{engine.shard(one).stem}lane:{LAST}:urgent") == 1
    await engine.tidy()
    assert await engine.queue(LAST) == before
    await engine.jump(settle)
    await end(engine, one, LAST)
    assert await engine.state(one) == "releasing"


@pytest.mark.every_server
async def test_workers_carry_it_out_in_that_order(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    provider.answers["left"] = [Pending(timedelta(milliseconds=50))] * 3
    provider.answers["check"] = [Pending(timedelta(milliseconds=1))] * 2
    going = provider.has("a", targets())
    await engine.publish(going)
    for _ in range(2):
        await engine.start(provider)
    await engine.until_done(going)
    first = provider.called.index("check")
    assert set(provider.called[:first]) == {"left", "right", "later"}
    assert provider.called[first:] == ["check", "check", "check", "look again"]


async def test_a_plan_with_nothing_else_begins_with_it(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going = provider.has("a", [target for target in targets() if target.chain == FINALLY])
    jobs = await engine.lay(going, [target for target in targets() if target.chain == FINALLY])
    assert list(await engine.queue(LAST)) == [jobs["check"]]
    await tidy_later(engine)
    assert list(await engine.queue(LAST)) == [jobs["check"]]
    await engine.start(provider)
    await engine.until_done(going)
    assert provider.called == ["check", "look again"]


async def test_of_a_large_plan_it_is_not_opened_with_the_first_stages(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    many = [thing(f"t{number}", LEFT) for number in range(CHUNK + 5)]
    going = provider.has("a", [*many, thing("check", LAST, chain=FINALLY)])
    await engine.lay(going, [*many, thing("check", LAST, chain=FINALLY)])
    assert len(await engine.queue(LEFT)) == len(many)
    assert not await engine.queue(LAST)
    await engine.start(provider, concurrency=500, lane_cap=500)
    await engine.until_done(going)
    assert provider.called.index("check") == len(many)


async def test_the_janitor_opens_it_neither_early_nor_never(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, targets())
    await tidy_later(engine)
    assert not await engine.members("opening")
    assert not await engine.queue(LAST)
    await end(engine, one, LEFT)
    await end(engine, one, RIGHT)
    await tidy_later(engine)
    assert not await engine.queue(LAST)
    taken = await engine.take(one, "hand", RIGHT)
    await engine.settle(taken, "hand", Gone())
    # Whoever settled has died before he could open it, and a hand has done the rest.
    assert await engine.client.delete(engine.shard(one).stem + "opening") == 1
    await tidy_later(engine)
    assert list(await engine.queue(LAST)) == [jobs["check"]]
    assert not await engine.queue(RELEASE)
    provider = ScriptedProvider()
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == ["check", "look again"]


async def test_work_settled_by_a_worker_that_then_died_is_continued(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, targets())
    await end(engine, one, LEFT)
    await end(engine, one, RIGHT)
    taken = await engine.take(one, "victim", RIGHT)
    assert await engine.settle(taken, "victim", Gone()) == [True]
    before = await engine.deletion(one)
    assert await engine.settle(taken, "victim", Gone()) == [False]
    assert await engine.deletion(one) == before
    provider = ScriptedProvider()
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == ["check", "look again"]


async def test_what_is_abandoned_before_it_opened_keeps_it_from_nothing(engine: EngineUnderTest) -> None:
    one, provider = event("a"), ScriptedProvider()
    jobs = await engine.lay(one, targets())
    assert await engine.shard(one).abandon(jobs["later"], "tests") == "abandoned"
    assert await engine.shard(one).abandon(jobs["check"], "tests") == "abandoned"
    assert not await engine.members("opening")
    await end(engine, one, LEFT)
    await tidy_later(engine)
    assert not await engine.queue(LAST)
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == ["right", "look again"]


async def test_all_of_it_may_be_abandoned_and_the_release_still_waits_for_the_rest(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, targets())
    for target in ("check", "look again"):
        assert await engine.shard(one).abandon(jobs[target], "tests") == "abandoned"
    await end(engine, one, LEFT)
    await end(engine, one, RIGHT)
    await tidy_later(engine)
    assert await engine.state(one) == "running"
    await end(engine, one, RIGHT)
    assert await engine.state(one) == "releasing"
    assert list(await engine.queue(RELEASE)) == [(await engine.jobs_of(one))[-1]]


async def test_a_retry_does_not_bring_it_forward(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, targets())
    assert await engine.shard(one).retry(jobs["check"], "tests") == "waiting"
    assert not await engine.queue(LAST)


@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "open"])
async def test_a_withdrawn_deletion_does_not_come_to_it(engine: EngineUnderTest, begun: bool) -> None:
    one, provider = event("a"), ScriptedProvider()
    await engine.lay(one, targets())
    if begun:
        for lane in (LEFT, RIGHT, RIGHT):
            await end(engine, one, lane)
    assert await withdraw(engine.installation, one.deletion, "for a test")
    assert (await engine.deletion(one))["abandoned"] == ("2" if begun else "5")
    assert not await engine.queue(LAST)
    await engine.start(provider)
    await engine.until_done(one)
    assert not provider.calls


async def test_a_withdrawal_that_stops_halfway_opens_nothing_of_it(engine: EngineUnderTest) -> None:
    one, provider = event("a"), ScriptedProvider()
    await engine.lay(one, targets())
    shard = engine.shard(one)
    assert await shard.withdraw(one.deletion, "for a test", 2) == ("withdrawn", 1)
    for lane in (LEFT, RIGHT):
        await end(engine, one, lane)
    await engine.start(provider)
    await engine.until_done(one)
    assert set(provider.called) <= {"later"}


async def test_a_lost_record_of_it_has_all_planned_anew_and_it_waits_again(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going = provider.has("a", targets())
    jobs = await engine.lay(going, targets())
    plan, _, number = jobs["check"].rpartition(".")
    assert await engine.client.hdel(f"{engine.shard(going).stem}job:{plan}", number) == 1
    for lane in (LEFT, RIGHT, RIGHT):
        await end(engine, going, lane)
    for _ in range(2):
        await tidy_later(engine)
    assert await engine.decisions("planned anew") == [going.deletion]
    await engine.start(provider)
    await engine.until_done(going)
    first = provider.called.index("check")
    assert set(provider.called[:first]) == {"left", "right", "later"}


async def test_it_is_shown_as_a_chain_of_its_own(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, targets())
    await end(engine, one, LEFT)
    told = await deletion_details(engine.installation, one.deletion)
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
    whole = lay_out_plan(one, targets(), GRACE)
    assert (whole.chains, whole.finale, whole.release) == (3, 3, 5)
    assert [first for _, _, first in whole.stages] == [1, 1, 0, 0, 0, 0]
    (row,) = plan_rows(one, "1-1", whole)
    assert row.last == f"5 {RELEASE} 1 3"
    alone = lay_out_plan(one, [target for target in targets() if target.chain == FINALLY], GRACE)
    assert (alone.chains, alone.finale, alone.release) == (1, None, 2)
    (row,) = plan_rows(one, "1-1", alone)
    assert row.last == f"2 {RELEASE} 1"


@pytest.mark.invariant(4)
async def test_a_stage_that_ended_while_it_was_being_opened_does_not_end_again(engine: EngineUnderTest) -> None:
    one = event("a")
    late = [thing(f"late{number}", chain="a", stage=1) for number in range(3)]
    jobs = await engine.lay(one, [thing("first", chain="a"), *late, thing("other", RIGHT, chain="z")])
    shard = engine.shard(one)
    assert await shard.abandon(jobs["late2"], "tests") == "abandoned"
    await engine.settle(await engine.take(one, "w", LANE), "w", Gone())
    assert (await shard.open_stages(2))[1] == 1
    await engine.settle(await engine.take(one, "w", LANE), "w", Gone())
    while (await shard.open_stages(2))[1]:
        pass
    # The other chain has its job still to do.
    record = await engine.deletion(one)
    assert (record["state"], record["chains_left"]) == ("running", "1")
