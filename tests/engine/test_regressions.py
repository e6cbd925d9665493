"""Regressions: large settles, malicious events, verdicts that can't be encoded, shortened pauses."""

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
from service.engine.budgets import LimitFeedback, ReservationRequest
from service.engine.script_arguments import LaneRequest, UnplannedEvent
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.handlers.protocol import Batch

SECOND = timedelta(seconds=1)


async def test_a_settle_of_a_thousand_deletions_strands_none(engine: EngineUnderTest) -> None:
    shard = engine.shard(first := event("0"))
    events = [first, *(engine.beside(first, f"n{number}-") for number in range(999))]
    for one in events:
        await engine.publish(one)
    await engine.start(ScriptedProvider(), concurrency=2000, lane_cap=2000, batch=1000)
    await engine.until_done(*events)
    assert await engine.members("open") == {}
    assert await shard.caller.command("ZCARD", shard.stem + "finished") == 1000


@pytest.mark.parametrize(
    "poison", [{"round": str(2**70)}, {"at": str(2**70)}, {"v": "9" * 5000}, {"v": "\u0663"}, {"uid": "two words"}]
)
async def test_an_event_with_a_number_no_server_could_hold_is_held_and_the_stream_goes_on(
    engine: EngineUnderTest, poison: dict[str, str]
) -> None:
    good = event("good")
    await engine.start(ScriptedProvider())
    fields: dict[str, Any] = {**{name: str(value) for name, value in event("bad").fields().items()}, **poison}
    with pytest.raises((Undecodable, ValueError)):
        decode_event({name.encode(): value.encode() for name, value in fields.items()})
    await engine.client.xadd(engine.shard(good).stem + "events", fields)
    await engine.publish(good)
    await engine.until_done(good)

    async def held() -> bool:
        return len(await engine.members("held")) == 1

    await engine.until("the bad one is held", held)
    assert await engine.pending() == 0


async def test_a_planning_error_that_passes_needs_no_person(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    engine.change("retry", base=timedelta(milliseconds=10))
    provider.plans["a"] = RuntimeError("503")
    await engine.start(provider)
    await engine.publish(one)

    async def held() -> bool:
        # In one look: it is planned again and again.
        return "503" in (await engine.deletion(one)).get("held", "")

    await engine.until("it is held", held)
    provider.plans["a"] = Plan([thing("one")])
    await engine.jump(timedelta(minutes=6))
    await engine.tidy()
    await engine.until_done(one)
    assert await engine.members("held") == {}


async def test_what_a_planner_holds_on_purpose_waits_for_a_person(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = Hold("an unknown policy value")
    await engine.start(provider)
    await engine.publish(one)

    async def held() -> bool:
        return await engine.state(one) == "held"

    await engine.until("it is held", held)
    await engine.jump(timedelta(hours=1))
    await engine.tidy()
    assert provider.planned == ["a"]
    assert await engine.state(one) == "held"


async def test_a_planner_that_hangs_is_given_up_and_others_are_planned(engine: EngineUnderTest) -> None:
    provider, one, two = ScriptedProvider(), event("a"), event("b")

    async def hang(_: Event) -> Plan:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    provider.plans["a"] = hang
    await engine.start(provider, plan_timeout=timedelta(milliseconds=300))
    await engine.publish(one, two)

    async def held() -> bool:
        return "TimeoutError" in (await engine.deletion(one)).get("held", "")

    await engine.until("the hanging one is held", held)
    await engine.until_done(two)


async def test_a_verdict_that_can_not_be_written_is_a_failed_attempt(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    engine.change("retry", base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))
    provider.plans["a"] = Plan([thing("words"), thing("nothing"), thing("raised")])

    async def nothing(job: Job, batch: Batch) -> Verdict:
        return None  # type: ignore[return-value]  # what a careless handler may do

    provider.answers["words"] = [Blocked("\ud800 used by another", until=timedelta(0))]
    provider.answers["nothing"] = [nothing]
    provider.answers["raised"] = [RuntimeError("\ud800")]
    await engine.start(provider)
    await engine.publish(one)
    await engine.until_done(one)
    jobs = {job["target"]: job for name in await engine.jobs_of(one) for job in [await engine.job(name)]}
    assert jobs["words"]["state"] == jobs["nothing"]["state"] == jobs["raised"]["state"] == "gone"
    assert "can't be written down" in jobs["nothing"]["first_error"]


@pytest.mark.invariant(12)
async def test_no_credential_of_a_providers_words_is_kept(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    engine.change("retry", base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))
    provider.plans["a"] = Plan([thing("t")])
    provider.answers["t"] = [RuntimeError("GET https://x.example/op?sig=s3cr3t&t=1 failed, password=hunter2")]
    await engine.start(provider)
    await engine.publish(one)
    await engine.until_done(one)
    (name, *_) = await engine.jobs_of(one)
    everything = str(await engine.job(name)) + str(await engine.audit())
    assert "failed" in everything
    assert "s3cr3t" not in everything
    assert "hunter2" not in everything


@pytest.mark.parametrize(
    "lane", ["sim/a/b\tc", "sim/a/b\rc", "sim/a/b\x0bc", "sim/a/b c", "sim/a/op:urgent", "sim/a/{b}"]
)
def test_a_lane_whose_name_would_be_misread_is_refused(lane: str) -> None:
    assert lane_fault(lane) is not None


async def test_a_pause_lasts_as_long_as_requested_however_old_other_reports_are(engine: EngineUnderTest) -> None:
    await engine.arrive()
    limit = Limit.bucket("calls", 10, 10)
    before = await engine.now()
    await engine.installation.budgets.correct("sim/acct", [LimitFeedback(limit, 1, remaining=3, age=800, pause=1000)])
    paused = float((await engine.budget())["calls|pause"])
    assert paused >= before + 1000


async def test_a_call_that_costs_two_tokens_is_answered_as_two(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    limit = Limit.bucket("calls", 100, 1)
    provider.draws_on = lambda lane: (Draw(limit, 2.0),)
    provider.plans["a"] = Plan([thing(f"t{number}") for number in range(5)])

    async def told(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        batch.report_quota(Remaining("calls", 50))
        return Gone()

    provider.always = told
    await engine.start(provider)
    await engine.publish(one)
    await engine.until_done(one)

    async def settled() -> bool:
        return float((await engine.budget())["calls|out"]) == 0

    await engine.until("nothing counts as under way", settled)


async def test_a_suspect_job_with_an_empty_budget_blocks_no_other_job(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    other = engine.beside(one, "other")
    limit = Limit.bucket("scarce", 1, 0.0001)
    provider.draws_on = lambda lane: (Draw(limit),) if lane == "sim/acct/scarce" else ()
    job = (await engine.lay(one, [thing("suspect", "sim/acct/scarce")]))["suspect"]
    await engine.take(one, "dead", "sim/acct/scarce")
    await engine.jump(timedelta(minutes=10))
    await engine.shard(one).reclaim(silence=SECOND)
    assert list(await engine.members("alone")) == [job]
    spent = await engine.installation.budgets.reserve(
        "sim/acct", 0.1, [ReservationRequest("sim/acct/scarce", 1, 1, 0, (Draw(limit),))]
    )
    assert spent.grants[0].urgent == 1
    worker = await engine.start(provider)
    provider.plans[other.uid] = Plan([thing(f"t{number}") for number in range(50)])
    await engine.publish(other)
    await engine.until_done(other)
    assert list(await engine.members("alone")) == [job]
    assert worker.worker.slots.may_run_alone()


async def test_a_kept_event_with_thousands_of_fields_does_not_stop_the_janitor(engine: EngineUnderTest) -> None:
    await engine.arrive()
    shard = engine.installation.shards[0]
    wide = {"v": "2", **{f"f{number}": "x" for number in range(3000)}}
    entry = (await engine.client.xadd(shard.stem + "events", wide)).decode()
    await shard.hold([UnplannedEvent(entry, "newer", "too new")])
    await shard.requeue(version=2)
    assert list(await engine.members("newer")) == []
    assert list(await engine.members("held")) == [f"event:{entry}"]


async def test_unknown_jobs_do_not_hide_the_jobs_behind_them(engine: EngineUnderTest) -> None:
    await engine.arrive()
    shard, known = engine.installation.shards[0], event("z")
    for number in range(150):
        entry = await engine.client.xadd(shard.stem + "events", {"v": "7", "n": str(number)})
        await shard.hold([UnplannedEvent(entry.decode(), "newer", "too new")])
    entry = await engine.client.xadd(
        shard.stem + "events", {name: str(v) for name, v in known.fields().items()} | {"v": "2"}
    )
    await shard.hold([UnplannedEvent(entry.decode(), "newer", "too new")])
    for _ in range(20):
        await shard.requeue(version=2)
    assert len(await engine.members("newer")) == 150
    assert len(await engine.entries()) == 1


async def test_a_timeout_raised_by_the_handler_is_reported_as_it_is(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    engine.change("retry", base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))
    provider.plans["a"] = Plan([thing("t")])
    provider.answers["t"] = [TimeoutError("connect took 2 s")]
    await engine.start(provider)
    await engine.publish(one)
    await engine.until_done(one)
    (name, *_) = await engine.jobs_of(one)
    assert (await engine.job(name))["first_error"] == "TimeoutError: connect took 2 s"


async def test_a_take_that_fails_takes_nothing_out_of_its_lane(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(3)])
    shard = engine.shard(one)
    lane = f"{shard.stem}lane:{LANE}:urgent"
    await engine.client.zadd(lane, {"no-id-of-ours": 1})
    before = await engine.client.zrange(lane, 0, -1)
    assert len(before) == 4
    with pytest.raises(ResponseError):
        await shard.take("w0", SECOND, [LaneRequest(LANE, 10, 10, 100)])
    assert await engine.client.zrange(lane, 0, -1) == before
