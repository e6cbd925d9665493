"""Cases that once went wrong: large settles, events made to kill, verdicts that can't be written, pauses cut short."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ResponseError

from service.contract import (
    Blocked,
    Draw,
    Event,
    Gone,
    Hold,
    Job,
    Limit,
    Plan,
    Remaining,
    Undecodable,
    Verdict,
    decode_event,
)
from service.contract.targets import lane_fault
from service.engine.budgets import Ask, Said
from service.engine.rows import Kept, Want
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from workers.handlers.protocol import Batch

SECOND = timedelta(seconds=1)


async def test_a_settle_of_a_thousand_deletions_strands_none(world: World) -> None:
    shard = world.shard(first := event("0"))
    events = [first, *(world.beside(first, f"n{number}-") for number in range(999))]
    for one in events:
        await world.publish(one)
    await world.start(Outside(), concurrency=2000, lane_cap=2000, batch=1000)
    await world.until_done(*events)
    assert await world.members("open") == {}
    assert await shard.caller.command("ZCARD", shard.stem + "finished") == 1000


@pytest.mark.parametrize(
    "poison", [{"round": str(2**70)}, {"at": str(2**70)}, {"v": "9" * 5000}, {"v": "\u0663"}, {"uid": "two words"}]
)
async def test_an_event_with_a_number_no_server_could_hold_is_held_and_the_stream_goes_on(
    world: World, poison: dict[str, str]
) -> None:
    good = event("good")
    await world.start(Outside())
    fields: dict[str, Any] = {**{name: str(value) for name, value in event("bad").fields().items()}, **poison}
    with pytest.raises((Undecodable, ValueError)):
        decode_event({name.encode(): value.encode() for name, value in fields.items()})
    await world.client.xadd(world.shard(good).stem + "events", fields)
    await world.publish(good)
    await world.until_done(good)

    async def held() -> bool:
        return len(await world.members("held")) == 1

    await world.until("the bad one is held", held)
    assert await world.pending() == 0


async def test_a_planning_error_that_passes_needs_no_person(world: World) -> None:
    outside, one = Outside(), event("a")
    world.change("retry", base=timedelta(milliseconds=10))
    outside.plans["a"] = RuntimeError("503")
    await world.start(outside)
    await world.publish(one)

    async def held() -> bool:
        # In one look: it is planned again and again.
        return "503" in (await world.deletion(one)).get("held", "")

    await world.until("it is held", held)
    outside.plans["a"] = Plan([thing("one")])
    await world.jump(timedelta(minutes=6))
    await world.tidy()
    await world.until_done(one)
    assert await world.members("held") == {}


async def test_what_a_planner_holds_on_purpose_waits_for_a_person(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = Hold("an unknown policy value")
    await world.start(outside)
    await world.publish(one)

    async def held() -> bool:
        return await world.state(one) == "held"

    await world.until("it is held", held)
    await world.jump(timedelta(hours=1))
    await world.tidy()
    assert outside.planned == ["a"]
    assert await world.state(one) == "held"


async def test_a_planner_that_hangs_is_given_up_and_others_are_planned(world: World) -> None:
    outside, one, two = Outside(), event("a"), event("b")

    async def hang(_: Event) -> Plan:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    outside.plans["a"] = hang
    await world.start(outside, plan_timeout=timedelta(milliseconds=300))
    await world.publish(one, two)

    async def held() -> bool:
        return "TimeoutError" in (await world.deletion(one)).get("held", "")

    await world.until("the hanging one is held", held)
    await world.until_done(two)


async def test_a_verdict_that_can_not_be_written_is_a_failed_attempt(world: World) -> None:
    outside, one = Outside(), event("a")
    world.change("retry", base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))
    outside.plans["a"] = Plan([thing("words"), thing("nothing"), thing("raised")])

    async def nothing(job: Job, batch: Batch) -> Verdict:
        return None  # type: ignore[return-value]  # what a careless handler may do

    outside.answers["words"] = [Blocked("\ud800 used by another", until=timedelta(0))]
    outside.answers["nothing"] = [nothing]
    outside.answers["raised"] = [RuntimeError("\ud800")]
    await world.start(outside)
    await world.publish(one)
    await world.until_done(one)
    jobs = {job["target"]: job for name in await world.jobs_of(one) for job in [await world.job(name)]}
    assert jobs["words"]["state"] == jobs["nothing"]["state"] == jobs["raised"]["state"] == "gone"
    assert "can't be written down" in jobs["nothing"]["first_error"]


@pytest.mark.invariant(12)
async def test_no_credential_of_a_providers_words_is_kept(world: World) -> None:
    outside, one = Outside(), event("a")
    world.change("retry", base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))
    outside.plans["a"] = Plan([thing("t")])
    outside.answers["t"] = [RuntimeError("GET https://x.example/op?sig=s3cr3t&t=1 failed, password=hunter2")]
    await world.start(outside)
    await world.publish(one)
    await world.until_done(one)
    (name, *_) = await world.jobs_of(one)
    everything = str(await world.job(name)) + str(await world.audit())
    assert "failed" in everything
    assert "s3cr3t" not in everything
    assert "hunter2" not in everything


@pytest.mark.parametrize(
    "lane", ["sim/a/b\tc", "sim/a/b\rc", "sim/a/b\x0bc", "sim/a/b c", "sim/a/op:urgent", "sim/a/{b}"]
)
def test_a_lane_whose_name_would_be_misread_is_refused(lane: str) -> None:
    assert lane_fault(lane) is not None


async def test_a_pause_lasts_as_long_as_it_was_told_however_old_the_other_news_is(world: World) -> None:
    await world.arrive()
    limit = Limit.bucket("calls", 10, 10)
    before = await world.now()
    await world.installation.budgets.correct("sim/acct", [Said(limit, 1, remaining=3, age=800, pause=1000)])
    paused = float((await world.budget())["calls|pause"])
    assert paused >= before + 1000


async def test_a_call_that_costs_two_tokens_is_answered_as_two(world: World) -> None:
    outside, one = Outside(), event("a")
    limit = Limit.bucket("calls", 100, 1)
    outside.draws_on = lambda lane: (Draw(limit, 2.0),)
    outside.plans["a"] = Plan([thing(f"t{number}") for number in range(5)])

    async def told(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        batch.tell(Remaining("calls", 50))
        return Gone()

    outside.always = told
    await world.start(outside)
    await world.publish(one)
    await world.until_done(one)

    async def settled() -> bool:
        return float((await world.budget())["calls|out"]) == 0

    await world.until("nothing counts as under way", settled)


async def test_a_suspect_whose_budget_is_dry_holds_up_nobody_else(world: World) -> None:
    outside, one = Outside(), event("a")
    other = world.beside(one, "other")
    limit = Limit.bucket("scarce", 1, 0.0001)
    outside.draws_on = lambda lane: (Draw(limit),) if lane == "sim/acct/scarce" else ()
    job = (await world.lay(one, [thing("suspect", "sim/acct/scarce")]))["suspect"]
    await world.take(one, "dead", "sim/acct/scarce")
    await world.jump(timedelta(minutes=10))
    await world.shard(one).reclaim(silence=SECOND)
    assert list(await world.members("alone")) == [job]
    spent = await world.installation.budgets.reserve("sim/acct", 0.1, [Ask("sim/acct/scarce", 1, 1, 0, (Draw(limit),))])
    assert spent.grants[0].urgent == 1
    worker = await world.start(outside)
    outside.plans[other.uid] = Plan([thing(f"t{number}") for number in range(50)])
    await world.publish(other)
    await world.until_done(other)
    assert list(await world.members("alone")) == [job]
    assert worker.worker.crew.may_work_alone()


async def test_a_kept_event_with_thousands_of_fields_does_not_stop_the_janitor(world: World) -> None:
    await world.arrive()
    shard = world.installation.shards[0]
    wide = {"v": "2", **{f"f{number}": "x" for number in range(3000)}}
    entry = (await world.client.xadd(shard.stem + "events", wide)).decode()
    await shard.hold([Kept(entry, "newer", "too new")])
    await shard.requeue(version=2)
    assert list(await world.members("newer")) == []
    assert list(await world.members("held")) == [f"event:{entry}"]


async def test_what_nobody_knows_does_not_hide_what_stands_behind_it(world: World) -> None:
    await world.arrive()
    shard, known = world.installation.shards[0], event("z")
    for number in range(150):
        entry = await world.client.xadd(shard.stem + "events", {"v": "7", "n": str(number)})
        await shard.hold([Kept(entry.decode(), "newer", "too new")])
    entry = await world.client.xadd(
        shard.stem + "events", {name: str(v) for name, v in known.fields().items()} | {"v": "2"}
    )
    await shard.hold([Kept(entry.decode(), "newer", "too new")])
    for _ in range(20):
        await shard.requeue(version=2)
    assert len(await world.members("newer")) == 150
    assert len(await world.entries()) == 1


async def test_a_timeout_of_the_handlers_own_is_told_as_it_is(world: World) -> None:
    outside, one = Outside(), event("a")
    world.change("retry", base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))
    outside.plans["a"] = Plan([thing("t")])
    outside.answers["t"] = [TimeoutError("connect took 2 s")]
    await world.start(outside)
    await world.publish(one)
    await world.until_done(one)
    (name, *_) = await world.jobs_of(one)
    assert (await world.job(name))["first_error"] == "TimeoutError: connect took 2 s"


async def test_a_take_that_fails_takes_nothing_out_of_its_lane(world: World) -> None:
    one = event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(3)])
    shard = world.shard(one)
    lane = f"{shard.stem}lane:{LANE}:urgent"
    await world.client.zadd(lane, {"no-id-of-ours": 1})
    before = await world.client.zrange(lane, 0, -1)
    assert len(before) == 4
    with pytest.raises(ResponseError):
        await shard.take("w0", SECOND, [Want(LANE, 10, 10, 100)])
    assert await world.client.zrange(lane, 0, -1) == before
