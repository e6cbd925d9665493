"""Pauses by operators and by budgets: honoured before the next destructive call, and without a burst afterwards."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Job, Limit, Pause, Throttled, Verdict
from service.engine.budgets import LimitFeedback
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.handlers.protocol import Batch


async def pause(engine: EngineUnderTest, lane: str, *, stop: bool = True) -> None:
    for shard in engine.installation.shards:
        await shard.pause(lane, stop=stop, who="tests")


PAUSE = timedelta(seconds=1)


class AttemptsBeforeCall(ScriptedProvider):
    """Attempts that wait in front of their destructive call until the test releases them."""

    def hold(self) -> tuple[asyncio.Event, asyncio.Event]:
        arrived, free = asyncio.Event(), asyncio.Event()

        async def wait(job: Job, batch: Batch) -> Verdict:
            arrived.set()
            await free.wait()
            await self.call(job, batch)
            return Gone()

        self.always = wait
        return arrived, free


async def test_a_pause_of_everything_takes_nothing_until_it_is_over(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await pause(engine, "*")
    await engine.start(provider)
    await engine.publish(one)

    async def planned() -> bool:
        return await engine.state(one) == "running"

    await engine.until("it is planned: planning only reads", planned)

    async def untouched() -> bool:
        return not provider.calls and not await engine.leases(LANE)

    await engine.stays("nothing is taken", untouched, timedelta(milliseconds=300))
    await pause(engine, "*", stop=False)
    await engine.until_done(one)
    assert set(await engine.decisions("paused")) == {"*"}
    assert set(await engine.decisions("resumed")) == {"*"}


async def test_a_paused_lane_leaves_the_others_alone(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await pause(engine, "sim/acct/stopped")
    await engine.lay(one, [thing("stopped", "sim/acct/stopped"), thing("free", "sim/acct/free")])
    await engine.start(provider)

    async def gone() -> bool:
        return "free" in provider.called

    await engine.until("the other lane is served", gone)

    async def untouched() -> bool:
        return provider.called == ["free"]

    await engine.stays("the paused lane is not", untouched, timedelta(milliseconds=200))
    await pause(engine, "sim/acct/stopped", stop=False)
    await engine.until_done(one)


async def test_a_job_already_taken_looks_at_the_pause_again_before_it_calls(engine: EngineUnderTest) -> None:
    provider, one = AttemptsBeforeCall(), event("a")
    arrived, free = provider.hold()
    job = (await engine.lay(one, [thing("one")]))["one"]
    await engine.start(provider)
    await arrived.wait()
    await pause(engine, LANE)
    free.set()

    async def back() -> bool:
        return job in await engine.queue(LANE)

    await engine.until("it is handed back", back)
    assert not provider.calls
    assert (await engine.job(job)).get("attempts", "0") == "0"
    assert any("back: paused by hand" in entry for entry in await engine.audit("outcome"))
    await pause(engine, LANE, stop=False)
    await engine.until_done(one)
    assert provider.called == ["one"]


async def test_a_pause_that_another_worker_heard_of_stops_a_job_before_its_call(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 100, 100)
    provider, one = AttemptsBeforeCall(draws_on=lambda lane: (Draw(limit),)), event("a")
    arrived, free = provider.hold()
    job = (await engine.lay(one, [thing("one")]))["one"]
    await engine.start(provider)
    await arrived.wait()
    told = await engine.now()
    await engine.installation.budgets.correct("sim/acct", [LimitFeedback(limit, 1, pause=60_000)])
    free.set()

    async def back() -> bool:
        return job in await engine.queue(LANE)

    await engine.until("it is handed back", back)
    assert not provider.calls
    # It comes when the pause is over, and its token is not returned: after a pause the bucket starts empty.
    record = await engine.job(job)
    assert (await engine.queue(LANE))[job] - told > 58_000
    assert float(record["due"]) - float(record["last_at"]) <= 60_500
    assert float((await engine.budget())["calls|tokens"]) == 0
    await engine.jump(timedelta(seconds=62))
    await engine.until_done(one)


async def test_a_pause_named_here_holds_here_at_once_and_only_for_its_account(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 100, 100)
    provider, order = ScriptedProvider(draws_on=lambda lane: (Draw(limit),)), asyncio.Event()

    async def tells(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        batch.report_quota(Pause("calls", PAUSE))
        order.set()
        return Gone()

    async def after(job: Job, batch: Batch) -> Verdict:
        await order.wait()
        await provider.call(job, batch)
        return Gone()

    provider.answers["first"] = [tells]
    # A list each: whoever comes first would else take the answer of the other.
    provider.answers["second"], provider.answers["other account"] = [after], [after]
    one, other = event("a"), event("b")
    await engine.lay(one, [thing("first"), thing("second")])
    elsewhere = (await engine.lay(other, [thing("other account", "sim/else/delete")]))["other account"]
    await engine.start(provider)
    await engine.until_done(other)
    await engine.until_done(one)
    assert sorted(provider.called) == ["first", "other account", "second"]
    # The other was called the first time that it was taken.
    assert len([entry for entry in await engine.audit("intent") if elsewhere in entry["jobs"]]) == 1
    first, second = (next(call for call in provider.calls if call.target == name) for name in ("first", "second"))
    assert second.at - first.at >= PAUSE.total_seconds()


@pytest.mark.long
async def test_after_a_pause_the_bucket_starts_empty_and_there_is_no_burst(engine: EngineUnderTest) -> None:
    rate, pause, in_hand = 50.0, 3.0, 2.0
    limit = Limit.bucket("calls", 40, rate)
    provider = ScriptedProvider(draws_on=lambda lane: (Draw(limit),))
    provider.answers["t0"] = [Throttled(timedelta(seconds=pause))]
    one = event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(60)])
    await engine.start(provider, batch=1)
    await engine.start(provider, batch=1)

    async def throttled() -> bool:
        return (await engine.stats()).get("throttled", 0) >= 1

    await engine.until("the provider has refused", throttled)
    told = next(call.at for call in provider.calls if call.target == "t0")
    await engine.until_done(one)
    # What was already past its last look when the answer came is called all the same.
    later = sorted(call.at - told for call in provider.calls if call.at > told + in_hand)
    # Until the end of the pause nothing is called; then as tokens come.
    for count, at in enumerate(later, 1):
        assert at >= pause - 0.01
        assert count <= rate * (at - pause) + 2
    assert len(later) > 10


async def test_only_the_job_waits_if_the_budget_itself_had_nothing_left(
    engine: EngineUnderTest,
) -> None:
    """The provider has refused nothing: others that draw on the same limit go on."""
    limit, late = Limit.bucket("calls", 40, 50.0), timedelta(hours=1)
    provider = ScriptedProvider(draws_on=lambda lane: (Draw(limit),))
    provider.answers["t0"] = [Throttled(late, "no room", unasked=True)]
    one, other = event("a"), event("b")
    await engine.lay(one, [thing("t0")])
    await engine.start(provider)

    async def waits() -> bool:
        return (await engine.stats()).get("throttled", 0) >= 1

    await engine.until("it waits", waits)
    await engine.publish(other)
    await engine.until_done(other)
    assert await engine.state(one) == "running"
    await engine.jump(late)
    await engine.until_done(one)


async def test_a_pause_lasts_over_a_restart_of_the_workers(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await engine.lay(one, [thing("one")])
    await pause(engine, LANE)
    running = await engine.start(provider)
    await running.stop()
    await engine.start(provider)

    async def untouched() -> bool:
        return not provider.calls

    await engine.stays("nothing is called", untouched, timedelta(milliseconds=300))
    await pause(engine, LANE, stop=False)
    await engine.until_done(one)


async def test_tokens_of_a_call_that_was_not_made_are_given_back_and_those_of_one_under_way_are_not(
    engine: EngineUnderTest,
) -> None:
    limit = Limit.bucket("calls", 10, 10 / 36_000)
    provider, begun = ScriptedProvider(draws_on=lambda lane: (Draw(limit),)), list[str]()

    async def calling(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        begun.append(job.target)
        await asyncio.Event().wait()
        return Gone()

    async def waiting(job: Job, batch: Batch) -> Verdict:
        begun.append(job.target)
        await asyncio.Event().wait()
        return Gone()

    provider.answers["calling"], provider.answers["waiting"] = [calling], [waiting]
    one = event("a")
    await engine.lay(one, [thing("calling"), thing("waiting")])
    running = await engine.start(provider, grace=timedelta(0))

    async def both() -> bool:
        return len(begun) == 2

    await engine.until("both are under way", both)
    assert float((await engine.budget())["calls|tokens"]) < 8.1
    await running.stop()
    assert 9 <= float((await engine.budget())["calls|tokens"]) < 9.1
