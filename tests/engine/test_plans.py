"""Large plans: written in chunks, invisible until the last one, opened in steps; unfinished plans are removed."""

from datetime import timedelta

import pytest

from service.contract import Event
from service.engine.plan_layout import lay_out_plan
from service.engine.script_arguments import CHUNK, PlanRow, plan_rows
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

LARGE = 50_000


def chunks(engine: EngineUnderTest, one: Event, entry: str, count: int, name: str = "t") -> list[PlanRow]:
    targets = [thing(f"{name}{number}") for number in range(count)]
    return list(plan_rows(one, entry, lay_out_plan(one, targets, engine.settings.retry.best_effort_deadline)))


async def visible(engine: EngineUnderTest, one: Event) -> bool:
    """Whether anything of the plan can be taken, or waits for being opened."""
    look = await engine.shard(one).due_lanes(10)
    return bool(look.lanes or await engine.members("opening") or await engine.queue(LANE))


@pytest.mark.long
async def test_a_plan_of_50000_targets_is_invisible_until_its_last_chunk_and_then_drains(
    engine: EngineUnderTest,
) -> None:
    provider, one = ScriptedProvider(), event("large")
    entry = await engine.deliver(one)
    parts = chunks(engine, one, entry, LARGE)
    assert max(len(part.jobs) for part in parts) <= CHUNK
    shard, number = engine.shard(one), 0
    for part in parts[:-1]:
        (answer,) = await shard.plan([part._replace(number=number)])
        assert answer.state == "writing"
        number = answer.number
    assert not await visible(engine, one)
    assert await engine.state(one) == "published"
    assert await engine.entries() == [entry]

    (answer,) = await shard.plan([parts[-1]._replace(number=number)])
    assert answer.state == "planned"
    assert await engine.state(one) == "running"
    assert await engine.entries() == []
    moved, left = await shard.open_stages()
    assert (moved, left) == (CHUNK, 1)
    assert len(await engine.queue(LANE)) == CHUNK

    # The rest is opened by whoever comes, from where it is.
    await engine.start(provider, concurrency=2000, lane_cap=1000, batch=500)
    await engine.until_done(one, within=timedelta(minutes=5))
    assert len(provider.calls) == LARGE
    assert len(set(provider.called)) == LARGE
    assert (await engine.deletion(one))["left.0"] == "0"


@pytest.mark.every_server
async def test_chunks_of_a_planner_that_died_halfway_are_removed_and_another_plan_takes_over(
    engine: EngineUnderTest,
) -> None:
    provider = ScriptedProvider()
    one = provider.has("a", [thing("fresh")])
    entry = await engine.deliver(one)
    parts = chunks(engine, one, entry, 3 * CHUNK, "stale")
    shard = engine.shard(one)
    (first,) = await shard.plan([parts[0]])
    await shard.plan([parts[1]._replace(number=first.number)])
    litter = f"{shard.stem}job:{one.deletion}#{first.number}"
    assert await engine.client.hlen(litter) == 2 * CHUNK
    assert not await visible(engine, one)

    # It was delivered to a planner called `hand`, who is silent from now on.
    await engine.start(provider, plan_claim=timedelta(milliseconds=100))
    await engine.until_done(one)
    assert provider.called == ["fresh"]
    assert not await engine.client.exists(litter)

    # The dead one wakes up and goes on: it changes nothing.
    for part in parts[2:]:
        (late,) = await shard.plan([part._replace(number=first.number)])
        assert late.state == "stale"
    assert await engine.state(one) == "done"
    assert not await engine.client.exists(litter)


async def test_a_slow_planner_loses_to_a_plan_that_began_later(engine: EngineUnderTest) -> None:
    one = event("a")
    entry = await engine.deliver(one)
    slow = chunks(engine, one, entry, 2 * CHUNK, "slow")
    quick = chunks(engine, one, entry, 2 * CHUNK, "quick")
    shard = engine.shard(one)
    (begun,) = await shard.plan([slow[0]])
    (other,) = await shard.plan([quick[0]])
    assert other.number == begun.number + 1
    (late,) = await shard.plan([slow[1]._replace(number=begun.number)])
    assert late.state == "stale"
    assert await engine.state(one) == "published"
    (final,) = await shard.plan([part._replace(number=other.number) for part in quick[1:2]])
    assert final.state == "writing"
    (final,) = await shard.plan([quick[2]._replace(number=other.number)])
    assert final.state == "planned"
    record = await engine.deletion(one)
    assert record["plan"] == str(other.number)
    assert (await engine.job(f"{one.deletion}#{other.number}.0"))["target"] == "quick0"
    assert not await engine.client.exists(f"{shard.stem}job:{one.deletion}#{begun.number}")


async def test_a_finished_deletion_is_not_planned_again_by_a_leftover_entry(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = provider.has("a", [thing("one")])
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    shard = engine.shard(one)
    await engine.client.xadd(shard.stem + "events", one.fields())
    await engine.publish(event("later"))
    await engine.until_done(event("later"))

    async def acked() -> bool:
        return not await engine.pending() and not await engine.entries()

    await engine.until("the leftover is acked", acked)
    assert await engine.state(one) == "done"
    assert provider.called.count("one") == 1


@pytest.mark.long
async def test_no_call_is_too_large_for_a_script(engine: EngineUnderTest) -> None:
    """More than Lua can spread over one command, in every move that takes many."""
    one = event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(9_000)])
    taken = await engine.take(one, "hand", LANE, 9_000, cap=10_000)
    assert len(taken.lanes[0].jobs) == 9_000
    assert all(await engine.settle(taken, "hand", OSError("no")))
    await engine.jump(timedelta(minutes=1))
    taken = await engine.take(one, "hand", LANE, 9_000, cap=10_000)
    await engine.jump(timedelta(minutes=5))
    shard = engine.shard(one)
    given: list[str] = []
    while back := (await shard.reclaim(silence=timedelta(seconds=30), most=20_000)).given_back:
        given += back
    assert len(given) == 9_000
    assert len(await engine.members("alone")) == 9_000
    events = [event(f"e{number}") for number in range(9_000)]
    await engine.publish(*events)
    await engine.tidy()
    assert (await engine.stats())["published"] == 9_001
