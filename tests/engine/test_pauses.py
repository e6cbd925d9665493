"""Pauses by hand and by a budget: honoured before the next destructive call, and followed by no stampede."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Job, Limit, Pause, Throttled, Verdict
from service.engine.budgets import Said
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from workers.handlers.protocol import Batch


async def pause(world: World, lane: str, *, stop: bool = True) -> None:
    for shard in world.installation.shards:
        await shard.pause(lane, stop=stop, who="tests")


PAUSE = timedelta(seconds=1)


class Held(Outside):
    """Attempts that wait in front of their destructive call until they are let go."""

    def hold(self) -> tuple[asyncio.Event, asyncio.Event]:
        arrived, free = asyncio.Event(), asyncio.Event()

        async def wait(job: Job, batch: Batch) -> Verdict:
            arrived.set()
            await free.wait()
            await self.call(job, batch)
            return Gone()

        self.always = wait
        return arrived, free


async def test_a_pause_of_everything_takes_nothing_until_it_is_over(world: World) -> None:
    outside, one = Outside(), event("a")
    await pause(world, "*")
    await world.start(outside)
    await world.publish(one)

    async def planned() -> bool:
        return await world.state(one) == "running"

    await world.until("it is planned: planning only reads", planned)

    async def untouched() -> bool:
        return not outside.calls and not await world.leases(LANE)

    await world.stays("nothing is taken", untouched, timedelta(milliseconds=300))
    await pause(world, "*", stop=False)
    await world.until_done(one)
    assert set(await world.decisions("paused")) == {"*"}
    assert set(await world.decisions("resumed")) == {"*"}


async def test_a_paused_lane_leaves_the_others_alone(world: World) -> None:
    outside, one = Outside(), event("a")
    await pause(world, "sim/acct/stopped")
    await world.lay(one, [thing("stopped", "sim/acct/stopped"), thing("free", "sim/acct/free")])
    await world.start(outside)

    async def gone() -> bool:
        return "free" in outside.called

    await world.until("the other lane is served", gone)

    async def untouched() -> bool:
        return outside.called == ["free"]

    await world.stays("the paused lane is not", untouched, timedelta(milliseconds=200))
    await pause(world, "sim/acct/stopped", stop=False)
    await world.until_done(one)


async def test_a_job_already_taken_looks_at_the_pause_again_before_it_calls(world: World) -> None:
    outside, one = Held(), event("a")
    arrived, free = outside.hold()
    job = (await world.lay(one, [thing("one")]))["one"]
    await world.start(outside)
    await arrived.wait()
    await pause(world, LANE)
    free.set()

    async def back() -> bool:
        return job in await world.queue(LANE)

    await world.until("it is handed back", back)
    assert not outside.calls
    assert (await world.job(job)).get("attempts", "0") == "0"
    assert any("back: paused by hand" in entry for entry in await world.audit("outcome"))
    await pause(world, LANE, stop=False)
    await world.until_done(one)
    assert outside.called == ["one"]


async def test_a_pause_that_another_worker_heard_of_stops_a_job_before_its_call(world: World) -> None:
    limit = Limit.bucket("calls", 100, 100)
    outside, one = Held(draws_on=lambda lane: (Draw(limit),)), event("a")
    arrived, free = outside.hold()
    job = (await world.lay(one, [thing("one")]))["one"]
    await world.start(outside)
    await arrived.wait()
    told = await world.now()
    await world.installation.budgets.correct("sim/acct", [Said(limit, 1, pause=60_000)])
    free.set()

    async def back() -> bool:
        return job in await world.queue(LANE)

    await world.until("it is handed back", back)
    assert not outside.calls
    # It comes when the pause is over, and its token went back to nobody: after a pause the bucket starts empty.
    record = await world.job(job)
    assert (await world.queue(LANE))[job] - told > 58_000
    assert float(record["due"]) - float(record["last_at"]) <= 60_500
    assert float((await world.budget())["calls|tokens"]) == 0
    await world.jump(timedelta(seconds=62))
    await world.until_done(one)


async def test_a_pause_named_here_holds_here_at_once_and_only_for_its_account(world: World) -> None:
    limit = Limit.bucket("calls", 100, 100)
    outside, order = Outside(draws_on=lambda lane: (Draw(limit),)), asyncio.Event()

    async def tells(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        batch.tell(Pause("calls", PAUSE))
        order.set()
        return Gone()

    async def after(job: Job, batch: Batch) -> Verdict:
        await order.wait()
        await outside.call(job, batch)
        return Gone()

    outside.answers["first"] = [tells]
    # A list each: whoever comes first would else take the answer of the other.
    outside.answers["second"], outside.answers["other account"] = [after], [after]
    one, other = event("a"), event("b")
    await world.lay(one, [thing("first"), thing("second")])
    elsewhere = (await world.lay(other, [thing("other account", "sim/else/delete")]))["other account"]
    await world.start(outside)
    await world.until_done(other)
    await world.until_done(one)
    assert sorted(outside.called) == ["first", "other account", "second"]
    # The other was called the first time that it was taken.
    assert len([entry for entry in await world.audit("intent") if elsewhere in entry["jobs"]]) == 1
    first, second = (next(call for call in outside.calls if call.target == name) for name in ("first", "second"))
    assert second.at - first.at >= PAUSE.total_seconds()


@pytest.mark.long
async def test_after_a_pause_the_bucket_starts_empty_and_nobody_stampedes(world: World) -> None:
    rate, pause, in_hand = 50.0, 3.0, 2.0
    limit = Limit.bucket("calls", 40, rate)
    outside = Outside(draws_on=lambda lane: (Draw(limit),))
    outside.answers["t0"] = [Throttled(timedelta(seconds=pause))]
    one = event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(60)])
    await world.start(outside, batch=1)
    await world.start(outside, batch=1)

    async def throttled() -> bool:
        return (await world.stats()).get("throttled", 0) >= 1

    await world.until("the provider has refused", throttled)
    told = next(call.at for call in outside.calls if call.target == "t0")
    await world.until_done(one)
    # What was already past its last look when the answer came is called all the same.
    later = sorted(call.at - told for call in outside.calls if call.at > told + in_hand)
    # Until the end of the pause nothing is called; then as tokens come.
    for count, at in enumerate(later, 1):
        assert at >= pause - 0.01
        assert count <= rate * (at - pause) + 2
    assert len(later) > 10


async def test_where_the_budget_itself_had_nothing_left_the_job_waits_and_nobody_else_does(world: World) -> None:
    """The provider has refused nothing: others that draw on the same limit go on."""
    limit, late = Limit.bucket("calls", 40, 50.0), timedelta(hours=1)
    outside = Outside(draws_on=lambda lane: (Draw(limit),))
    outside.answers["t0"] = [Throttled(late, "no room", unasked=True)]
    one, other = event("a"), event("b")
    await world.lay(one, [thing("t0")])
    await world.start(outside)

    async def waits() -> bool:
        return (await world.stats()).get("throttled", 0) >= 1

    await world.until("it waits", waits)
    await world.publish(other)
    await world.until_done(other)
    assert await world.state(one) == "running"
    await world.jump(late)
    await world.until_done(one)


async def test_a_pause_lasts_over_a_restart_of_the_workers(world: World) -> None:
    outside, one = Outside(), event("a")
    await world.lay(one, [thing("one")])
    await pause(world, LANE)
    running = await world.start(outside)
    await running.stop()
    await world.start(outside)

    async def untouched() -> bool:
        return not outside.calls

    await world.stays("nothing is called", untouched, timedelta(milliseconds=300))
    await pause(world, LANE, stop=False)
    await world.until_done(one)


async def test_tokens_of_a_call_that_was_not_made_are_given_back_and_those_of_one_under_way_are_not(
    world: World,
) -> None:
    limit = Limit.bucket("calls", 10, 10 / 36_000)
    outside, begun = Outside(draws_on=lambda lane: (Draw(limit),)), list[str]()

    async def calling(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        begun.append(job.target)
        await asyncio.Event().wait()
        return Gone()

    async def waiting(job: Job, batch: Batch) -> Verdict:
        begun.append(job.target)
        await asyncio.Event().wait()
        return Gone()

    outside.answers["calling"], outside.answers["waiting"] = [calling], [waiting]
    one = event("a")
    await world.lay(one, [thing("calling"), thing("waiting")])
    running = await world.start(outside, grace=timedelta(0))

    async def both() -> bool:
        return len(begun) == 2

    await world.until("both are under way", both)
    assert float((await world.budget())["calls|tokens"]) < 8.1
    await running.stop()
    assert 9 <= float((await world.budget())["calls|tokens"]) < 9.1
