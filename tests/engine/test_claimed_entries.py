"""Dead planners: their entries are claimed, repeated failures are set aside, idle consumers are deleted."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Event, Plan
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing

CLAIM = timedelta(seconds=3)
"""An entry in the hands of a planner that lives is never silent for so long, also on a busy machine."""


async def planning(engine: EngineUnderTest, provider: ScriptedProvider, uid: str, times: int) -> None:
    async def begun() -> bool:
        return provider.planned.count(uid) == times

    await engine.until(f"{uid} is planned for the {times}. time", begun)


async def hang(event: Event) -> Plan:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@pytest.mark.every_server
async def test_an_entry_whose_planner_died_is_claimed_by_another(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = hang
    first = await engine.start(provider)
    await engine.publish(one)
    await planning(engine, provider, "a", 1)
    await first.crash()
    assert await engine.pending() == 1
    provider.plans["a"] = Plan([thing("one")])
    await engine.silence_entries(CLAIM)
    await engine.start(provider, plan_claim=CLAIM)
    await engine.until_done(one)
    assert await engine.pending() == 0
    assert provider.planned == ["a", "a"]


@pytest.mark.every_server
async def test_entries_of_a_planner_whose_heartbeats_end_are_claimed_before_they_are_silent_for_long(
    engine: EngineUnderTest,
) -> None:
    provider, some = ScriptedProvider(), [event(name) for name in "abc"]
    for one in some:
        provider.plans[one.uid] = hang
    first = await engine.start(provider, silence=timedelta(seconds=2))
    await engine.publish(*some)
    for one in some:
        await planning(engine, provider, one.uid, 1)
    await first.crash()
    for one in some:
        provider.plans[one.uid] = Plan([thing(f"{one.uid}-thing")])
    # By its silence alone an entry would be claimed after longer than any test waits.
    await engine.start(provider, silence=timedelta(seconds=2), plan_claim=timedelta(minutes=20))
    await engine.until_done(*some)
    assert sorted(provider.planned) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.long
async def test_an_entry_that_is_planned_for_long_stays_with_its_planner(engine: EngineUnderTest) -> None:
    provider, one, free = ScriptedProvider(), event("a"), asyncio.Event()

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("one")])

    provider.plans["a"] = slow
    await engine.start(provider, plan_claim=CLAIM)
    await engine.start(provider, plan_claim=CLAIM)
    await engine.publish(one)
    await planning(engine, provider, "a", 1)

    async def alone() -> bool:
        return provider.planned == ["a"]

    await engine.stays("no other planner plans it", alone, 1.5 * CLAIM)
    free.set()
    await engine.until_done(one)


@pytest.mark.long
async def test_an_entry_that_kills_its_planners_is_set_aside_and_tried_again_alone_after_an_hour(
    engine: EngineUnderTest,
) -> None:
    provider, killer, free = ScriptedProvider(), event("killer"), asyncio.Event()
    provider.plans["killer"] = hang
    await engine.publish(killer)

    async def held() -> dict[str, str]:
        record = await engine.deletion(killer)
        return record if record["state"] == "held" else {}

    for times in range(1, 5):
        running = await engine.start(provider, plan_claim=CLAIM)
        if times > 2:
            record = await engine.until("it waits", held)
            await engine.jump(timedelta(milliseconds=int(record["again_at"]) - int(record["held_at"])))
            await engine.tidy()
        await planning(engine, provider, "killer", times)
        await running.crash()
        await engine.silence_entries(CLAIM)
        # The next death is in no crash loop with this one.
        await engine.jump(timedelta(minutes=15))
    await engine.start(provider, plan_claim=CLAIM)
    record = await engine.until("the entry is set aside", held)
    assert list(await engine.members("held")) == [f"deletion:{killer.deletion}"]
    assert record["held"] == "its planner died 3 times while it was planned alone"
    assert int(record["again_at"]) - int(record["held_at"]) == timedelta(hours=1) / timedelta(milliseconds=1)
    assert await engine.pending() == 0
    good = engine.beside(killer, "good")
    await engine.publish(good)
    await engine.until_done(good)

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("one")])

    provider.plans["killer"] = slow
    await engine.jump(timedelta(minutes=59))
    await engine.tidy()
    assert await engine.state(killer) == "held"
    assert provider.planned.count("killer") == 4
    await engine.jump(timedelta(minutes=1))
    await engine.tidy()
    await planning(engine, provider, "killer", 5)
    later = engine.beside(killer, "later")
    await engine.publish(later)

    async def waits() -> bool:
        return later.uid not in provider.planned

    await engine.stays("nothing is planned beside it", waits, timedelta(milliseconds=300))
    free.set()
    await engine.until_done(killer, later)


async def test_an_entry_is_planned_alone_after_its_planner_died(engine: EngineUnderTest) -> None:
    provider, one, free = ScriptedProvider(), event("suspect"), asyncio.Event()
    provider.plans["suspect"] = hang
    first = await engine.start(provider)
    await engine.publish(one)
    await planning(engine, provider, "suspect", 1)
    await first.crash()

    async def slow(event: Event) -> Plan:
        await free.wait()
        return Plan([thing("one")])

    provider.plans["suspect"] = slow
    await engine.silence_entries(CLAIM)
    await engine.start(provider, plan_claim=CLAIM)
    await planning(engine, provider, "suspect", 2)
    later = engine.beside(one, "later")
    await engine.publish(later)

    async def waits() -> bool:
        return later.uid not in provider.planned

    await engine.stays("nothing is planned beside it", waits, timedelta(milliseconds=300))
    free.set()
    await engine.until_done(one, later)


async def test_a_consumer_of_a_dead_worker_goes_only_when_nothing_is_pending_for_it(engine: EngineUnderTest) -> None:
    one = event("a")
    entry = await engine.deliver(one)
    shard = engine.shard(one)
    stream = shard.stem + "events"
    await engine.client.xgroup_createconsumer(stream, "planners", "idler")

    async def expire() -> set[str]:
        await shard.expire(
            finished=timedelta(days=1), audit=timedelta(days=1), audit_entries=1000, lanes=timedelta(days=1),
            consumers=timedelta(milliseconds=1),
        )  # fmt: skip
        return {one["name"].decode() for one in await engine.client.xinfo_consumers(stream, "planners")}

    async def idler_is_gone() -> bool:
        return "idler" not in await expire()

    await engine.until("the consumer without entries is gone", idler_is_gone)
    assert await expire() == {"hand"}
    assert await engine.pending() == 1
    await engine.client.xack(stream, "planners", entry)

    async def all_gone() -> bool:
        return not await expire()

    await engine.until("the other is gone, too", all_gone)
    assert await engine.entries() == [entry]


async def test_a_planner_that_fails_is_asked_again_and_the_deletion_is_shown_as_held_meanwhile(
    engine: EngineUnderTest,
) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = OSError("the API server is away")
    await engine.publish(one)
    await engine.start(provider)

    async def held() -> bool:
        """In one read: it is planned again soon, and not held any more meanwhile."""
        return "the API server is away" in (await engine.deletion(one)).get("held", "")

    await engine.until("it is held", held)
    provider.plans["a"] = Plan([thing("one")])
    await engine.until_done(one)
    assert not await engine.members("held")


async def test_a_planner_that_never_answers_blocks_no_other_deletion(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    other = engine.beside(one, "b")
    provider.plans["a"] = hang
    await engine.publish(one, other)
    await engine.start(provider, planners=1, plan_timeout=timedelta(milliseconds=300))
    await engine.until_done(other)
    # It is held for a moment only, then it is planned again: the audit tells both.
    held = [entry["why"] for entry in await engine.audit("decision") if entry["what"] == "held"]
    assert held
    assert all("TimeoutError" in why for why in held)
    provider.plans["a"] = Plan([thing("one")])
    await engine.until_done(one)
