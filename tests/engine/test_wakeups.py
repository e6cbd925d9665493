"""Wake-ups: who sleeps does not ask the server, and nobody sleeps past work that is due."""

import asyncio
import time
from datetime import timedelta

import pytest

from service.contract import Blocked, Draw, Gone, Job, Limit, Pending, Remaining, Verdict
from service.engine.budgets import Ask, Said
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.waiting import STEP
from tests.engine.world import Running, World
from workers.handlers.protocol import Batch
from workers.runtime.attempts import LONGEST_SLEEP

MS = timedelta(milliseconds=1)
WOKEN = timedelta(seconds=LONGEST_SLEEP - 5)
"""Who was not woken is still asleep then."""


async def asleep(world: World, *workers: Running) -> None:
    """Until nobody has looked for work for longer than a lane is set aside for one who looked. Turns of the loop are
    counted, not time: in a process that was held up nobody could have looked."""
    seen, turns = -1, 0

    async def quiet() -> bool:
        nonlocal seen, turns
        looks = sum(running.moves["look"] for running in workers)
        seen, turns = looks, turns + 1 if looks == seen else 0
        return looks > 0 and turns * STEP > 0.8

    await world.until("all workers sleep", quiet)


async def test_idle_workers_do_not_poll(world: World) -> None:
    workers = [await world.start() for _ in range(3)]
    one = event("a")
    await world.publish(one)
    await world.until_done(one)
    await asleep(world, *workers)
    before = [(running.moves.copy(), running.trips.copy()) for running in workers]
    begun = time.monotonic()

    async def later() -> float:
        return max(0.0, time.monotonic() - begun - 2.5)

    passed = 2.5 + await world.until("some time has passed", later)
    moves = dict.fromkeys(("look", "take", "reserve", "settle"), 0)
    trips = 0
    for running, (earlier, sent) in zip(workers, before, strict=True):
        trips += (running.trips - sent).total()
        for name in moves:
            moves[name] += running.moves[name] - earlier[name]
    assert moves == {"look": 0, "take": 0, "reserve": 0, "settle": 0}
    # One janitor for each shard keeps house: a handful of small steps a second, and the others ask for its turn.
    shards = len(world.installation.shards)
    assert trips / passed <= shards * (12 + 3 * len(workers))


@pytest.mark.every_server
async def test_an_event_wakes_a_worker_that_sleeps_until_something_far_off(world: World) -> None:
    outside = Outside()
    one = event("a")
    far = world.beside(one, "far")
    await world.lay(far, [thing("far", after=timedelta(hours=1))])
    outside.has("a", [thing("one")])
    running = await world.start(outside)
    await asleep(world, running)
    await world.publish(one)
    await world.until_done(one, within=WOKEN)
    assert outside.called == ["one"]


async def test_a_job_that_becomes_due_before_the_end_of_a_sleep_ends_it_and_runs_no_earlier(world: World) -> None:
    outside = Outside()
    running = await world.start(outside)
    await asleep(world, running)
    one = event("a")
    outside.has("a", [thing("one", after=timedelta(milliseconds=700))])
    await world.publish(one)
    await world.until_done(one, within=WOKEN)
    job, *_ = await world.jobs_of(one)
    done = int((await world.job(job))["last_at"])
    planned = int((await world.deletion(one))["planned_at"])
    assert done - planned >= 700


async def test_a_retry_by_hand_wakes_a_sleeper(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.answers["one"] = [Blocked("in use", timedelta(hours=1))]
    job = (await world.lay(one, [thing("one")]))["one"]
    running = await world.start(outside)

    async def blocked() -> bool:
        return (await world.job(job)).get("verdict") == "blocked"

    await world.until("it waits", blocked)
    await asleep(world, running)
    assert await world.shard(one).retry(job, "tests") == "due"
    await world.until_done(one, within=WOKEN)


async def test_the_next_stage_wakes_whoever_sleeps(world: World) -> None:
    """The worker that ends a stage may be full: the others have to hear of the next one."""
    outside = Outside()
    outside.answers["one"] = [Pending(timedelta(milliseconds=300))]
    one = event("a")
    await world.lay(one, [thing("one"), thing("two", stage=1)])
    workers = [await world.start(outside) for _ in range(2)]
    await world.until_done(one, within=WOKEN)
    assert outside.called == ["one", "one", "two"]
    assert sum(running.moves["open"] for running in workers) >= 1


async def test_a_worker_that_dies_right_after_a_wake_up_delays_nobody(world: World) -> None:
    """It woke, looked, set the lane aside for itself for a moment, and was killed before it took anything."""
    outside = Outside()
    one = event("a")
    await world.lay(one, [thing("one")])
    look = await world.shard(one).look(10)
    assert [lane.name for lane in look.lanes] == [LANE]
    await world.start(outside)
    await world.until_done(one, within=WOKEN)


async def test_a_wake_up_reaches_everyone_also_when_one_who_heard_it_dies(world: World) -> None:
    outside, soon = Outside(), timedelta(seconds=1)
    world.change("worker", plan_claim=soon, lease=5 * soon, attempt_timeout=4 * soon)
    doomed, other = await world.start(outside), await world.start(outside)
    await asleep(world, doomed, other)
    for number in range(5):
        one = event(f"e{number}")
        outside.has(one.uid, [thing(f"t{number}")])
        await world.publish(one)
        if number == 2:
            await doomed.crash()
        await world.until_done(one, within=WOKEN)


async def test_blocking_reads_take_no_connection_from_the_pool(world: World) -> None:
    world.change("redis", max_connections=2, call_timeout=timedelta(seconds=2))
    outside = Outside()
    events = [outside.has(f"e{number}", [thing(f"{number}-{i}") for i in range(20)]) for number in range(20)]
    running = await world.start(outside)
    assert running.installation.settings.redis.max_connections == 2
    await world.publish(*events)
    await world.until_done(*events)
    assert len(outside.calls) == 400
    assert running.installation.caller.away_since is None


async def test_nobody_sleeps_past_the_job_that_is_due_first(world: World) -> None:
    outside = Outside()
    one = event("a")
    waits = {"late": 3_600_000, "early": 200, "middle": 1_800_000}
    outside.has("a", [thing(name, f"sim/acct/{name}", after=wait * MS) for name, wait in waits.items()])
    await world.start(outside)
    await world.publish(one)
    for number, name in enumerate(("early", "middle", "late"), 1):

        async def called(number: int = number) -> bool:
            return len(outside.calls) == number

        await world.until(f"{name} was called", called, WOKEN)
        assert outside.called[-1] == name
        await world.jump(1_800_000 * MS)
    await world.until_done(one)
    planned = int((await world.deletion(one))["planned_at"])
    for job, target in await world.targets_of(one):
        if target in waits:
            assert int((await world.job(job))["last_at"]) - planned >= waits[target]
    assert not await world.queue(LANE)


async def test_tokens_that_are_there_earlier_than_was_said_wake_the_lanes_that_waited_for_them(world: World) -> None:
    limit = Limit.bucket("calls", 100, 100 / 360_000)
    outside, free = Outside(draws_on=lambda lane: (Draw(limit),)), asyncio.Event()

    async def tells(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        await free.wait()
        batch.tell(Remaining("calls", 50))
        return Gone()

    outside.answers["first"] = [tells]
    asks = [Ask(LANE, 99, 99, 0, (Draw(limit),))]
    await world.installation.budgets.reserve("sim/acct", 0.1, asks)
    await world.installation.budgets.correct("sim/acct", [Said(limit, answered=99, remaining=1)])
    first, others = event("first"), [event(f"e{number}") for number in range(4)]
    await world.lay(first, [thing("first", "sim/acct/first")])
    running = await world.start(outside)

    async def used() -> bool:
        return outside.called == ["first"]

    await world.until("the last token is used", used)
    await world.publish(*others)

    async def dry() -> bool:
        now = await world.now()
        lanes = [
            await world.client.zscore(f"{shard.stem}lanes", LANE)
            for shard in {world.shard(one).number: world.shard(one) for one in others}.values()
        ]
        return all(score is not None and score > now + 60_000 for score in lanes)

    await world.until("the others wait for an hour", dry)
    await asleep(world, running)
    free.set()
    await world.until_done(first, *others, within=WOKEN)
