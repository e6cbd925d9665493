"""Planners that die: entries are claimed, those that kill are set aside, consumers go when nothing is pending."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Event, Plan
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World

CLAIM = timedelta(seconds=3)
"""An entry in the hands of a planner that lives is never silent for so long, also on a busy machine."""


async def planning(world: World, outside: Outside, uid: str, times: int) -> None:
    async def begun() -> bool:
        return outside.planned.count(uid) == times

    await world.until(f"{uid} is planned for the {times}. time", begun)


async def hang(event: Event) -> Plan:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@pytest.mark.every_server
async def test_an_entry_whose_planner_died_is_claimed_by_another(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = hang
    first = await world.start(outside)
    await world.publish(one)
    await planning(world, outside, "a", 1)
    await first.crash()
    assert await world.pending() == 1
    outside.plans["a"] = Plan([thing("one")])
    await world.silence_entries(CLAIM)
    await world.start(outside, plan_claim=CLAIM)
    await world.until_done(one)
    assert await world.pending() == 0
    assert outside.planned == ["a", "a"]


@pytest.mark.every_server
async def test_entries_of_a_planner_whose_heartbeats_end_are_claimed_before_they_are_silent_for_long(
    world: World,
) -> None:
    outside, some = Outside(), [event(name) for name in "abc"]
    for one in some:
        outside.plans[one.uid] = hang
    first = await world.start(outside, silence=timedelta(seconds=2))
    await world.publish(*some)
    for one in some:
        await planning(world, outside, one.uid, 1)
    await first.crash()
    for one in some:
        outside.plans[one.uid] = Plan([thing(f"{one.uid}-thing")])
    # By its silence alone an entry would be claimed after longer than any test waits.
    await world.start(outside, silence=timedelta(seconds=2), plan_claim=timedelta(minutes=20))
    await world.until_done(*some)
    assert sorted(outside.planned) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.long
async def test_an_entry_that_is_planned_for_long_stays_with_its_planner(world: World) -> None:
    outside, one, free = Outside(), event("a"), asyncio.Event()

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("one")])

    outside.plans["a"] = slow
    await world.start(outside, plan_claim=CLAIM)
    await world.start(outside, plan_claim=CLAIM)
    await world.publish(one)
    await planning(world, outside, "a", 1)

    async def alone() -> bool:
        return outside.planned == ["a"]

    await world.stays("nobody else plans it", alone, 1.5 * CLAIM)
    free.set()
    await world.until_done(one)


@pytest.mark.long
async def test_an_entry_that_kills_its_planners_is_set_aside_and_tried_again_alone_after_an_hour(world: World) -> None:
    outside, killer, free = Outside(), event("killer"), asyncio.Event()
    outside.plans["killer"] = hang
    await world.publish(killer)

    async def held() -> dict[str, str]:
        record = await world.deletion(killer)
        return record if record["state"] == "held" else {}

    for times in range(1, 5):
        running = await world.start(outside, plan_claim=CLAIM)
        if times > 2:
            record = await world.until("it waits", held)
            await world.jump(timedelta(milliseconds=int(record["again_at"]) - int(record["held_at"])))
            await world.tidy()
        await planning(world, outside, "killer", times)
        await running.crash()
        await world.silence_entries(CLAIM)
        # The next death is in no crash loop with this one.
        await world.jump(timedelta(minutes=15))
    await world.start(outside, plan_claim=CLAIM)
    record = await world.until("the entry is set aside", held)
    assert list(await world.members("held")) == [f"deletion:{killer.deletion}"]
    assert record["held"] == "its planner died 3 times while it was planned alone"
    assert int(record["again_at"]) - int(record["held_at"]) == timedelta(hours=1) / timedelta(milliseconds=1)
    assert await world.pending() == 0
    good = world.beside(killer, "good")
    await world.publish(good)
    await world.until_done(good)

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("one")])

    outside.plans["killer"] = slow
    await world.jump(timedelta(minutes=59))
    await world.tidy()
    assert await world.state(killer) == "held"
    assert outside.planned.count("killer") == 4
    await world.jump(timedelta(minutes=1))
    await world.tidy()
    await planning(world, outside, "killer", 5)
    later = world.beside(killer, "later")
    await world.publish(later)

    async def waits() -> bool:
        return later.uid not in outside.planned

    await world.stays("nothing is planned beside it", waits, timedelta(milliseconds=300))
    free.set()
    await world.until_done(killer, later)


async def test_an_entry_is_planned_alone_after_its_planner_died(world: World) -> None:
    outside, one, free = Outside(), event("suspect"), asyncio.Event()
    outside.plans["suspect"] = hang
    first = await world.start(outside)
    await world.publish(one)
    await planning(world, outside, "suspect", 1)
    await first.crash()

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("one")])

    outside.plans["suspect"] = slow
    await world.silence_entries(CLAIM)
    await world.start(outside, plan_claim=CLAIM)
    await planning(world, outside, "suspect", 2)
    later = world.beside(one, "later")
    await world.publish(later)

    async def waits() -> bool:
        return later.uid not in outside.planned

    await world.stays("nothing is planned beside it", waits, timedelta(milliseconds=300))
    free.set()
    await world.until_done(one, later)


async def test_a_consumer_of_a_dead_worker_goes_only_when_nothing_is_pending_for_it(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    shard = world.shard(one)
    stream = shard.stem + "events"
    await world.client.xgroup_createconsumer(stream, "planners", "idler")

    async def expire() -> set[str]:
        await shard.expire(
            finished=timedelta(days=1), audit=timedelta(days=1), audit_entries=1000, lanes=timedelta(days=1),
            consumers=timedelta(milliseconds=1),
        )  # fmt: skip
        return {one["name"].decode() for one in await world.client.xinfo_consumers(stream, "planners")}

    async def idler_is_gone() -> bool:
        return "idler" not in await expire()

    await world.until("the consumer without entries is gone", idler_is_gone)
    assert await expire() == {"hand"}
    assert await world.pending() == 1
    await world.client.xack(stream, "planners", entry)

    async def all_gone() -> bool:
        return not await expire()

    await world.until("the other is gone, too", all_gone)
    assert await world.entries() == [entry]


async def test_a_planner_that_fails_is_asked_again_and_the_deletion_is_shown_as_held_meanwhile(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = OSError("the API server is away")
    await world.publish(one)
    await world.start(outside)

    async def held() -> bool:
        """In one read: it is planned again soon, and not held any more meanwhile."""
        return "the API server is away" in (await world.deletion(one)).get("held", "")

    await world.until("it is held", held)
    outside.plans["a"] = Plan([thing("one")])
    await world.until_done(one)
    assert not await world.members("held")


async def test_a_planner_that_never_answers_holds_up_nobody(world: World) -> None:
    outside, one = Outside(), event("a")
    other = world.beside(one, "b")
    outside.plans["a"] = hang
    await world.publish(one, other)
    await world.start(outside, planners=1, plan_timeout=timedelta(milliseconds=300))
    await world.until_done(other)
    # It is held for a moment only, then it is planned again: the audit tells both.
    held = [entry["why"] for entry in await world.audit("decision") if entry["what"] == "held"]
    assert held
    assert all("TimeoutError" in why for why in held)
    outside.plans["a"] = Plan([thing("one")])
    await world.until_done(one)
