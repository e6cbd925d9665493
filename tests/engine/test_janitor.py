"""The janitor: repairs the effects of manual changes, crashes and lost writes, expires old data, and changes nothing
else."""

from datetime import timedelta

import pytest

from service.contract import Event, Gone, Hold
from service.engine.plan_layout import lay_out_plan
from service.engine.script_arguments import CHUNK, UnplannedEvent, event_fields, plan_rows
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

GRACE = timedelta(minutes=1)


def stream(engine: EngineUnderTest, one: Event) -> str:
    return engine.shard(one).stem + "events"


# ---- events


async def test_an_entry_that_was_deleted_by_hand_is_published_again(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.publish(one)
    (entry,) = await engine.entries()
    await engine.client.xdel(stream(engine, one), entry)
    await engine.tidy()
    assert await engine.entries() == [], "it may still be under way to a planner"
    await engine.jump(GRACE)
    await engine.tidy()
    assert len(await engine.entries()) == 1
    assert await engine.decisions("published again") == [one.deletion]
    await engine.tidy()
    assert len(await engine.entries()) == 1
    await engine.start()
    await engine.until_done(one)


async def test_an_entry_that_was_acked_by_hand_is_published_again(engine: EngineUnderTest) -> None:
    one = event("a")
    entry = await engine.deliver(one)
    await engine.client.xack(stream(engine, one), "planners", entry)
    await engine.jump(GRACE)
    await engine.tidy()
    (again,) = await engine.entries()
    assert again != entry
    await engine.start()
    await engine.until_done(one)


async def test_an_entry_deleted_by_hand_while_a_planner_has_it_is_published_again(engine: EngineUnderTest) -> None:
    one = event("a")
    entry = await engine.deliver(one)
    await engine.client.xdel(stream(engine, one), entry)
    await engine.jump(GRACE)
    await engine.tidy()
    assert len(await engine.entries()) == 1
    await engine.start()
    await engine.until_done(one)


async def test_an_entry_that_waits_or_is_being_planned_is_left_alone(engine: EngineUnderTest) -> None:
    one = event("a")
    waiting = engine.beside(one, "b")
    entry = await engine.deliver(one)
    await engine.publish(waiting)
    before = await engine.entries()
    await engine.jump(timedelta(days=1))
    await engine.tidy()
    assert await engine.entries() == before
    assert entry in before
    assert not await engine.decisions("published again")


@pytest.mark.every_server
async def test_a_group_that_was_destroyed_by_hand_is_made_again_and_nothing_is_lost(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await engine.start(provider)
    await engine.client.xgroup_destroy(stream(engine, one), "planners")
    await engine.publish(one)
    await engine.until_done(one)
    other = engine.beside(one, "b")
    await engine.client.xgroup_destroy(stream(engine, one), "planners")
    await engine.client.delete(stream(engine, one))
    await engine.publish(other)
    await engine.until_done(other)


# ---- jobs


@pytest.mark.invariant(6)
@pytest.mark.parametrize("urgent", [1, 0], ids=["urgent", "background"])
async def test_a_job_removed_from_its_lane_by_hand_is_put_back_with_its_due_time(
    engine: EngineUnderTest, urgent: int
) -> None:
    one = event("a", urgent=urgent)
    job = (await engine.lay(one, [thing("one", after=timedelta(hours=3))]))["one"]
    before = await engine.queue(LANE)
    key = f"{engine.shard(one).stem}lane:{LANE}" + (":urgent" if urgent else "")
    assert await engine.client.zrem(key, job) == 1
    await engine.jump(GRACE)
    await engine.tidy()
    assert await engine.queue(LANE) == before
    assert await engine.client.zscore(key, job) == before[job]
    assert await engine.decisions("requeued") == [job]
    assert (await engine.members("lanes"))[LANE] == before[job]


async def test_a_job_whose_lane_was_deleted_whole_runs_all_the_same(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(30)])
    await engine.client.delete(f"{engine.shard(one).stem}lane:{LANE}:urgent", f"{engine.shard(one).stem}lanes")
    await engine.jump(GRACE)
    await engine.start(provider)
    await engine.until_done(one)
    assert len(provider.calls) == 30


async def test_a_job_that_is_in_its_place_is_not_moved(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    jobs = await engine.lay(one, [thing("leased"), thing("queued", "sim/acct/q"), thing("later", stage=1)])
    taken = await engine.take(one, "hand", LANE)
    queue, leases = await engine.queue("sim/acct/q"), await engine.leases(LANE)
    await engine.jump(GRACE / 2 + timedelta(seconds=15))
    await engine.tidy()
    assert await engine.queue("sim/acct/q") == queue
    assert await engine.leases(LANE) == leases
    assert not await engine.queue(LANE)
    assert not await engine.decisions("requeued")
    assert taken.lanes[0].jobs == [jobs["leased"]]
    assert not provider.calls


async def test_a_suspect_that_was_removed_by_hand_is_put_back_to_be_tried_alone(engine: EngineUnderTest) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    await engine.take(one, "victim", LANE)
    await engine.jump(2 * GRACE)
    await engine.shard(one).reclaim(silence=GRACE)
    assert await engine.client.zrem(f"{engine.shard(one).stem}alone", job) == 1
    await engine.tidy()
    assert list(await engine.members("alone")) == [job]
    assert not await engine.queue(LANE)


async def test_jobs_of_two_large_deletions_are_both_found_in_a_few_rounds(engine: EngineUnderTest) -> None:
    one = event("a")
    other = engine.beside(one, "b")
    lost = []
    for large in (one, other):
        jobs = await engine.lay(large, [thing(f"{large.uid}-{number}") for number in range(3000)])
        lost.append(jobs[f"{large.uid}-2990"])
    assert await engine.client.zrem(f"{engine.shard(one).stem}lane:{LANE}:urgent", *lost) == 2
    await engine.jump(GRACE)
    for _ in range(10):
        await engine.tidy()
    assert set(await engine.decisions("requeued")) == set(lost)


# ---- stages


async def test_a_stage_whose_opening_was_lost_is_opened(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await engine.lay(one, [thing("one"), thing("two", stage=1)])
    taken = await engine.take(one, "hand", LANE)
    assert await engine.settle(taken, "hand", Gone()) == [True]
    assert await engine.client.zrem(f"{engine.shard(one).stem}opening", f"{one.deletion}|1") == 1
    await engine.jump(GRACE)
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == ["two"]


async def test_a_stage_whose_opening_was_lost_halfway_is_opened_to_its_end(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    entry = await engine.deliver(one)
    targets = [thing(f"t{number}") for number in range(CHUNK + 10)]
    arranged = lay_out_plan(one, targets, timedelta(hours=1))
    await engine.shard(one).plan_whole(one, entry, arranged)
    assert await engine.shard(one).open_stages(most=100) == (100, 1)
    assert await engine.client.zrem(f"{engine.shard(one).stem}opening", f"{one.deletion}|0") == 1
    await engine.jump(GRACE)
    await engine.start(provider)
    await engine.until_done(one)
    assert len(provider.calls) == CHUNK + 10


async def test_a_deletion_whose_jobs_are_lost_is_planned_anew(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = provider.has("a", [thing("one"), thing("two")])
    await engine.lay(one, [thing("one"), thing("two")])
    plan = (await engine.deletion(one))["plan"]
    await engine.client.delete(f"{engine.shard(one).stem}job:{one.deletion}#{plan}")
    await engine.jump(GRACE)
    await engine.start(provider)
    await engine.until_done(one)
    assert sorted(provider.called) == ["one", "two"]
    assert await engine.decisions("planned anew") == [one.deletion]


async def test_a_deletion_whose_record_is_lost_is_said_to_be_lost(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await engine.publish(one)
    await engine.client.delete(f"{engine.shard(one).stem}deletion:{one.deletion}", stream(engine, one))
    await engine.tidy()
    assert not await engine.members("open")
    assert await engine.decisions("lost") == [one.deletion]
    # What is published again after a relist starts from the beginning.
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)


# ---- retention


async def test_a_finished_deletion_goes_after_its_retention_and_its_id_starts_again(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    await engine.publish(one)
    running = await engine.start(provider)
    await engine.until_done(one)
    await running.stop()
    await engine.jump(engine.settings.retention.finished - GRACE)
    await engine.tidy()
    assert await engine.state(one) == "done"
    await engine.jump(2 * GRACE)
    await engine.tidy()
    assert await engine.deletion(one) == {}
    assert not await engine.members("finished")
    stem = engine.shard(one).stem
    assert not [key async for key in engine.client.scan_iter(match=f"{stem}job:*")]

    # The object is still going: its id is unknown again, so it is carried out again.
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == ["a", "a"]


async def test_an_open_deletion_outlives_every_retention(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    held, waiting = event("held"), event("waiting")
    provider.plans["held"] = Hold("a person must look")
    await engine.publish(held)
    running = await engine.start(provider)

    async def is_held() -> bool:
        return await engine.state(held) == "held"

    await engine.until("it is held", is_held)
    await running.stop()
    job = (await engine.lay(waiting, [thing("one", after=timedelta(days=100))]))["one"]
    await engine.jump(timedelta(days=90))
    await engine.tidy()
    assert await engine.state(held) == "held"
    assert list(await engine.members("held")) == [f"deletion:{held.deletion}"]
    assert await engine.state(waiting) == "running"
    assert job in await engine.queue(LANE)


async def test_dead_jobs_are_shown_as_long_as_their_deletion_is_kept(engine: EngineUnderTest) -> None:
    engine.change("retry", best_effort_deadline=timedelta(milliseconds=1))
    provider = ScriptedProvider(always=OSError("no"))
    one = event("a")
    jobs = await engine.lay(one, [thing("one", strategy="best-effort")])
    running = await engine.start(provider)
    await engine.until_done(one)
    await running.stop()
    await engine.tidy()
    assert list(await engine.members("dead")) == [jobs["one"]]
    await engine.jump(engine.settings.retention.finished + GRACE)
    await engine.tidy()
    await engine.tidy()
    assert not await engine.members("dead")


async def test_chunks_of_a_deletion_that_was_dropped_half_planned_do_not_stay(engine: EngineUnderTest) -> None:
    one = event("a")
    entry = await engine.deliver(one)
    shard = engine.shard(one)
    arranged = lay_out_plan(one, [thing(f"t{number}") for number in range(2 * CHUNK)], timedelta(hours=1))
    first, *_ = plan_rows(one, entry, arranged)
    await shard.plan([first])
    await shard.hold([UnplannedEvent(entry, "held", "its planner can't go on", one.deletion, list(event_fields(one)))])
    assert await shard.unhold(f"deletion:{one.deletion}", replay=False, who="tests") == "dropped"
    await engine.jump(engine.settings.retention.finished + GRACE)
    await engine.tidy()
    assert not [key async for key in engine.client.scan_iter(match=f"{shard.stem}job:*")]


async def test_the_audit_is_trimmed_by_age_and_by_number(engine: EngineUnderTest) -> None:
    one = event("a")
    shard = engine.shard(one)
    key = shard.stem + "audit"

    async def fill(count: int) -> None:
        for _ in range(count):
            await engine.client.xadd(key, {"entry": "decision", "what": "w", "id": "i", "why": "x"})

    await fill(600)
    engine.change("retention", audit_entries=300)
    await engine.tidy()
    assert 300 <= await engine.client.xlen(key) <= 500
    engine.change("retention", audit_entries=1_000_000)
    await engine.tidy()
    assert await engine.client.xlen(key) >= 300
    await engine.jump(engine.settings.retention.audit + GRACE)
    await engine.tidy()
    assert await engine.client.xlen(key) < 200


async def test_numbers_of_a_lane_that_stands_empty_go_after_their_retention(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.publish(one)
    running = await engine.start()
    await engine.until_done(one)
    await running.stop()
    await engine.tidy()
    assert f"lane/{LANE}/queued" in await engine.stats()
    busy = event("b")
    await engine.lay(busy, [thing("later", "sim/acct/busy", after=timedelta(days=1))])
    await engine.tidy()
    await engine.jump(engine.settings.retention.lanes + GRACE)
    await engine.tidy()
    lanes = {name.split("/", 1)[1].rsplit("/", 1)[0] for name in await engine.stats() if name.startswith("lane/")}
    assert lanes == {"sim/acct/busy"}


async def test_trimming_never_removes_what_was_not_delivered(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    events = [event(f"e{number}") for number in range(300)]
    await engine.publish(*events)
    await engine.jump(timedelta(days=60))
    await engine.tidy()
    assert len(await engine.entries()) == 300
    await engine.start(provider)
    await engine.until_done(*events)
    assert sorted(provider.planned) == sorted(one.uid for one in events)


# ---- lag


async def test_the_lag_of_the_group_stays_computable_and_true(engine: EngineUnderTest) -> None:
    async def lags() -> list[int | None]:
        found: list[int | None] = []
        for shard in engine.installation.shards:
            found += [group["lag"] for group in await engine.client.xinfo_groups(shard.stem + "events")]
        return found

    provider = ScriptedProvider()
    seen: list[int | None] = []
    for round_ in range(3):
        events = [event(f"r{round_}-{number}") for number in range(1000)]
        await engine.publish(*events)
        assert sum(lag or 0 for lag in await lags()) == 1000
        running = await engine.start(provider)

        async def planned() -> bool:
            seen.extend(await lags())
            return not await engine.entries()

        await engine.until("all are planned", planned)
        await running.stop()
        assert await lags() == [0] * len(engine.installation.shards)
    assert None not in seen
    assert any(lag for lag in seen if lag)


async def test_a_stage_whose_record_was_cut_short_does_not_stop_the_janitor(engine: EngineUnderTest) -> None:
    one = event("a")
    other = engine.beside(one, "b")
    await engine.lay(one, [thing("x"), thing("y", stage=1)])
    key = engine.shard(one).stem + "deletion:" + one.deletion
    shape = (await engine.deletion(one))["stage.0"]
    await engine.client.hset(key, "stage.0", shape.rpartition(" ")[0])
    await engine.publish(other)
    (entry,) = await engine.entries()
    await engine.client.xdel(stream(engine, other), entry)
    await engine.jump(GRACE)
    await engine.tidy()
    assert await engine.decisions("published again") == [other.deletion]
