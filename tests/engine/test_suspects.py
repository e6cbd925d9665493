"""Entries whose planner died: only a death alone with an entry counts against it, and a storm condemns none."""

import asyncio
from datetime import timedelta

from service.contract import Event, Plan
from service.stream.replies import Claimed
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import LEASE, World
from workers.runtime.crew import Crew

CLAIM = timedelta(seconds=3)
SECOND = timedelta(seconds=1)
AT_ONCE = timedelta(0)


async def hang(event: Event) -> Plan:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def seen(world: World, one: Event, *workers: str) -> None:
    for worker in workers:
        await world.shard(one).renew(worker, LEASE, [], patience=SECOND)


async def claim(world: World, one: Event, worker: str) -> Claimed:
    """As a planner with empty hands would, with entries silent from the first moment on."""
    return await world.shard(one).claim(worker, silent=AT_ONCE, silence=LEASE / 2)


async def known(world: World, one: Event) -> dict[str, str]:
    return await world.hash(world.shard(one).stem + "suspects")


# ---- what counts


async def test_three_deaths_alone_with_an_entry_set_it_aside_and_the_first_one_does_not_count(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    await seen(world, one, "hand")
    for deaths in range(4):
        # Soon after each other: those that it had killed before are no storm.
        await world.jump(LEASE / 2 + SECOND)
        await seen(world, one, f"w{deaths}")
        assert await claim(world, one, f"w{deaths}") == Claimed(entry, deaths == 3, deaths)


async def test_a_storm_of_kills_condemns_no_innocent_entry(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    await seen(world, one, "hand")
    for deaths in range(11):
        await world.jump(LEASE)
        # With each of its planners dies another worker, which has nothing to do with it.
        await seen(world, one, f"w{deaths}", f"x{deaths}")
        assert await claim(world, one, f"w{deaths}") == Claimed(entry, deaths == 10, deaths)


async def test_what_was_delivered_beside_others_is_not_charged_however_often(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    stream = world.shard(one).stem + "events"
    for _ in range(20):
        await world.client.xclaim(stream, "planners", "batch", 0, [entry])
    assert await claim(world, one, "w0") == Claimed(entry, False, 0)


async def test_an_entry_that_was_deleted_by_hand_is_passed_over(world: World) -> None:
    one = event("a")
    gone = await world.deliver(one)
    other = world.beside(one, "other")
    entry = await world.deliver(other)
    await world.client.xdel(world.shard(one).stem + "events", gone)
    assert (await claim(world, one, "w0")).entry == entry
    assert await world.pending() == 1


async def test_nothing_silent_is_nothing_to_claim(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    nothing = Claimed("", False, 0)
    assert await world.shard(one).claim("w0", silent=LEASE, silence=LEASE) == nothing
    await world.client.delete(world.shard(one).stem + "events")
    assert await claim(world, one, "w0") == nothing


# ---- with workers


async def test_an_innocent_event_is_planned_after_a_storm_in_which_it_was_always_in_hand(world: World) -> None:
    outside, one = Outside(), event("innocent")
    outside.plans["innocent"] = hang
    await world.publish(one)
    for times in range(1, 8):
        victim = await world.start(outside, plan_claim=CLAIM)

        async def planned(times: int = times) -> bool:
            return outside.planned.count("innocent") == times

        await world.until(f"it is planned for the {times}. time", planned)
        bystander = await world.start(outside)

        async def both_seen(names: tuple[str, ...] = (victim.name, bystander.name)) -> bool:
            return set(names) <= set(await world.members("workers"))

        await world.until("both have shown themselves", both_seen)
        await victim.crash()
        await bystander.crash()
        await world.silence_entries(CLAIM)
        await world.jump(timedelta(seconds=30))
    assert await world.state(one) == "published"
    outside.plans["innocent"] = Plan([thing("one")])
    await world.start(outside, plan_claim=CLAIM)
    await world.until_done(one)
    assert not await world.members("held")

    async def forgotten() -> bool:
        return not await known(world, one)

    await world.until("nothing is kept of the suspicion", forgotten)


async def test_a_planner_with_other_plans_in_hand_claims_no_suspect(world: World) -> None:
    outside, one, free = Outside(), event("suspect"), asyncio.Event()
    long = world.beside(one, "long")

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("slow")])

    outside.plans[long.uid] = slow
    running = await world.start(outside, plan_claim=CLAIM, planners=1)
    await world.publish(long)

    async def begun() -> bool:
        return long.uid in outside.planned

    await world.until("the long one is being planned", begun)
    await world.deliver(one)
    await world.silence_entries(CLAIM)
    stream = world.shard(one).stem + "events"

    async def untouched() -> bool:
        pending = await world.client.xpending_range(stream, "planners", "-", "+", 10)
        return {entry["consumer"].decode() for entry in pending} == {running.name, "hand"}

    await world.stays("the suspect stays where it is", untouched, CLAIM / 2)
    assert not await known(world, one)
    free.set()
    await world.until_done(one, long)


async def test_a_planner_that_stops_in_order_is_no_death(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = hang
    await world.deliver(one)
    await world.silence_entries(CLAIM)
    for times in range(1, 7):
        running = await world.start(outside, plan_claim=CLAIM, grace=AT_ONCE)

        async def planned(times: int = times) -> bool:
            return outside.planned.count("a") == times

        await world.until(f"it is planned for the {times}. time", planned)
        await running.stop()
    (state,) = (await known(world, one)).values()
    assert state.startswith("0 0 ")
    outside.plans["a"] = Plan([thing("one")])
    await world.start(outside, plan_claim=CLAIM)
    await world.until_done(one)


async def test_what_is_known_of_an_entry_that_is_gone_is_forgotten(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    await claim(world, one, "w0")
    await world.tidy()
    assert list(await known(world, one)) == [entry]
    await world.lay(world.beside(one, "other"), [thing("one", LANE)])
    await world.client.xack(world.shard(one).stem + "events", "planners", entry)
    await world.client.xdel(world.shard(one).stem + "events", entry)
    await world.tidy()
    assert not await known(world, one)


async def test_a_job_and_an_event_are_never_under_trial_in_one_process_at_once() -> None:
    crew = Crew(10)
    assert crew.may_work_alone()
    async with crew.suspects:
        assert not crew.may_work_alone()
    assert crew.may_work_alone()
    async with crew.alone():
        assert crew.suspects.locked()
    assert not crew.suspects.locked()
