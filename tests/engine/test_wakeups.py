"""Wake-ups: idle workers do not poll the server, and none sleeps past due work."""

import asyncio
import time
from datetime import timedelta

import pytest

from service.contract import Blocked, Draw, Gone, Job, Limit, Pending, Remaining, Verdict
from service.engine.budgets import LimitFeedback, ReservationRequest
from tests.engine.engine_under_test import EngineUnderTest, RunningWorker
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.engine.waiting import STEP
from workers.handlers.protocol import Batch
from workers.runtime.attempt_loop import LONGEST_SLEEP

MS = timedelta(milliseconds=1)
WOKEN = timedelta(seconds=LONGEST_SLEEP - 5)
"""Who was not woken is still asleep then."""


async def asleep(engine: EngineUnderTest, *workers: RunningWorker) -> None:
    """Until no worker has looked for work for longer than a lane is reserved for one that looked. Turns of the loop are
    counted, not time: in a process that was held up no worker could have looked."""
    seen, turns = -1, 0

    async def quiet() -> bool:
        nonlocal seen, turns
        looks = sum(running.moves["due_lanes"] for running in workers)
        seen, turns = looks, turns + 1 if looks == seen else 0
        return looks > 0 and turns * STEP > 0.8

    await engine.until("all workers sleep", quiet)


async def test_idle_workers_do_not_poll(engine: EngineUnderTest) -> None:
    workers = [await engine.start() for _ in range(3)]
    one = event("a")
    await engine.publish(one)
    await engine.until_done(one)
    await asleep(engine, *workers)
    before = [(running.moves.copy(), running.trips.copy()) for running in workers]
    begun = time.monotonic()

    async def later() -> float:
        return max(0.0, time.monotonic() - begun - 2.5)

    passed = 2.5 + await engine.until("some time has passed", later)
    moves = dict.fromkeys(("due_lanes", "take", "reserve", "settle"), 0)
    trips = 0
    for running, (earlier, sent) in zip(workers, before, strict=True):
        trips += (running.trips - sent).total()
        for name in moves:
            moves[name] += running.moves[name] - earlier[name]
    assert moves == {"due_lanes": 0, "take": 0, "reserve": 0, "settle": 0}
    # One janitor for each shard keeps house: a handful of small steps a second, and the others ask for its turn.
    shards = len(engine.installation.shards)
    assert trips / passed <= shards * (12 + 3 * len(workers))


@pytest.mark.every_server
async def test_an_event_wakes_a_worker_that_sleeps_until_something_far_off(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    far = engine.beside(one, "far")
    await engine.lay(far, [thing("far", after=timedelta(hours=1))])
    provider.has("a", [thing("one")])
    running = await engine.start(provider)
    await asleep(engine, running)
    await engine.publish(one)
    await engine.until_done(one, within=WOKEN)
    assert provider.called == ["one"]


async def test_a_job_that_becomes_due_before_the_end_of_a_sleep_ends_it_and_runs_no_earlier(
    engine: EngineUnderTest,
) -> None:
    provider = ScriptedProvider()
    running = await engine.start(provider)
    await asleep(engine, running)
    one = event("a")
    provider.has("a", [thing("one", after=timedelta(milliseconds=700))])
    await engine.publish(one)
    await engine.until_done(one, within=WOKEN)
    job, *_ = await engine.jobs_of(one)
    done = int((await engine.job(job))["last_at"])
    planned = int((await engine.deletion(one))["planned_at"])
    assert done - planned >= 700


async def test_a_retry_by_hand_wakes_a_sleeper(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.answers["one"] = [Blocked("in use", timedelta(hours=1))]
    job = (await engine.lay(one, [thing("one")]))["one"]
    running = await engine.start(provider)

    async def blocked() -> bool:
        return (await engine.job(job)).get("verdict") == "blocked"

    await engine.until("it waits", blocked)
    await asleep(engine, running)
    assert await engine.shard(one).retry(job, "tests") == "due"
    await engine.until_done(one, within=WOKEN)


async def test_the_next_stage_wakes_idle_workers(engine: EngineUnderTest) -> None:
    """The worker that ends a stage may be full: the others have to hear of the next one."""
    provider = ScriptedProvider()
    provider.answers["one"] = [Pending(timedelta(milliseconds=300))]
    one = event("a")
    await engine.lay(one, [thing("one"), thing("two", stage=1)])
    workers = [await engine.start(provider) for _ in range(2)]
    await engine.until_done(one, within=WOKEN)
    assert provider.called == ["one", "one", "two"]
    assert sum(running.moves["open_stages"] for running in workers) >= 1


async def test_a_worker_that_dies_right_after_a_wake_up_delays_no_other(engine: EngineUnderTest) -> None:
    """It woke, looked, set the lane aside for itself for a moment, and was killed before it took anything."""
    provider = ScriptedProvider()
    one = event("a")
    await engine.lay(one, [thing("one")])
    look = await engine.shard(one).due_lanes(10)
    assert [lane.name for lane in look.lanes] == [LANE]
    await engine.start(provider)
    await engine.until_done(one, within=WOKEN)


async def test_a_wake_up_reaches_all_workers_even_if_one_of_them_dies(engine: EngineUnderTest) -> None:
    provider, soon = ScriptedProvider(), timedelta(seconds=1)
    engine.change("worker", plan_claim=soon, lease=5 * soon, attempt_timeout=4 * soon)
    doomed, other = await engine.start(provider), await engine.start(provider)
    await asleep(engine, doomed, other)
    for number in range(5):
        one = event(f"e{number}")
        provider.has(one.uid, [thing(f"t{number}")])
        await engine.publish(one)
        if number == 2:
            await doomed.crash()
        await engine.until_done(one, within=WOKEN)


async def test_blocking_reads_take_no_connection_from_the_pool(engine: EngineUnderTest) -> None:
    engine.change("redis", max_connections=2, call_timeout=timedelta(seconds=2))
    provider = ScriptedProvider()
    events = [provider.has(f"e{number}", [thing(f"{number}-{i}") for i in range(20)]) for number in range(20)]
    running = await engine.start(provider)
    assert running.installation.settings.redis.max_connections == 2
    await engine.publish(*events)
    await engine.until_done(*events)
    assert len(provider.calls) == 400
    assert running.installation.caller.unavailable_since is None


async def test_no_worker_sleeps_past_the_job_that_is_due_first(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    waits = {"late": 3_600_000, "early": 200, "middle": 1_800_000}
    provider.has("a", [thing(name, f"sim/acct/{name}", after=wait * MS) for name, wait in waits.items()])
    await engine.start(provider)
    await engine.publish(one)
    for number, name in enumerate(("early", "middle", "late"), 1):

        async def called(number: int = number) -> bool:
            return len(provider.calls) == number

        await engine.until(f"{name} was called", called, WOKEN)
        assert provider.called[-1] == name
        await engine.jump(1_800_000 * MS)
    await engine.until_done(one)
    planned = int((await engine.deletion(one))["planned_at"])
    for job, target in await engine.targets_of(one):
        if target in waits:
            assert int((await engine.job(job))["last_at"]) - planned >= waits[target]
    assert not await engine.queue(LANE)


async def test_tokens_that_are_there_earlier_than_was_said_wake_the_lanes_that_waited_for_them(
    engine: EngineUnderTest,
) -> None:
    limit = Limit.bucket("calls", 100, 100 / 360_000)
    provider, free = ScriptedProvider(draws_on=lambda lane: (Draw(limit),)), asyncio.Event()

    async def tells(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        await free.wait()
        batch.report_quota(Remaining("calls", 50))
        return Gone()

    provider.answers["first"] = [tells]
    asks = [ReservationRequest(LANE, 99, 99, 0, (Draw(limit),))]
    await engine.installation.budgets.reserve("sim/acct", 0.1, asks)
    await engine.installation.budgets.correct("sim/acct", [LimitFeedback(limit, answered=99, remaining=1)])
    first, others = event("first"), [event(f"e{number}") for number in range(4)]
    await engine.lay(first, [thing("first", "sim/acct/first")])
    running = await engine.start(provider)

    async def used() -> bool:
        return provider.called == ["first"]

    await engine.until("the last token is used", used)
    await engine.publish(*others)

    async def dry() -> bool:
        now = await engine.now()
        lanes = [
            await engine.client.zscore(f"{shard.stem}lanes", LANE)
            for shard in {engine.shard(one).number: engine.shard(one) for one in others}.values()
        ]
        return all(score is not None and score > now + 60_000 for score in lanes)

    await engine.until("the others wait for an hour", dry)
    await asleep(engine, running)
    free.set()
    await engine.until_done(first, *others, within=WOKEN)
