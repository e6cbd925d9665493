"""One deletion from event to done: chains, stages, release, empty and invalid plans."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Hold, Job, Plan, Refused, Verdict
from service.engine.script_arguments import event_fields
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from workers.handlers.protocol import Batch


class FailingRelease:
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
async def test_an_event_becomes_jobs_and_ends_done(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going = provider.has("a", [thing("one"), thing("two", lane="sim/acct/other")])
    await engine.publish(going)
    await engine.start(provider)
    await engine.until_done(going)
    assert sorted(provider.called) == ["one", "two"]
    assert [(await engine.job(job))["state"] for job in await engine.jobs_of(going)] == ["gone"] * 3
    assert going.deletion in await engine.members("finished")
    assert not await engine.members("open")
    assert not await engine.entries()
    assert not await engine.pending()


@pytest.mark.every_server
async def test_stages_of_a_chain_wait_for_each_other_and_chains_do_not(engine: EngineUnderTest) -> None:
    provider, free = ScriptedProvider(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await free.wait()
        await provider.call(job, batch)
        return Gone()

    provider.answers["slow"] = [slow]
    going = provider.has(
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
    release = FailingRelease()
    await engine.publish(going)
    await engine.start(provider, release=release)

    async def third_is_gone() -> bool:
        return "third" in provider.called

    await engine.until("the other chain has ended", third_is_gone)
    assert [name for name in provider.called if name in ("first", "second", "third")] == [
        "first",
        "second",
        "third",
    ]
    assert "after slow" not in provider.called
    assert not release.tried
    free.set()
    await engine.until_done(going)
    assert provider.called.index("slow") < provider.called.index("after slow")
    assert release.tried == [going.deletion]


@pytest.mark.every_server
@pytest.mark.invariant(4)
async def test_the_release_comes_last_and_done_only_after_it_succeeded(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    release = FailingRelease(RuntimeError("the API server is away"), Refused("not allowed"))
    engine.change("retry", refused_recheck=timedelta(milliseconds=20))
    going = provider.has("a", [thing("one")])
    release.free.clear()
    await engine.publish(going)
    await engine.start(provider, release=release)

    async def releasing() -> bool:
        return await engine.state(going) == "releasing"

    await engine.until("only the release is left", releasing)
    assert provider.called == ["one"]
    record = await engine.deletion(going)
    assert "done_at" not in record
    release.free.set()
    await engine.until_done(going)
    assert release.tried == [going.deletion] * 3
    last = await engine.job((await engine.jobs_of(going))[-1])
    assert last["state"] == "gone"
    assert last["attempts"] == "1"
    assert not await engine.members("held")


async def test_an_empty_plan_leaves_only_the_release(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going = provider.has("a", [])
    release = FailingRelease()
    await engine.publish(going)
    await engine.start(provider, release=release)
    await engine.until_done(going)
    assert release.tried == [going.deletion]
    assert not provider.called


async def test_a_deletion_that_is_known_is_published_once(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    going = provider.has("a", [thing("one")])
    await engine.publish(going)
    (again,) = await engine.installation.publish([going])
    assert again.state == "published"
    assert len(await engine.entries()) == 1
    await engine.start(provider)
    await engine.until_done(going)
    (finished,) = await engine.installation.publish([going])
    assert finished.state == "done"
    (other,) = await engine.installation.publish([event("a", round=2)])
    assert other.state == "added"


async def test_a_planner_that_can_not_tell_holds_the_deletion_with_its_reason(engine: EngineUnderTest) -> None:
    engine.change("retry", base=timedelta(hours=1), cap=timedelta(hours=1))
    provider = ScriptedProvider()
    provider.plans["a"] = Hold("no policy is known for it")
    provider.plans["b"] = ZeroDivisionError("a fault in the planner")
    provider.plans["c"] = Plan([thing("one", lane="nowhere")])
    events = [event(uid) for uid in "abcd"]
    await engine.publish(*events)
    await engine.start(provider)
    await engine.until_done(events[3])

    async def held() -> bool:
        return set(await engine.members("held")) == {f"deletion:{one.deletion}" for one in events[:3]}

    await engine.until("three deletions are held", held)
    assert (await engine.deletion(events[0]))["held"] == "no policy is known for it"
    assert "ZeroDivisionError: a fault in the planner" in (await engine.deletion(events[1]))["held"]
    assert "lane 'nowhere'" in (await engine.deletion(events[2]))["held"]
    assert not await engine.pending()


async def test_a_held_deletion_that_is_replayed_is_planned_anew(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    provider.plans["a"] = Hold("wait")
    going = event("a")
    await engine.publish(going)
    await engine.start(provider)

    async def held() -> bool:
        return await engine.state(going) == "held"

    await engine.until("it is held", held)
    provider.plans["a"] = Plan([thing("one")])
    word = await engine.shard(going).unhold(
        f"deletion:{going.deletion}", replay=True, who="tests", event=event_fields(going)
    )
    assert word == "replayed"
    await engine.until_done(going)
    assert provider.called == ["one"]
    assert not await engine.members("held")


async def test_a_held_deletion_that_is_dropped_ends_without_a_call(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    provider.plans["a"] = Hold("wait")
    going = event("a")
    await engine.publish(going)
    await engine.start(provider)

    async def held() -> bool:
        return await engine.state(going) == "held"

    await engine.until("it is held", held)
    assert await engine.shard(going).unhold(f"deletion:{going.deletion}", replay=False, who="tests") == "dropped"
    assert await engine.state(going) == "dropped"
    assert not await engine.members("open")
    assert not provider.called
    assert await engine.decisions("dropped") == [f"deletion:{going.deletion}"]


@pytest.mark.parametrize("lie", [{"name": "ghost"}, {"namespace": "nowhere"}, {"source": "another"}])
async def test_what_is_held_under_a_wrong_name_is_not_in_the_way_of_the_truth(
    engine: EngineUnderTest, lie: dict[str, str]
) -> None:
    """A uid has one name for ever: an event that told another one was forged."""
    held, true = event("a", **lie), event("a")
    provider = ScriptedProvider()
    provider.plans["a"] = Hold("there is no ghost")
    await engine.publish(held)
    await engine.start(provider)

    async def is_held() -> bool:
        return await engine.state(held) == "held"

    await engine.until("it is held", is_held)
    provider.plans["a"] = Plan([thing("x")])
    assert [answer.state for answer in await engine.installation.publish([held])] == ["held"]
    assert [answer.state for answer in await engine.installation.publish([true])] == ["added"]
    await engine.until_done(true)
    assert (await engine.deletion(true))["name"] == true.name
    assert not await engine.members("held")
    assert (await engine.stats())["published"] == 1
