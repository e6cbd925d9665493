"""One deletion from event to done: chains, stages, release, empty and unusable plans."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Hold, Job, Plan, Refused, Verdict
from service.engine.rows import flat
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World
from workers.handlers.protocol import Batch


class Reluctant:
    """A release handler that gives the answers it was told, then succeeds."""

    kind = "release"

    def __init__(self, *answers: Verdict | Exception) -> None:
        self.answers = list(answers)
        self.tried: list[str] = []
        self.free = asyncio.Event()
        self.free.set()

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return () if lane.endswith("/release") else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        await self.free.wait()
        await batch.clear(*batch.jobs)
        for job in batch.jobs:
            self.tried.append(job.deletion)
            yield job, self.answers.pop(0) if self.answers else Gone("released")


@pytest.mark.every_server
async def test_an_event_becomes_jobs_and_ends_done(world: World) -> None:
    outside = Outside()
    going = outside.has("a", [thing("one"), thing("two", lane="sim/acct/other")])
    await world.publish(going)
    await world.start(outside)
    await world.until_done(going)
    assert sorted(outside.called) == ["one", "two"]
    assert [(await world.job(job))["state"] for job in await world.jobs_of(going)] == ["gone"] * 3
    assert going.deletion in await world.members("finished")
    assert not await world.members("open")
    assert not await world.entries()
    assert not await world.pending()


@pytest.mark.every_server
async def test_stages_of_a_chain_wait_for_each_other_and_chains_do_not(world: World) -> None:
    outside, free = Outside(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await free.wait()
        await outside.call(job, batch)
        return Gone()

    outside.answers["slow"] = [slow]
    going = outside.has(
        "a",
        [
            thing("slow", chain="left", stage=0),
            thing("quick", chain="left", stage=0),
            thing("after slow", chain="left", stage=5),
            thing("first", chain="right", stage=0),
            thing("second", chain="right", stage=1),
            thing("third", chain="right", stage=2),
        ],
    )
    release = Reluctant()
    await world.publish(going)
    await world.start(outside, release=release)

    async def third_is_gone() -> bool:
        return "third" in outside.called

    await world.until("the other chain has ended", third_is_gone)
    assert [name for name in outside.called if name in ("first", "second", "third")] == [
        "first",
        "second",
        "third",
    ]
    assert "after slow" not in outside.called
    assert not release.tried
    free.set()
    await world.until_done(going)
    assert outside.called.index("slow") < outside.called.index("after slow")
    assert release.tried == [going.deletion]


@pytest.mark.every_server
@pytest.mark.invariant(4)
async def test_the_release_comes_last_and_done_only_after_it_succeeded(world: World) -> None:
    outside = Outside()
    release = Reluctant(RuntimeError("the API server is away"), Refused("not allowed"))
    world.change("retry", refused_recheck=timedelta(milliseconds=20))
    going = outside.has("a", [thing("one")])
    release.free.clear()
    await world.publish(going)
    await world.start(outside, release=release)

    async def releasing() -> bool:
        return await world.state(going) == "releasing"

    await world.until("only the release is left", releasing)
    assert outside.called == ["one"]
    record = await world.deletion(going)
    assert "done_at" not in record
    release.free.set()
    await world.until_done(going)
    assert release.tried == [going.deletion] * 3
    last = await world.job((await world.jobs_of(going))[-1])
    assert last["state"] == "gone"
    assert last["attempts"] == "1"
    assert not await world.members("held")


async def test_an_empty_plan_leaves_only_the_release(world: World) -> None:
    outside = Outside()
    going = outside.has("a", [])
    release = Reluctant()
    await world.publish(going)
    await world.start(outside, release=release)
    await world.until_done(going)
    assert release.tried == [going.deletion]
    assert not outside.called


async def test_a_deletion_that_is_known_is_published_once(world: World) -> None:
    outside = Outside()
    going = outside.has("a", [thing("one")])
    await world.publish(going)
    (again,) = await world.installation.publish([going])
    assert again.state == "published"
    assert len(await world.entries()) == 1
    await world.start(outside)
    await world.until_done(going)
    (finished,) = await world.installation.publish([going])
    assert finished.state == "done"
    (other,) = await world.installation.publish([event("a", round=2)])
    assert other.state == "added"


async def test_a_planner_that_can_not_tell_holds_the_deletion_with_its_reason(world: World) -> None:
    world.change("retry", base=timedelta(hours=1), cap=timedelta(hours=1))
    outside = Outside()
    outside.plans["a"] = Hold("no policy is known for it")
    outside.plans["b"] = ZeroDivisionError("a fault in the planner")
    outside.plans["c"] = Plan([thing("one", lane="nowhere")])
    events = [event(uid) for uid in "abcd"]
    await world.publish(*events)
    await world.start(outside)
    await world.until_done(events[3])

    async def held() -> bool:
        return set(await world.members("held")) == {f"deletion:{one.deletion}" for one in events[:3]}

    await world.until("three deletions are held", held)
    assert (await world.deletion(events[0]))["held"] == "no policy is known for it"
    assert "ZeroDivisionError: a fault in the planner" in (await world.deletion(events[1]))["held"]
    assert "lane 'nowhere'" in (await world.deletion(events[2]))["held"]
    assert not await world.pending()


async def test_a_held_deletion_that_is_replayed_is_planned_anew(world: World) -> None:
    outside = Outside()
    outside.plans["a"] = Hold("wait")
    going = event("a")
    await world.publish(going)
    await world.start(outside)

    async def held() -> bool:
        return await world.state(going) == "held"

    await world.until("it is held", held)
    outside.plans["a"] = Plan([thing("one")])
    word = await world.shard(going).unhold(f"deletion:{going.deletion}", replay=True, who="tests", event=flat(going))
    assert word == "replayed"
    await world.until_done(going)
    assert outside.called == ["one"]
    assert not await world.members("held")


async def test_a_held_deletion_that_is_dropped_ends_without_a_call(world: World) -> None:
    outside = Outside()
    outside.plans["a"] = Hold("wait")
    going = event("a")
    await world.publish(going)
    await world.start(outside)

    async def held() -> bool:
        return await world.state(going) == "held"

    await world.until("it is held", held)
    assert await world.shard(going).unhold(f"deletion:{going.deletion}", replay=False, who="tests") == "dropped"
    assert await world.state(going) == "dropped"
    assert not await world.members("open")
    assert not outside.called
    assert await world.decisions("dropped") == [f"deletion:{going.deletion}"]


@pytest.mark.parametrize("lie", [{"name": "ghost"}, {"namespace": "nowhere"}, {"source": "another"}])
async def test_what_is_held_under_a_wrong_name_is_not_in_the_way_of_the_truth(
    world: World, lie: dict[str, str]
) -> None:
    """A uid has one name for ever: an event that told another one was forged."""
    held, true = event("a", **lie), event("a")
    outside = Outside()
    outside.plans["a"] = Hold("there is no ghost")
    await world.publish(held)
    await world.start(outside)

    async def is_held() -> bool:
        return await world.state(held) == "held"

    await world.until("it is held", is_held)
    outside.plans["a"] = Plan([thing("x")])
    assert [answer.state for answer in await world.installation.publish([held])] == ["held"]
    assert [answer.state for answer in await world.installation.publish([true])] == ["added"]
    await world.until_done(true)
    assert (await world.deletion(true))["name"] == true.name
    assert not await world.members("held")
    assert (await world.stats())["published"] == 1
