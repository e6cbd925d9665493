"""Entries whose planner died: only a death alone with an entry counts against it, a storm or a crash loop counts once
at most, and what is set aside is tried again, later and later."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Event, Plan
from service.engine.script_arguments import UnplannedEvent, event_fields
from service.engine.script_replies import Claimed
from tests.engine.engine_under_test import LEASE, EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.runtime.slots import WorkerSlots

CLAIM = timedelta(seconds=3)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
CRASH_LOOP = timedelta(minutes=15)
AT_ONCE = timedelta(0)


async def hang(event: Event) -> Plan:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def seen(engine: EngineUnderTest, one: Event, *workers: str) -> None:
    for worker in workers:
        await engine.shard(one).renew(worker, LEASE, [], patience=SECOND)


async def claim(engine: EngineUnderTest, one: Event, worker: str) -> Claimed:
    """As a planner with empty hands would, with entries silent from the first moment on."""
    return await engine.shard(one).claim(worker, silent=AT_ONCE, silence=LEASE / 2)


async def known_of(engine: EngineUnderTest, one: Event) -> dict[str, str]:
    return await engine.hash(engine.shard(one).stem + "suspects")


# ---- what counts


async def died(engine: EngineUnderTest, one: Event, victim: str, *others: str) -> Claimed:
    """A planner takes over what is silent, shows itself for the last time, with others, and dies; the answer is what
    the next one is told who finds that."""
    await seen(engine, one, victim, *others)
    assert (await claim(engine, one, victim)).wait == 0, "it had to wait"
    await engine.jump(LEASE)
    return await claim(engine, one, "finder")


async def again(engine: EngineUnderTest, one: Event, found: Claimed) -> None:
    """It waits as it was told to, and is on the stream again at that time and not before."""
    wait = timedelta(milliseconds=found.wait)
    why = "its planner died"
    kept = UnplannedEvent(
        found.entry, "held", why, one.deletion, event_fields(one), found.wait, exact=True, suspect=True
    )
    assert await engine.shard(one).hold([kept]) == 1
    await engine.jump(wait - 10 * SECOND)
    await engine.tidy()
    assert await engine.state(one) == "held"
    await engine.jump(10 * SECOND)
    await engine.tidy()
    assert await engine.state(one) == "published"
    stream = engine.shard(one).stem + "events"
    ((_, ((_, raw),)),) = await engine.client.xreadgroup("planners", "reader", {stream: ">"}, count=1)
    assert raw[b"alone"] == b"1"


async def waits(
    engine: EngineUnderTest, one: Event, deaths: int, *, apart: timedelta = AT_ONCE, others: int = 0
) -> list[timedelta]:
    """How long it waits after each of so many deaths, which are at least so far apart."""
    found = []
    for number in range(deaths):
        told = await died(engine, one, f"w{number}", *(f"x{number}.{other}" for other in range(others)))
        assert told.fallen == number + 1
        found.append(timedelta(milliseconds=told.wait))
        await again(engine, one, told)
        await engine.jump(max(AT_ONCE, apart - found[-1]))
    return found


async def test_an_entry_that_kills_three_times_is_tried_again_after_an_hour_doubling_to_a_day(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    await engine.deliver(one)
    await seen(engine, one, "hand")
    hours = [timedelta(hours=hours) for hours in (1, 2, 4, 8, 16, 24, 24)]
    assert await waits(engine, one, 9, apart=CRASH_LOOP) == [MINUTE, 2 * MINUTE, *hours]
    assert (await engine.stats())["planner_deaths"] == 9


async def test_the_deaths_of_a_crash_loop_count_as_one(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.deliver(one)
    await seen(engine, one, "hand")
    minutes = [timedelta(minutes=minutes) for minutes in (1, 2, 4, 8)]
    # With a minute of silence each, the fifth is 19 minutes after the first and the sixth 16 after that one.
    assert await waits(engine, one, 6) == [*minutes, CRASH_LOOP, HOUR]
    (known,) = (await known_of(engine, one)).values()
    assert known.split()[:2] == ["6", "3"]


async def test_a_planner_that_is_killed_every_minute_condemns_nothing_within_a_crash_loop(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    await engine.deliver(one)
    for number in range(4):
        told = await died(engine, one, f"w{number}")
        assert timedelta(milliseconds=told.wait) < CRASH_LOOP
        # Whoever finds it dies, too, before it is held: the next one plans it at once.
    (known,) = (await known_of(engine, one)).values()
    assert known.split()[:2] == ["4", "1"]


async def test_a_death_that_is_found_late_belongs_to_the_crash_loop_in_which_it_happened(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    await engine.deliver(one)
    await died(engine, one, "w0")
    await seen(engine, one, "w1")
    assert (await claim(engine, one, "w1")).wait == 0
    await engine.jump(CRASH_LOOP)
    assert (await claim(engine, one, "finder")).fallen == 2
    (known,) = (await known_of(engine, one)).values()
    assert known.split()[:2] == ["2", "1"]


async def test_a_storm_of_kills_condemns_no_innocent_entry_unless_it_goes_on_and_on(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.deliver(one)
    await seen(engine, one, "hand")
    # With each of its planners dies another worker, which has nothing to do with it.
    found = await waits(engine, one, 11, apart=CRASH_LOOP, others=1)
    assert max(found[:9]) == CRASH_LOOP
    assert found[9:] == [HOUR, 2 * HOUR]


async def test_a_replayed_entry_is_planned_alone_and_its_deaths_are_kept(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.deliver(one)
    told = await died(engine, one, "w0")
    kept = UnplannedEvent(
        told.entry, "held", "why", one.deletion, event_fields(one), told.wait, exact=True, suspect=True
    )
    await engine.shard(one).hold([kept])
    word = await engine.shard(one).unhold(f"deletion:{one.deletion}", replay=True, who="me", event=event_fields(one))
    assert word == "replayed"
    assert list(await known_of(engine, one)) == await engine.entries()
    stream = engine.shard(one).stem + "events"
    ((_, ((_, raw),)),) = await engine.client.xreadgroup("planners", "reader", {stream: ">"}, count=1)
    assert raw[b"alone"] == b"1"
    assert (await died(engine, one, "w1")).fallen == 2


async def test_what_kills_planners_in_the_name_of_another_source_is_not_in_the_way(engine: EngineUnderTest) -> None:
    one = event("a", source="forged")
    await engine.deliver(one)
    told = await died(engine, one, "w0")
    kept = UnplannedEvent(
        told.entry, "held", "why", one.deletion, event_fields(one), told.wait, exact=True, suspect=True
    )
    await engine.shard(one).hold([kept])
    await engine.publish(event("a"))
    assert await engine.state(one) == "published"
    assert "suspect" not in await engine.deletion(one)
    assert not await known_of(engine, one)


async def test_a_changed_annotation_does_not_bring_forward_what_kills_planners(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.deliver(one)
    told = await died(engine, one, "w0")
    kept = UnplannedEvent(
        told.entry, "held", "why", one.deletion, event_fields(one), told.wait, exact=True, suspect=True
    )
    await engine.shard(one).hold([kept])
    await engine.shard(one).recheck([(one.deletion, 0)], "an annotation changed")
    assert await engine.state(one) == "held"


async def test_what_was_delivered_beside_others_is_not_charged_however_often(engine: EngineUnderTest) -> None:
    one = event("a")
    entry = await engine.deliver(one)
    stream = engine.shard(one).stem + "events"
    for _ in range(20):
        await engine.client.xclaim(stream, "planners", "batch", 0, [entry])
    assert await claim(engine, one, "w0") == Claimed(entry, 0, 0)


async def test_an_entry_that_was_deleted_by_hand_is_passed_over(engine: EngineUnderTest) -> None:
    one = event("a")
    gone = await engine.deliver(one)
    other = engine.beside(one, "other")
    entry = await engine.deliver(other)
    await engine.client.xdel(engine.shard(one).stem + "events", gone)
    assert (await claim(engine, one, "w0")).entry == entry
    assert await engine.pending() == 1


async def test_nothing_silent_is_nothing_to_claim(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.deliver(one)
    nothing = Claimed("", 0, 0)
    assert await engine.shard(one).claim("w0", silent=LEASE, silence=LEASE) == nothing
    await engine.client.delete(engine.shard(one).stem + "events")
    assert await claim(engine, one, "w0") == nothing


# ---- with workers


@pytest.mark.long
async def test_an_innocent_event_is_planned_after_a_storm_in_which_it_was_always_in_hand(
    engine: EngineUnderTest,
) -> None:
    provider, one = ScriptedProvider(), event("innocent")
    provider.plans["innocent"] = hang
    await engine.publish(one)

    async def waits_no_longer() -> bool:
        record = await engine.deletion(one)
        if record["state"] != "held":
            return False
        wait = timedelta(milliseconds=int(record["again_at"]) - int(record["held_at"]))
        assert wait < HOUR
        await engine.jump(wait)
        await engine.tidy()
        return True

    for times in range(1, 5):
        victim = await engine.start(provider, plan_claim=CLAIM)
        if times > 2:
            # The first death was beside others, the following ones were alone.
            await engine.until("its wait is over", waits_no_longer)

        async def planned(times: int = times) -> bool:
            return provider.planned.count("innocent") == times

        await engine.until(f"it is planned for the {times}. time", planned)
        bystander = await engine.start(provider)

        async def both_seen(names: tuple[str, ...] = (victim.name, bystander.name)) -> bool:
            return set(names) <= set(await engine.members("workers"))

        await engine.until("both have shown themselves", both_seen)
        await victim.crash()
        await bystander.crash()
        await engine.silence_entries(CLAIM)
        await engine.jump(timedelta(seconds=30))
    provider.plans["innocent"] = Plan([thing("one")])
    await engine.start(provider, plan_claim=CLAIM)
    await engine.until("its wait is over", waits_no_longer)
    await engine.until_done(one)
    assert not await engine.members("held")

    async def forgotten() -> bool:
        return not await known_of(engine, one) and "suspect" not in await engine.deletion(one)

    await engine.until("nothing is kept of the suspicion", forgotten)


async def test_a_planner_with_other_plans_in_hand_claims_no_suspect(engine: EngineUnderTest) -> None:
    provider, one, free = ScriptedProvider(), event("suspect"), asyncio.Event()
    long = engine.beside(one, "long")

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("slow")])

    provider.plans[long.uid] = slow
    running = await engine.start(provider, plan_claim=CLAIM, planners=1)
    await engine.publish(long)

    async def begun() -> bool:
        return long.uid in provider.planned

    await engine.until("the long one is being planned", begun)
    await engine.deliver(one)
    await engine.silence_entries(CLAIM)
    stream = engine.shard(one).stem + "events"

    async def untouched() -> bool:
        pending = await engine.client.xpending_range(stream, "planners", "-", "+", 10)
        return {entry["consumer"].decode() for entry in pending} == {running.name, "hand"}

    await engine.stays("the suspect stays where it is", untouched, CLAIM / 2)
    assert not await known_of(engine, one)
    free.set()
    await engine.until_done(one, long)


@pytest.mark.long
async def test_a_planner_that_stops_in_order_is_no_death(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = hang
    await engine.deliver(one)
    await engine.silence_entries(CLAIM)
    for times in range(1, 7):
        running = await engine.start(provider, plan_claim=CLAIM, grace=AT_ONCE)

        async def planned(times: int = times) -> bool:
            return provider.planned.count("a") == times

        await engine.until(f"it is planned for the {times}. time", planned)
        await running.stop()
    (state,) = (await known_of(engine, one)).values()
    assert state.startswith("0 0 0 ")
    provider.plans["a"] = Plan([thing("one")])
    await engine.start(provider, plan_claim=CLAIM)
    await engine.until_done(one)


async def test_what_is_known_of_an_entry_that_is_gone_is_forgotten(engine: EngineUnderTest) -> None:
    one = event("a")
    entry = await engine.deliver(one)
    await claim(engine, one, "w0")
    await engine.tidy()
    assert list(await known_of(engine, one)) == [entry]
    await engine.lay(engine.beside(one, "other"), [thing("one", LANE)])
    await engine.client.xack(engine.shard(one).stem + "events", "planners", entry)
    await engine.client.xdel(engine.shard(one).stem + "events", entry)
    await engine.tidy()
    assert not await known_of(engine, one)


async def test_a_job_and_an_event_are_never_under_trial_in_one_process_at_once() -> None:
    slots = WorkerSlots(10)
    assert slots.may_run_alone()
    async with slots.suspects:
        assert not slots.may_run_alone()
    assert slots.may_run_alone()
    async with slots.exclusive():
        assert slots.suspects.locked()
    assert not slots.suspects.locked()
