"""Entries whose planner died: only a death alone with an entry counts against it, a storm or a crash loop counts once
at most, and what is set aside is tried again, later and later."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Event, Plan
from service.stream.replies import Claimed
from service.stream.rows import Kept, flat
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import LEASE, World
from workers.runtime.crew import Crew

CLAIM = timedelta(seconds=3)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
CRASH_LOOP = timedelta(minutes=15)
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


async def known_of(world: World, one: Event) -> dict[str, str]:
    return await world.hash(world.shard(one).stem + "suspects")


# ---- what counts


async def died(world: World, one: Event, victim: str, *others: str) -> Claimed:
    """A planner takes over what is silent, shows itself for the last time, with others, and dies; the answer is what
    the next one is told who finds that."""
    await seen(world, one, victim, *others)
    assert (await claim(world, one, victim)).wait == 0, "it had to wait"
    await world.jump(LEASE)
    return await claim(world, one, "finder")


async def again(world: World, one: Event, found: Claimed) -> None:
    """It waits as it was told to, and is on the stream again at that time and not before."""
    wait = timedelta(milliseconds=found.wait)
    why = "its planner died"
    kept = Kept(found.entry, "held", why, one.deletion, flat(one), found.wait, exact=True, suspect=True)
    assert await world.shard(one).hold([kept]) == 1
    await world.jump(wait - 10 * SECOND)
    await world.tidy()
    assert await world.state(one) == "held"
    await world.jump(10 * SECOND)
    await world.tidy()
    assert await world.state(one) == "published"
    stream = world.shard(one).stem + "events"
    ((_, ((_, raw),)),) = await world.client.xreadgroup("planners", "reader", {stream: ">"}, count=1)
    assert raw[b"alone"] == b"1"


async def waits(
    world: World, one: Event, deaths: int, *, apart: timedelta = AT_ONCE, others: int = 0
) -> list[timedelta]:
    """How long it waits after each of so many deaths, which are at least so far apart."""
    found = []
    for number in range(deaths):
        told = await died(world, one, f"w{number}", *(f"x{number}.{other}" for other in range(others)))
        assert told.fallen == number + 1
        found.append(timedelta(milliseconds=told.wait))
        await again(world, one, told)
        await world.jump(max(AT_ONCE, apart - found[-1]))
    return found


async def test_an_entry_that_kills_three_times_is_tried_again_after_an_hour_doubling_to_a_day(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    await seen(world, one, "hand")
    hours = [timedelta(hours=hours) for hours in (1, 2, 4, 8, 16, 24, 24)]
    assert await waits(world, one, 9, apart=CRASH_LOOP) == [MINUTE, 2 * MINUTE, *hours]
    assert (await world.stats())["planner_deaths"] == 9


async def test_the_deaths_of_a_crash_loop_count_as_one(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    await seen(world, one, "hand")
    minutes = [timedelta(minutes=minutes) for minutes in (1, 2, 4, 8)]
    # With a minute of silence each, the fifth is 19 minutes after the first and the sixth 16 after that one.
    assert await waits(world, one, 6) == [*minutes, CRASH_LOOP, HOUR]
    (known,) = (await known_of(world, one)).values()
    assert known.split()[:2] == ["6", "3"]


async def test_a_planner_that_is_killed_every_minute_condemns_nothing_within_a_crash_loop(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    for number in range(4):
        told = await died(world, one, f"w{number}")
        assert timedelta(milliseconds=told.wait) < CRASH_LOOP
        # Whoever finds it dies, too, before it is held: the next one plans it at once.
    (known,) = (await known_of(world, one)).values()
    assert known.split()[:2] == ["4", "1"]


async def test_a_death_that_is_found_late_belongs_to_the_crash_loop_in_which_it_happened(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    await died(world, one, "w0")
    await seen(world, one, "w1")
    assert (await claim(world, one, "w1")).wait == 0
    await world.jump(CRASH_LOOP)
    assert (await claim(world, one, "finder")).fallen == 2
    (known,) = (await known_of(world, one)).values()
    assert known.split()[:2] == ["2", "1"]


async def test_a_storm_of_kills_condemns_no_innocent_entry_unless_it_goes_on_and_on(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    await seen(world, one, "hand")
    # With each of its planners dies another worker, which has nothing to do with it.
    found = await waits(world, one, 11, apart=CRASH_LOOP, others=1)
    assert max(found[:9]) == CRASH_LOOP
    assert found[9:] == [HOUR, 2 * HOUR]


async def test_a_person_who_replays_it_has_it_planned_alone_and_nothing_is_forgotten(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    told = await died(world, one, "w0")
    kept = Kept(told.entry, "held", "why", one.deletion, flat(one), told.wait, exact=True, suspect=True)
    await world.shard(one).hold([kept])
    word = await world.shard(one).unhold(f"deletion:{one.deletion}", replay=True, who="me", event=flat(one))
    assert word == "replayed"
    assert list(await known_of(world, one)) == await world.entries()
    stream = world.shard(one).stem + "events"
    ((_, ((_, raw),)),) = await world.client.xreadgroup("planners", "reader", {stream: ">"}, count=1)
    assert raw[b"alone"] == b"1"
    assert (await died(world, one, "w1")).fallen == 2


async def test_what_kills_planners_in_the_name_of_another_source_is_not_in_the_way(world: World) -> None:
    one = event("a", source="forged")
    await world.deliver(one)
    told = await died(world, one, "w0")
    kept = Kept(told.entry, "held", "why", one.deletion, flat(one), told.wait, exact=True, suspect=True)
    await world.shard(one).hold([kept])
    await world.publish(event("a"))
    assert await world.state(one) == "published"
    assert "suspect" not in await world.deletion(one)
    assert not await known_of(world, one)


async def test_a_changed_annotation_does_not_bring_forward_what_kills_planners(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    told = await died(world, one, "w0")
    kept = Kept(told.entry, "held", "why", one.deletion, flat(one), told.wait, exact=True, suspect=True)
    await world.shard(one).hold([kept])
    await world.shard(one).reconsider([(one.deletion, 0)], "an annotation changed")
    assert await world.state(one) == "held"


async def test_what_was_delivered_beside_others_is_not_charged_however_often(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    stream = world.shard(one).stem + "events"
    for _ in range(20):
        await world.client.xclaim(stream, "planners", "batch", 0, [entry])
    assert await claim(world, one, "w0") == Claimed(entry, 0, 0)


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
    nothing = Claimed("", 0, 0)
    assert await world.shard(one).claim("w0", silent=LEASE, silence=LEASE) == nothing
    await world.client.delete(world.shard(one).stem + "events")
    assert await claim(world, one, "w0") == nothing


# ---- with workers


@pytest.mark.long
async def test_an_innocent_event_is_planned_after_a_storm_in_which_it_was_always_in_hand(world: World) -> None:
    outside, one = Outside(), event("innocent")
    outside.plans["innocent"] = hang
    await world.publish(one)

    async def waits_no_longer() -> bool:
        record = await world.deletion(one)
        if record["state"] != "held":
            return False
        wait = timedelta(milliseconds=int(record["again_at"]) - int(record["held_at"]))
        assert wait < HOUR
        await world.jump(wait)
        await world.tidy()
        return True

    for times in range(1, 5):
        victim = await world.start(outside, plan_claim=CLAIM)
        if times > 2:
            # The first death was beside others, the following ones were alone.
            await world.until("its wait is over", waits_no_longer)

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
    outside.plans["innocent"] = Plan([thing("one")])
    await world.start(outside, plan_claim=CLAIM)
    await world.until("its wait is over", waits_no_longer)
    await world.until_done(one)
    assert not await world.members("held")

    async def forgotten() -> bool:
        return not await known_of(world, one) and "suspect" not in await world.deletion(one)

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
    assert not await known_of(world, one)
    free.set()
    await world.until_done(one, long)


@pytest.mark.long
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
    (state,) = (await known_of(world, one)).values()
    assert state.startswith("0 0 0 ")
    outside.plans["a"] = Plan([thing("one")])
    await world.start(outside, plan_claim=CLAIM)
    await world.until_done(one)


async def test_what_is_known_of_an_entry_that_is_gone_is_forgotten(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    await claim(world, one, "w0")
    await world.tidy()
    assert list(await known_of(world, one)) == [entry]
    await world.lay(world.beside(one, "other"), [thing("one", LANE)])
    await world.client.xack(world.shard(one).stem + "events", "planners", entry)
    await world.client.xdel(world.shard(one).stem + "events", entry)
    await world.tidy()
    assert not await known_of(world, one)


async def test_a_job_and_an_event_are_never_under_trial_in_one_process_at_once() -> None:
    crew = Crew(10)
    assert crew.may_work_alone()
    async with crew.suspects:
        assert not crew.may_work_alone()
    assert crew.may_work_alone()
    async with crew.alone():
        assert crew.suspects.locked()
    assert not crew.suspects.locked()
