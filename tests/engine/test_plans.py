"""Large plans: written in chunks, invisible until one flip, opened in steps; what a dead planner wrote is litter."""

from datetime import timedelta

import pytest

from service.contract import Event
from service.engine.arrange import arrange
from service.engine.rows import CHUNK, PlanRow, rows
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World

LARGE = 50_000


def chunks(world: World, one: Event, entry: str, count: int, name: str = "t") -> list[PlanRow]:
    targets = [thing(f"{name}{number}") for number in range(count)]
    return list(rows(one, entry, arrange(one, targets, world.settings.retry.best_effort_deadline)))


async def visible(world: World, one: Event) -> bool:
    """Whether anything of the plan can be taken, or waits for being opened."""
    look = await world.shard(one).look(10)
    return bool(look.lanes or await world.members("opening") or await world.queue(LANE))


@pytest.mark.long
async def test_a_plan_of_50000_targets_is_invisible_until_its_last_chunk_and_then_drains(world: World) -> None:
    outside, one = Outside(), event("large")
    entry = await world.deliver(one)
    parts = chunks(world, one, entry, LARGE)
    assert max(len(part.jobs) for part in parts) <= CHUNK
    shard, number = world.shard(one), 0
    for part in parts[:-1]:
        (answer,) = await shard.plan([part._replace(number=number)])
        assert answer.state == "writing"
        number = answer.number
    assert not await visible(world, one)
    assert await world.state(one) == "published"
    assert await world.entries() == [entry]

    (answer,) = await shard.plan([parts[-1]._replace(number=number)])
    assert answer.state == "planned"
    assert await world.state(one) == "running"
    assert await world.entries() == []
    moved, left = await shard.open()
    assert (moved, left) == (CHUNK, 1)
    assert len(await world.queue(LANE)) == CHUNK

    # The rest is opened by whoever comes, from where it is.
    await world.start(outside, concurrency=2000, lane_cap=1000, batch=500)
    await world.until_done(one, within=timedelta(minutes=5))
    assert len(outside.calls) == LARGE
    assert len(set(outside.called)) == LARGE
    assert (await world.deletion(one))["left.0"] == "0"


@pytest.mark.every_server
async def test_chunks_of_a_planner_that_died_halfway_are_removed_and_another_plan_takes_over(world: World) -> None:
    outside = Outside()
    one = outside.has("a", [thing("fresh")])
    entry = await world.deliver(one)
    parts = chunks(world, one, entry, 3 * CHUNK, "stale")
    shard = world.shard(one)
    (first,) = await shard.plan([parts[0]])
    await shard.plan([parts[1]._replace(number=first.number)])
    litter = f"{shard.stem}job:{one.deletion}#{first.number}"
    assert await world.client.hlen(litter) == 2 * CHUNK
    assert not await visible(world, one)

    # It was delivered to a planner called `hand`, who is silent from now on.
    await world.start(outside, plan_claim=timedelta(milliseconds=100))
    await world.until_done(one)
    assert outside.called == ["fresh"]
    assert not await world.client.exists(litter)

    # The dead one wakes up and goes on: it changes nothing.
    for part in parts[2:]:
        (late,) = await shard.plan([part._replace(number=first.number)])
        assert late.state == "stale"
    assert await world.state(one) == "done"
    assert not await world.client.exists(litter)


async def test_a_slow_planner_loses_to_a_plan_that_began_later(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    slow = chunks(world, one, entry, 2 * CHUNK, "slow")
    quick = chunks(world, one, entry, 2 * CHUNK, "quick")
    shard = world.shard(one)
    (begun,) = await shard.plan([slow[0]])
    (other,) = await shard.plan([quick[0]])
    assert other.number == begun.number + 1
    (late,) = await shard.plan([slow[1]._replace(number=begun.number)])
    assert late.state == "stale"
    assert await world.state(one) == "published"
    (final,) = await shard.plan([part._replace(number=other.number) for part in quick[1:2]])
    assert final.state == "writing"
    (final,) = await shard.plan([quick[2]._replace(number=other.number)])
    assert final.state == "planned"
    record = await world.deletion(one)
    assert record["plan"] == str(other.number)
    assert (await world.job(f"{one.deletion}#{other.number}.0"))["target"] == "quick0"
    assert not await world.client.exists(f"{shard.stem}job:{one.deletion}#{begun.number}")


async def test_a_finished_deletion_is_not_planned_again_by_a_leftover_entry(world: World) -> None:
    outside = Outside()
    one = outside.has("a", [thing("one")])
    await world.publish(one)
    await world.start(outside)
    await world.until_done(one)
    shard = world.shard(one)
    await world.client.xadd(shard.stem + "events", one.fields())
    await world.publish(event("later"))
    await world.until_done(event("later"))

    async def acked() -> bool:
        return not await world.pending() and not await world.entries()

    await world.until("the leftover is acked", acked)
    assert await world.state(one) == "done"
    assert outside.called.count("one") == 1


@pytest.mark.long
async def test_no_call_is_too_large_for_a_script(world: World) -> None:
    """More than Lua can spread over one command, in every move that takes many."""
    one = event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(9_000)])
    taken = await world.take(one, "hand", LANE, 9_000, cap=10_000)
    assert len(taken.lanes[0].jobs) == 9_000
    assert all(await world.settle(taken, "hand", OSError("no")))
    await world.jump(timedelta(minutes=1))
    taken = await world.take(one, "hand", LANE, 9_000, cap=10_000)
    await world.jump(timedelta(minutes=5))
    shard = world.shard(one)
    given: list[str] = []
    while back := (await shard.reclaim(silence=timedelta(seconds=30), most=20_000)).given_back:
        given += back
    assert len(given) == 9_000
    assert len(await world.members("alone")) == 9_000
    events = [event(f"e{number}") for number in range(9_000)]
    await world.publish(*events)
    await world.tidy()
    assert (await world.stats())["published"] == 9_001
