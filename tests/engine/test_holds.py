"""Deletions that are held for a reason which may pass: when they are planned again, and when not."""

import asyncio
from datetime import timedelta

import pytest

from service.contract import Blocked, Event, Hold, Pending, Plan, Refused, Throttled, Verdict
from service.engine.arrange import arrange
from service.engine.rows import Kept, flat
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from workers.handlers.protocol import NotCleared

WHY = "machines are left"


async def keep(world: World, one: Event, again: int, *, exact: bool) -> float:
    """Held by hand, as a planner would; the answer is how many ms later it is planned again."""
    entry = (await world.entries())[0]
    kept = Kept(entry, "held", WHY, one.deletion, flat(one), again, exact)
    assert await world.shard(one).hold([kept]) == 1
    record = await world.deletion(one)
    return float(record["again_at"]) - float(record["held_at"])


async def look_again(world: World, one: Event, wait: float) -> None:
    await world.jump(timedelta(milliseconds=wait - 5000))
    await world.tidy()
    assert await world.state(one) == "held"
    await world.jump(timedelta(seconds=5))
    await world.tidy()
    assert await world.state(one) == "published"


@pytest.mark.parametrize(("exact", "expected"), [(True, [9000, 9000, 9000]), (False, [18_000, 36_000, 72_000])])
async def test_the_time_of_the_next_planning_is_doubled_unless_it_is_exact(
    world: World, exact: bool, expected: list[float]
) -> None:
    one = event("a")
    await world.deliver(one)
    for wait in expected:
        assert await keep(world, one, 9000, exact=exact) == wait
        await look_again(world, one, wait)


async def test_exact_waits_make_later_ones_no_longer(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    for _ in range(5):
        wait = await keep(world, one, 9000, exact=True)
        await look_again(world, one, wait)
    assert await keep(world, one, 9000, exact=False) == 18_000


async def test_a_planner_that_names_a_time_is_asked_again_at_that_time_each_time(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = Hold(WHY, again=True, after=timedelta(minutes=4))
    await world.publish(one)
    await world.start(outside)
    for times in (1, 2, 3):

        async def held(times: int = times) -> bool:
            return len(outside.planned) == times and await world.state(one) == "held"

        await world.until("it is held", held)
        record = await world.deletion(one)
        assert record["held"] == WHY
        assert float(record["again_at"]) - float(record["held_at"]) == 240_000
        await world.jump(timedelta(minutes=3, seconds=50))
        await world.tidy()
        assert await held()
        await world.jump(timedelta(seconds=10))
    outside.plans["a"] = Plan([thing("one")])
    await world.jump(timedelta(minutes=4))
    await world.until_done(one)
    assert outside.called == ["one"]


async def test_a_time_without_the_word_that_it_may_pass_brings_nothing_back(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = Hold(WHY, after=timedelta(seconds=1))
    await world.publish(one)
    await world.start(outside)

    async def held() -> bool:
        return await world.state(one) == "held"

    await world.until("it is held", held)
    await world.jump(timedelta(hours=1))
    await world.tidy()
    assert await held()
    assert "again_at" not in await world.deletion(one)


async def test_no_time_at_all_is_as_soon_as_can_be(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = Hold(WHY, again=True, after=timedelta(0))
    await world.publish(one)
    await world.start(outside)

    async def asked_again() -> bool:
        return len(outside.planned) >= 2

    await world.until("it is planned again", asked_again)


# ---- since when, and who has to act


async def hold_again(world: World, one: Event, where: str) -> dict[str, str]:
    """Its time comes, it is planned again and held again, in the way that is named; the answer is its record."""
    await world.jump(timedelta(seconds=10))
    await world.tidy()
    entry = (await world.deletion(one))["entry"]
    assert await world.shard(one).hold([Kept(entry, where, WHY, one.deletion, flat(one), 9000, exact=True)]) == 1
    return await world.deletion(one)


@pytest.mark.parametrize("where", ["held", "waiting"])
async def test_what_is_held_again_at_each_recheck_is_held_since_it_began(world: World, where: str) -> None:
    one = event("a")
    await world.deliver(one)
    began = (await hold_again(world, one, where))["held_since"]
    for _ in range(3):
        record = await hold_again(world, one, where)
        assert (record["state"], record["held_since"]) == (where, began)
        assert await world.members(where) == {f"deletion:{one.deletion}": float(began)}
        assert float(record["held_at"]) > float(began)


async def test_what_waited_by_itself_and_needs_a_person_by_now_is_held_since_then(world: World) -> None:
    one = event("a")
    await world.deliver(one)
    began = (await hold_again(world, one, "waiting"))["held_since"]
    record = await hold_again(world, one, "held")
    assert float(record["held_since"]) > float(began)
    assert await world.members("waiting") == {}
    assert await world.members("held") == {f"deletion:{one.deletion}": float(record["held_since"])}


@pytest.mark.parametrize(("waits", "state"), [(True, "waiting"), (False, "held")])
async def test_what_a_planner_waits_for_is_shown_apart_from_what_needs_a_person(
    world: World, waits: bool, state: str
) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = Hold(WHY, again=True, after=timedelta(hours=1), waits=waits)
    await world.publish(one)
    await world.start(outside)

    async def reached() -> bool:
        return await world.state(one) == state

    await world.until(f"it is {state}", reached)
    assert list(await world.members(state)) == [f"deletion:{one.deletion}"]
    assert await world.members("held" if waits else "waiting") == {}
    outside.plans["a"] = Plan([thing("one")])
    await world.jump(timedelta(hours=1))
    await world.until_done(one)
    assert await world.members(state) == {}


async def test_what_would_wait_by_itself_but_is_never_planned_again_needs_a_person(world: World) -> None:
    outside, one = Outside(), event("a")
    outside.plans["a"] = Hold(WHY, waits=True)
    await world.publish(one)
    await world.start(outside)

    async def held() -> bool:
        return await world.state(one) == "held"

    await world.until("it is held", held)


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
    world: World, verdict: Verdict | Exception, index: str
) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("1")]))["1"]
    since = set[float]()
    for _ in range(3):
        await attempted(world, one, verdict)
        ((name, score),) = (await world.members(index)).items()
        assert name == f"job:{job}"
        since.add(score)
        # In between the quota had nothing left: that changes nothing of it.
        await attempted(world, one, Throttled(timedelta(0)))
        # Or the answer is late.
        await attempted(world, one, Pending(timedelta(0), "listing goes on", still=True))
    assert len(since) == 1
    assert await world.members("waiting" if index == "held" else "held") == {}
    await attempted(world, one, Pending(timedelta(0)))
    assert await world.members(index) == {}


async def attempted(world: World, one: Event, verdict: Verdict | Exception) -> None:
    """The first job of the lane is taken, and settled with that verdict, later than anything before."""
    await world.jump(timedelta(hours=1))
    assert await world.settle(await world.take(one, "hand", LANE, 1), "hand", verdict) == [True]


# ---- a person's word on what is just planned again


class Rechecked:
    """A deletion that was held and is on the stream again; its planner has begun, and goes on when a test lets it."""

    def __init__(self, world: World, one: Event) -> None:
        self.world, self.one, self.name = world, one, f"deletion:{one.deletion}"
        self.outside, self.begun, self.free = Outside(), asyncio.Event(), asyncio.Event()
        self.outside.plans[one.uid] = self._plan
        self.plan: Plan | Hold = Plan([thing("one")])

    async def _plan(self, _: Event) -> Plan | Hold:
        self.begun.set()
        await self.free.wait()
        return self.plan

    async def begin(self) -> None:
        await self.world.deliver(self.one)
        wait = await keep(self.world, self.one, 9000, exact=True)
        await look_again(self.world, self.one, wait)
        await self.world.start(self.outside)
        await self.begun.wait()
        assert await self.world.state(self.one) == "published"
        assert await self.world.members("held") == {}

    async def until_read(self) -> None:
        async def read() -> bool:
            return not await self.world.entries()

        await self.world.until("nothing is left on the stream", read)


@pytest.mark.invariant(10)
async def test_what_is_dropped_while_it_is_planned_again_stays_dropped(world: World) -> None:
    rechecked = Rechecked(world, event("a"))
    await rechecked.begin()
    assert await world.shard(rechecked.one).unhold(rechecked.name, replay=False, who="ann") == "dropped"
    rechecked.free.set()
    await rechecked.until_read()
    assert await world.state(rechecked.one) == "dropped"
    assert await world.members("open") == {}
    assert rechecked.outside.called == []


async def test_what_is_replayed_while_it_is_planned_again_is_planned_once_more(world: World) -> None:
    """Whoever plans it may have looked before the word was given, and holds it."""
    rechecked = Rechecked(world, event("a"))
    rechecked.plan = Hold(WHY)
    await rechecked.begin()
    shard, fields = world.shard(rechecked.one), list(flat(rechecked.one))
    # From here on whoever looks finds the reason gone.
    rechecked.outside.plans["a"] = Plan([thing("one")])
    assert await shard.unhold(rechecked.name, replay=True, who="ann", event=fields) == "replayed"
    rechecked.free.set()
    await world.until_done(rechecked.one)
    assert rechecked.outside.called == ["one"]


@pytest.mark.parametrize("replay", [True, False])
async def test_a_word_counts_for_nothing_that_was_not_held_or_is_planned(world: World, replay: bool) -> None:
    never, planned, anew = event("never"), event("planned"), event("anew")
    await world.deliver(never)
    for one in (planned, anew):
        await world.deliver(one)
        (entry,) = [entry for entry in await world.entries() if entry == (await world.deletion(one))["entry"]]
        kept = Kept(entry, "held", WHY, one.deletion, flat(one), 9000, exact=True)
        assert await world.shard(one).hold([kept]) == 1
    await world.jump(timedelta(seconds=10))
    await world.tidy()
    for one in (planned, anew):
        entry = (await world.deletion(one))["entry"]
        arranged = arrange(one, [thing(one.uid)], timedelta(minutes=1))
        assert (await world.shard(one).plan_whole(one, entry, arranged)).state == "planned"
    # A hand removed the records of its jobs: it is planned anew, and may be in somebody's hands.
    await world.client.delete(world.shard(anew).stem + f"job:{anew.deletion}#1")
    await world.jump(timedelta(minutes=10))
    await world.tidy()
    assert await world.state(anew) == "published"
    for one in (never, planned, anew):
        before = await world.deletion(one)
        name = f"deletion:{one.deletion}"
        assert await world.shard(one).unhold(name, replay=replay, who="ann", event=list(flat(one))) == "unknown"
        assert await world.deletion(one) == before
