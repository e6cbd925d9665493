"""The janitor: what hands, crashes and lost writes left behind is put right, what is old goes, nothing else does."""

from datetime import timedelta

import pytest

from service.contract import Event, Gone, Hold
from service.engine.arrange import arrange
from service.engine.rows import CHUNK, Kept, flat, rows
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World

GRACE = timedelta(minutes=1)


def stream(world: World, one: Event) -> str:
    return world.shard(one).stem + "events"


# ---- events


async def test_an_entry_that_was_deleted_by_hand_is_published_again(world: World) -> None:
    one = event("a")
    await world.publish(one)
    (entry,) = await world.entries()
    await world.client.xdel(stream(world, one), entry)
    await world.tidy()
    assert await world.entries() == [], "it may still be under way to a planner"
    await world.jump(GRACE)
    await world.tidy()
    assert len(await world.entries()) == 1
    assert await world.decisions("published again") == [one.deletion]
    await world.tidy()
    assert len(await world.entries()) == 1
    await world.start()
    await world.until_done(one)


async def test_an_entry_that_was_acked_by_hand_is_published_again(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    await world.client.xack(stream(world, one), "planners", entry)
    await world.jump(GRACE)
    await world.tidy()
    (again,) = await world.entries()
    assert again != entry
    await world.start()
    await world.until_done(one)


async def test_an_entry_deleted_by_hand_while_a_planner_has_it_is_published_again(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    await world.client.xdel(stream(world, one), entry)
    await world.jump(GRACE)
    await world.tidy()
    assert len(await world.entries()) == 1
    await world.start()
    await world.until_done(one)


async def test_an_entry_that_waits_or_is_being_planned_is_left_alone(world: World) -> None:
    one = event("a")
    waiting = world.beside(one, "b")
    entry = await world.deliver(one)
    await world.publish(waiting)
    before = await world.entries()
    await world.jump(timedelta(days=1))
    await world.tidy()
    assert await world.entries() == before
    assert entry in before
    assert not await world.decisions("published again")


@pytest.mark.every_server
async def test_a_group_that_was_destroyed_by_hand_is_made_again_and_nothing_is_lost(world: World) -> None:
    outside, one = Outside(), event("a")
    await world.start(outside)
    await world.client.xgroup_destroy(stream(world, one), "planners")
    await world.publish(one)
    await world.until_done(one)
    other = world.beside(one, "b")
    await world.client.xgroup_destroy(stream(world, one), "planners")
    await world.client.delete(stream(world, one))
    await world.publish(other)
    await world.until_done(other)


# ---- jobs


@pytest.mark.invariant(6)
@pytest.mark.parametrize("urgent", [1, 0], ids=["urgent", "background"])
async def test_a_job_removed_from_its_lane_by_hand_is_put_back_with_its_due_time(world: World, urgent: int) -> None:
    one = event("a", urgent=urgent)
    job = (await world.lay(one, [thing("one", after=timedelta(hours=3))]))["one"]
    before = await world.queue(LANE)
    key = f"{world.shard(one).stem}lane:{LANE}" + (":urgent" if urgent else "")
    assert await world.client.zrem(key, job) == 1
    await world.jump(GRACE)
    await world.tidy()
    assert await world.queue(LANE) == before
    assert await world.client.zscore(key, job) == before[job]
    assert await world.decisions("requeued") == [job]
    assert (await world.members("lanes"))[LANE] == before[job]


async def test_a_job_whose_lane_was_deleted_whole_runs_all_the_same(world: World) -> None:
    outside, one = Outside(), event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(30)])
    await world.client.delete(f"{world.shard(one).stem}lane:{LANE}:urgent", f"{world.shard(one).stem}lanes")
    await world.jump(GRACE)
    await world.start(outside)
    await world.until_done(one)
    assert len(outside.calls) == 30


async def test_a_job_that_is_in_its_place_is_not_moved(world: World) -> None:
    outside = Outside()
    one = event("a")
    jobs = await world.lay(one, [thing("leased"), thing("queued", "sim/acct/q"), thing("later", stage=1)])
    taken = await world.take(one, "hand", LANE)
    queue, leases = await world.queue("sim/acct/q"), await world.leases(LANE)
    await world.jump(GRACE / 2 + timedelta(seconds=15))
    await world.tidy()
    assert await world.queue("sim/acct/q") == queue
    assert await world.leases(LANE) == leases
    assert not await world.queue(LANE)
    assert not await world.decisions("requeued")
    assert taken.lanes[0].jobs == [jobs["leased"]]
    assert not outside.calls


async def test_a_suspect_that_was_removed_by_hand_is_put_back_to_be_tried_alone(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    await world.take(one, "victim", LANE)
    await world.jump(2 * GRACE)
    await world.shard(one).reclaim(silence=GRACE)
    assert await world.client.zrem(f"{world.shard(one).stem}alone", job) == 1
    await world.tidy()
    assert list(await world.members("alone")) == [job]
    assert not await world.queue(LANE)


async def test_jobs_of_two_large_deletions_are_both_found_in_a_few_rounds(world: World) -> None:
    one = event("a")
    other = world.beside(one, "b")
    lost = []
    for large in (one, other):
        jobs = await world.lay(large, [thing(f"{large.uid}-{number}") for number in range(3000)])
        lost.append(jobs[f"{large.uid}-2990"])
    assert await world.client.zrem(f"{world.shard(one).stem}lane:{LANE}:urgent", *lost) == 2
    await world.jump(GRACE)
    for _ in range(10):
        await world.tidy()
    assert set(await world.decisions("requeued")) == set(lost)


# ---- stages


async def test_a_stage_whose_opening_was_lost_is_opened(world: World) -> None:
    outside, one = Outside(), event("a")
    await world.lay(one, [thing("one"), thing("two", stage=1)])
    taken = await world.take(one, "hand", LANE)
    assert await world.settle(taken, "hand", Gone()) == [True]
    assert await world.client.zrem(f"{world.shard(one).stem}opening", f"{one.deletion}|1") == 1
    await world.jump(GRACE)
    await world.start(outside)
    await world.until_done(one)
    assert outside.called == ["two"]


async def test_a_stage_whose_opening_was_lost_halfway_is_opened_to_its_end(world: World) -> None:
    outside, one = Outside(), event("a")
    entry = await world.deliver(one)
    targets = [thing(f"t{number}") for number in range(CHUNK + 10)]
    arranged = arrange(one, targets, timedelta(hours=1))
    await world.shard(one).plan_whole(one, entry, arranged)
    assert await world.shard(one).open(most=100) == (100, 1)
    assert await world.client.zrem(f"{world.shard(one).stem}opening", f"{one.deletion}|0") == 1
    await world.jump(GRACE)
    await world.start(outside)
    await world.until_done(one)
    assert len(outside.calls) == CHUNK + 10


async def test_a_deletion_whose_jobs_are_lost_is_planned_anew(world: World) -> None:
    outside = Outside()
    one = outside.has("a", [thing("one"), thing("two")])
    await world.lay(one, [thing("one"), thing("two")])
    plan = (await world.deletion(one))["plan"]
    await world.client.delete(f"{world.shard(one).stem}job:{one.deletion}#{plan}")
    await world.jump(GRACE)
    await world.start(outside)
    await world.until_done(one)
    assert sorted(outside.called) == ["one", "two"]
    assert await world.decisions("planned anew") == [one.deletion]


async def test_a_deletion_whose_record_is_lost_is_said_to_be_lost(world: World) -> None:
    outside, one = Outside(), event("a")
    await world.publish(one)
    await world.client.delete(f"{world.shard(one).stem}deletion:{one.deletion}", stream(world, one))
    await world.tidy()
    assert not await world.members("open")
    assert await world.decisions("lost") == [one.deletion]
    # What is published again after a relist starts from the beginning.
    await world.publish(one)
    await world.start(outside)
    await world.until_done(one)


# ---- retention


async def test_a_finished_deletion_goes_after_its_retention_and_its_id_starts_again(world: World) -> None:
    outside, one = Outside(), event("a")
    await world.publish(one)
    running = await world.start(outside)
    await world.until_done(one)
    await running.stop()
    await world.jump(world.settings.retention.finished - GRACE)
    await world.tidy()
    assert await world.state(one) == "done"
    await world.jump(2 * GRACE)
    await world.tidy()
    assert await world.deletion(one) == {}
    assert not await world.members("finished")
    stem = world.shard(one).stem
    assert not [key async for key in world.client.scan_iter(match=f"{stem}job:*")]

    # The object is still going: its id is unknown again, so it is carried out again.
    await world.publish(one)
    await world.start(outside)
    await world.until_done(one)
    assert outside.called == ["a", "a"]


async def test_an_open_deletion_outlives_every_retention(world: World) -> None:
    outside = Outside()
    held, waiting = event("held"), event("waiting")
    outside.plans["held"] = Hold("a person must look")
    await world.publish(held)
    running = await world.start(outside)

    async def is_held() -> bool:
        return await world.state(held) == "held"

    await world.until("it is held", is_held)
    await running.stop()
    job = (await world.lay(waiting, [thing("one", after=timedelta(days=100))]))["one"]
    await world.jump(timedelta(days=90))
    await world.tidy()
    assert await world.state(held) == "held"
    assert list(await world.members("held")) == [f"deletion:{held.deletion}"]
    assert await world.state(waiting) == "running"
    assert job in await world.queue(LANE)


async def test_dead_jobs_are_shown_as_long_as_their_deletion_is_kept(world: World) -> None:
    world.change("retry", best_effort_deadline=timedelta(milliseconds=1))
    outside = Outside(always=OSError("no"))
    one = event("a")
    jobs = await world.lay(one, [thing("one", strategy="best-effort")])
    running = await world.start(outside)
    await world.until_done(one)
    await running.stop()
    await world.tidy()
    assert list(await world.members("dead")) == [jobs["one"]]
    await world.jump(world.settings.retention.finished + GRACE)
    await world.tidy()
    await world.tidy()
    assert not await world.members("dead")


async def test_chunks_of_a_deletion_that_was_dropped_half_planned_do_not_stay(world: World) -> None:
    one = event("a")
    entry = await world.deliver(one)
    shard = world.shard(one)
    arranged = arrange(one, [thing(f"t{number}") for number in range(2 * CHUNK)], timedelta(hours=1))
    first, *_ = rows(one, entry, arranged)
    await shard.plan([first])
    await shard.hold([Kept(entry, "held", "its planner can't go on", one.deletion, list(flat(one)))])
    assert await shard.unhold(f"deletion:{one.deletion}", replay=False, who="tests") == "dropped"
    await world.jump(world.settings.retention.finished + GRACE)
    await world.tidy()
    assert not [key async for key in world.client.scan_iter(match=f"{shard.stem}job:*")]


async def test_the_audit_is_trimmed_by_age_and_by_number(world: World) -> None:
    one = event("a")
    shard = world.shard(one)
    key = shard.stem + "audit"

    async def fill(count: int) -> None:
        for _ in range(count):
            await world.client.xadd(key, {"entry": "decision", "what": "w", "id": "i", "why": "x"})

    await fill(600)
    world.change("retention", audit_entries=300)
    await world.tidy()
    assert 300 <= await world.client.xlen(key) <= 500
    world.change("retention", audit_entries=1_000_000)
    await world.tidy()
    assert await world.client.xlen(key) >= 300
    await world.jump(world.settings.retention.audit + GRACE)
    await world.tidy()
    assert await world.client.xlen(key) < 200


async def test_numbers_of_a_lane_that_stands_empty_go_after_their_retention(world: World) -> None:
    one = event("a")
    await world.publish(one)
    running = await world.start()
    await world.until_done(one)
    await running.stop()
    await world.tidy()
    assert f"lane/{LANE}/queued" in await world.stats()
    busy = event("b")
    await world.lay(busy, [thing("later", "sim/acct/busy", after=timedelta(days=1))])
    await world.tidy()
    await world.jump(world.settings.retention.lanes + GRACE)
    await world.tidy()
    lanes = {name.split("/", 1)[1].rsplit("/", 1)[0] for name in await world.stats() if name.startswith("lane/")}
    assert lanes == {"sim/acct/busy"}


async def test_trimming_never_removes_what_was_not_delivered(world: World) -> None:
    outside = Outside()
    events = [event(f"e{number}") for number in range(300)]
    await world.publish(*events)
    await world.jump(timedelta(days=60))
    await world.tidy()
    assert len(await world.entries()) == 300
    await world.start(outside)
    await world.until_done(*events)
    assert sorted(outside.planned) == sorted(one.uid for one in events)


# ---- lag


async def test_the_lag_of_the_group_stays_computable_and_true(world: World) -> None:
    async def lags() -> list[int | None]:
        found: list[int | None] = []
        for shard in world.installation.shards:
            found += [group["lag"] for group in await world.client.xinfo_groups(shard.stem + "events")]
        return found

    outside = Outside()
    seen: list[int | None] = []
    for round_ in range(3):
        events = [event(f"r{round_}-{number}") for number in range(1000)]
        await world.publish(*events)
        assert sum(lag or 0 for lag in await lags()) == 1000
        running = await world.start(outside)

        async def planned() -> bool:
            seen.extend(await lags())
            return not await world.entries()

        await world.until("all are planned", planned)
        await running.stop()
        assert await lags() == [0] * len(world.installation.shards)
    assert None not in seen
    assert any(lag for lag in seen if lag)
