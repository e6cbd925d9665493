"""Held deletions: when they are planned again, and when not."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Blocked, Event, Hold, Pending, Plan, Refused, Throttled, Verdict
from service.engine.plan_layout import lay_out_plan
from service.engine.script_arguments import UnplannedEvent, event_fields
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.handlers.protocol import NotCleared

WHY = "machines are left"


async def keep(engine: EngineUnderTest, one: Event, again: int, *, exact: bool) -> float:
    """Held by hand, as a planner would; the answer is how many ms later it is planned again."""
    entry = (await engine.entries())[0]
    kept = UnplannedEvent(entry, "held", WHY, one.deletion, event_fields(one), again, exact)
    assert await engine.shard(one).hold([kept]) == 1
    record = await engine.deletion(one)
    return float(record["again_at"]) - float(record["held_at"])


async def look_again(engine: EngineUnderTest, one: Event, wait: float) -> None:
    await engine.jump(timedelta(milliseconds=wait - 5000))
    await engine.tidy()
    assert await engine.state(one) == "held"
    await engine.jump(timedelta(seconds=5))
    await engine.tidy()
    assert await engine.state(one) == "published"


@pytest.mark.parametrize(("exact", "expected"), [(True, [9000, 9000, 9000]), (False, [18_000, 36_000, 72_000])])
async def test_the_time_of_the_next_planning_is_doubled_unless_it_is_exact(
    engine: EngineUnderTest, exact: bool, expected: list[float]
) -> None:
    one = event("a")
    await engine.deliver(one)
    for wait in expected:
        assert await keep(engine, one, 9000, exact=exact) == wait
        await look_again(engine, one, wait)


async def test_exact_waits_make_later_ones_no_longer(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.deliver(one)
    for _ in range(5):
        wait = await keep(engine, one, 9000, exact=True)
        await look_again(engine, one, wait)
    assert await keep(engine, one, 9000, exact=False) == 18_000


async def test_a_planner_that_names_a_time_is_asked_again_at_that_time_each_time(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = Hold(WHY, again=True, after=timedelta(minutes=4))
    await engine.publish(one)
    await engine.start(provider)
    for times in (1, 2, 3):

        async def held(times: int = times) -> bool:
            return len(provider.planned) == times and await engine.state(one) == "held"

        await engine.until("it is held", held)
        record = await engine.deletion(one)
        assert record["held"] == WHY
        assert float(record["again_at"]) - float(record["held_at"]) == 240_000
        await engine.jump(timedelta(minutes=3, seconds=50))
        await engine.tidy()
        assert await held()
        await engine.jump(timedelta(seconds=10))
    provider.plans["a"] = Plan([thing("one")])
    await engine.jump(timedelta(minutes=4))
    await engine.until_done(one)
    assert provider.called == ["one"]


async def test_a_time_without_the_word_that_it_may_pass_brings_nothing_back(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = Hold(WHY, after=timedelta(seconds=1))
    await engine.publish(one)
    await engine.start(provider)

    async def held() -> bool:
        return await engine.state(one) == "held"

    await engine.until("it is held", held)
    await engine.jump(timedelta(hours=1))
    await engine.tidy()
    assert await held()
    assert "again_at" not in await engine.deletion(one)


async def test_no_time_at_all_is_as_soon_as_can_be(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = Hold(WHY, again=True, after=timedelta(0))
    await engine.publish(one)
    await engine.start(provider)

    async def asked_again() -> bool:
        return len(provider.planned) >= 2

    await engine.until("it is planned again", asked_again)


# ---- since when, and who has to act


async def hold_again(engine: EngineUnderTest, one: Event, where: str) -> dict[str, str]:
    """Its time comes, it is planned again and held again, in the way that is named; the answer is its record."""
    await engine.jump(timedelta(seconds=10))
    await engine.tidy()
    entry = (await engine.deletion(one))["entry"]
    assert (
        await engine.shard(one).hold(
            [UnplannedEvent(entry, where, WHY, one.deletion, event_fields(one), 9000, exact=True)]
        )
        == 1
    )
    return await engine.deletion(one)


@pytest.mark.parametrize("where", ["held", "waiting"])
async def test_what_is_held_again_at_each_recheck_is_held_since_it_began(engine: EngineUnderTest, where: str) -> None:
    one = event("a")
    await engine.deliver(one)
    began = (await hold_again(engine, one, where))["held_since"]
    for _ in range(3):
        record = await hold_again(engine, one, where)
        assert (record["state"], record["held_since"]) == (where, began)
        assert await engine.members(where) == {f"deletion:{one.deletion}": float(began)}
        assert float(record["held_at"]) > float(began)


async def test_what_waited_by_itself_and_needs_a_person_by_now_is_held_since_then(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.deliver(one)
    began = (await hold_again(engine, one, "waiting"))["held_since"]
    record = await hold_again(engine, one, "held")
    assert float(record["held_since"]) > float(began)
    assert await engine.members("waiting") == {}
    assert await engine.members("held") == {f"deletion:{one.deletion}": float(record["held_since"])}


@pytest.mark.parametrize(("waits", "state"), [(True, "waiting"), (False, "held")])
async def test_what_a_planner_waits_for_is_shown_apart_from_what_needs_a_person(
    engine: EngineUnderTest, waits: bool, state: str
) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = Hold(WHY, again=True, after=timedelta(hours=1), waits=waits)
    await engine.publish(one)
    await engine.start(provider)

    async def reached() -> bool:
        return await engine.state(one) == state

    await engine.until(f"it is {state}", reached)
    assert list(await engine.members(state)) == [f"deletion:{one.deletion}"]
    assert await engine.members("held" if waits else "waiting") == {}
    provider.plans["a"] = Plan([thing("one")])
    await engine.jump(timedelta(hours=1))
    await engine.until_done(one)
    assert await engine.members(state) == {}


async def test_what_would_wait_by_itself_but_is_never_planned_again_needs_a_person(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.plans["a"] = Hold(WHY, waits=True)
    await engine.publish(one)
    await engine.start(provider)

    async def held() -> bool:
        return await engine.state(one) == "held"

    await engine.until("it is held", held)


@pytest.mark.parametrize(
    ("verdict", "index"),
    [
        (Refused("tagged with another owner"), "held"),
        (Blocked("a virtual machine"), "waiting"),
        (NotCleared("protected", refused=True), "held"),
        (NotCleared("a Machine is there again", refused=True, waits=True), "waiting"),
    ],
    ids=str,
)
async def test_a_job_is_shown_since_it_began_to_be_held_or_to_wait(
    engine: EngineUnderTest, verdict: Verdict | Exception, index: str
) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("1")]))["1"]
    since = set[float]()
    for _ in range(3):
        await attempted(engine, one, verdict)
        ((name, score),) = (await engine.members(index)).items()
        assert name == f"job:{job}"
        since.add(score)
        # In between the quota had nothing left: that changes nothing of it.
        await attempted(engine, one, Throttled(timedelta(0)))
        # Or the answer is late.
        await attempted(engine, one, Pending(timedelta(0), "listing goes on", still=True))
    assert len(since) == 1
    assert await engine.members("waiting" if index == "held" else "held") == {}
    await attempted(engine, one, Pending(timedelta(0)))
    assert await engine.members(index) == {}


async def attempted(engine: EngineUnderTest, one: Event, verdict: Verdict | Exception) -> None:
    """The first job of the lane is taken, and settled with that verdict, later than anything before."""
    await engine.jump(timedelta(hours=1))
    assert await engine.settle(await engine.take(one, "hand", LANE, 1), "hand", verdict) == [True]


# ---- a person's word on what is just planned again


class RecheckedDeletion:
    """A deletion that was held and is on the stream again; its planner has begun, and goes on when a test lets it."""

    def __init__(self, engine: EngineUnderTest, one: Event) -> None:
        self.engine, self.one, self.name = engine, one, f"deletion:{one.deletion}"
        self.provider, self.begun, self.free = ScriptedProvider(), asyncio.Event(), asyncio.Event()
        self.provider.plans[one.uid] = self._plan
        self.plan: Plan | Hold = Plan([thing("one")])

    async def _plan(self, _: Event) -> Plan | Hold:
        self.begun.set()
        await self.free.wait()
        return self.plan

    async def begin(self) -> None:
        await self.engine.deliver(self.one)
        wait = await keep(self.engine, self.one, 9000, exact=True)
        await look_again(self.engine, self.one, wait)
        await self.engine.start(self.provider)
        await self.begun.wait()
        assert await self.engine.state(self.one) == "published"
        assert await self.engine.members("held") == {}

    async def until_read(self) -> None:
        async def read() -> bool:
            return not await self.engine.entries()

        await self.engine.until("nothing is left on the stream", read)


@pytest.mark.invariant(10)
async def test_what_is_dropped_while_it_is_planned_again_stays_dropped(engine: EngineUnderTest) -> None:
    rechecked = RecheckedDeletion(engine, event("a"))
    await rechecked.begin()
    assert await engine.shard(rechecked.one).unhold(rechecked.name, replay=False, who="ann") == "dropped"
    rechecked.free.set()
    await rechecked.until_read()
    assert await engine.state(rechecked.one) == "dropped"
    assert await engine.members("open") == {}
    assert rechecked.provider.called == []


async def test_what_is_replayed_while_it_is_planned_again_is_planned_once_more(engine: EngineUnderTest) -> None:
    """Whoever plans it may have looked before the word was given, and holds it."""
    rechecked = RecheckedDeletion(engine, event("a"))
    rechecked.plan = Hold(WHY)
    await rechecked.begin()
    shard, fields = engine.shard(rechecked.one), list(event_fields(rechecked.one))
    # From here on whoever looks finds the reason gone.
    rechecked.provider.plans["a"] = Plan([thing("one")])
    assert await shard.unhold(rechecked.name, replay=True, who="ann", event=fields) == "replayed"
    rechecked.free.set()
    await engine.until_done(rechecked.one)
    assert rechecked.provider.called == ["one"]


@pytest.mark.parametrize("replay", [True, False])
async def test_a_word_counts_for_nothing_that_was_not_held_or_is_planned(engine: EngineUnderTest, replay: bool) -> None:
    never, planned, anew = event("never"), event("planned"), event("anew")
    await engine.deliver(never)
    for one in (planned, anew):
        await engine.deliver(one)
        (entry,) = [entry for entry in await engine.entries() if entry == (await engine.deletion(one))["entry"]]
        kept = UnplannedEvent(entry, "held", WHY, one.deletion, event_fields(one), 9000, exact=True)
        assert await engine.shard(one).hold([kept]) == 1
    await engine.jump(timedelta(seconds=10))
    await engine.tidy()
    for one in (planned, anew):
        entry = (await engine.deletion(one))["entry"]
        arranged = lay_out_plan(one, [thing(one.uid)], timedelta(minutes=1))
        assert (await engine.shard(one).plan_whole(one, entry, arranged)).state == "planned"
    # The records of its jobs were removed by hand: it is planned anew, and a planner may have it.
    await engine.client.delete(engine.shard(anew).stem + f"job:{anew.deletion}#1")
    await engine.jump(timedelta(minutes=10))
    await engine.tidy()
    assert await engine.state(anew) == "published"
    for one in (never, planned, anew):
        before = await engine.deletion(one)
        name = f"deletion:{one.deletion}"
        assert (
            await engine.shard(one).unhold(name, replay=replay, who="ann", event=list(event_fields(one))) == "unknown"
        )
        assert await engine.deletion(one) == before
