"""Targets found late: removed before the job that found them is tried again, and before the release; none twice, and
none that the deletion has already."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from service.contract import FINALLY, Event, Found, Gone, Job, Left, Pending, Refused, Target, decode_job_record
from service.contract.verdicts import Verdict
from service.engine.kept_store import KeptStore
from service.engine.late_targets import BOUNDS, LateBounds
from service.engine.script_arguments import LateTargets
from service.engine.script_replies import Appended, Taken
from service.engine.views.deletions import deletion_details
from service.engine.views.progress import progress, removal_summary
from service.engine.withdrawal import withdraw
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, Act, ScriptedProvider, event, thing
from workers.handlers.protocol import Batch

LOOK, RELEASE = "sim/acct/look", "cluster/c1/release"
GRACE = timedelta(minutes=1)
SMALL = LateBounds(per_call=2, per_look=6, targets=9, stages=5)


def look(name: str = "look", stage: int = 0) -> Target:
    return thing(name, LOOK, chain=FINALLY, stage=stage)


def late(name: str, stage: int = 0, incarnation: str = "") -> Target:
    return Target(kind="thing", id=name, lane=LANE, chain=FINALLY, stage=stage, incarnation=incarnation)


def found(*names: str) -> Found:
    return Found(tuple(late(name) for name in names), f"{len(names)} more", "has found")


async def open_all(engine: EngineUnderTest, one: Event) -> None:
    while (await engine.shard(one).open_stages())[1]:
        pass


async def end(engine: EngineUnderTest, one: Event, lane: str, verdict: Verdict | None = None) -> list[str]:
    """Everything that is due in a lane is taken and settled; the answer are the targets."""
    taken = await engine.take(one, "hand", lane)
    assert all(await engine.settle(taken, "hand", verdict or Gone()))
    await open_all(engine, one)
    return [decode_job_record(text).target for got in taken.lanes for text in got.records]


async def looking(engine: EngineUnderTest, one: Event, *targets: Target, worker: str = "w") -> Taken:
    """A deletion with these targets and a look, planned; all but the look have ended, and a worker has that in hand."""
    await engine.lay(one, [*targets, look()])
    if targets:
        await end(engine, one, LANE)
    return await engine.take(one, worker, LOOK)


async def append(
    engine: EngineUnderTest, one: Event, worker: str, sent: LateTargets, bounds: LateBounds = BOUNDS
) -> Appended:
    answer = await engine.shard(one).append_all(worker, sent, bounds)
    await open_all(engine, one)
    return answer


async def names(engine: EngineUnderTest, one: Event) -> list[str]:
    """The targets of the deletion as it is shown, in the order of their jobs."""
    told = await deletion_details(engine.installation, one.deletion, limit=None)
    assert told is not None
    return [job.target for job in sorted(told.jobs, key=lambda job: int(job.id.rpartition(".")[2]))]


async def ended_in_order(engine: EngineUnderTest, provider: ScriptedProvider, one: Event, *order: str) -> None:
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == list(order)
    record = await engine.deletion(one)
    assert {value for name, value in record.items() if name.startswith("left.")} == {"0"}


def reads(verdict: Verdict) -> Act:
    """An attempt without a destructive call."""

    async def act(_job: Job, _batch: Batch) -> Verdict:
        return verdict

    return act


def finds(*finds: Found | Act) -> ScriptedProvider:
    provider = ScriptedProvider()
    provider.answers["look"] = [reads(one) if isinstance(one, Found) else one for one in finds]
    return provider


# ---- with workers


@pytest.mark.every_server
@pytest.mark.invariant(4)
async def test_they_are_removed_before_the_finding_job_is_tried_again_and_before_the_release(
    engine: EngineUnderTest,
) -> None:
    provider = finds(Found((late("subnet", 1), late("gateway"), late("address")), "3 more", "resumed"))
    one = provider.has("a", [thing("first"), look()])
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called[0] == "first"
    assert set(provider.called[1:3]) == {"gateway", "address"}
    assert provider.called[3:] == ["subnet", "look"]
    assert provider.calls[-1].job.resume == "resumed"
    assert await engine.decisions("found late") == [one.deletion]
    assert (await engine.stats())["found"] == 1
    summary = await removal_summary(engine.installation, one.deletion)
    assert summary is not None
    assert (summary.resources, summary.removed) == (4, 4)


async def test_a_late_target_that_needs_several_attempts_keeps_the_finding_job_waiting(engine: EngineUnderTest) -> None:
    provider = finds(found("late"))
    provider.answers["late"] = [Pending(timedelta(milliseconds=20)), RuntimeError("broken"), Pending(timedelta(0))]
    one = provider.has("a", [look()])
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called[-2:] == ["late", "look"]
    assert provider.called.count("look") == 1


async def test_a_look_that_finds_twice_in_a_row_is_made_three_times(engine: EngineUnderTest) -> None:
    provider = finds(found("a1", "a2"), found("a2", "b1"))
    one = provider.has("a", [look()])
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    assert sorted(provider.called[:2]) == ["a1", "a2"]
    assert provider.called[2:] == ["b1", "look"]
    assert len(await engine.decisions("found late")) == 2


async def test_targets_that_are_in_the_deletion_and_ended_block_the_look_visibly(engine: EngineUnderTest) -> None:
    provider = finds(found("first"), found("first"))
    one = provider.has("a", [thing("first"), look()])
    await engine.publish(one)
    engine.change("retry", blocked_base=timedelta(minutes=5), blocked_cap=timedelta(minutes=5))
    await engine.start(provider)

    async def shown() -> bool:
        return bool(await engine.members("waiting"))

    await engine.until("the look is shown as waiting", shown)
    told = await deletion_details(engine.installation, one.deletion)
    assert told is not None
    (job,) = [job for job in told.jobs if job.target == "look"]
    assert (job.verdict, job.detail) == (
        "blocked",
        "1 more: each of them is in the deletion already; remove them by hand, or release the object without them "
        "(`knell jobs abandon`)",
    )
    # The next look knows that this one has found something.
    assert (await engine.job(job.id))["resume"] == "has found"
    assert provider.called == ["first"]
    (obstacle,) = (await progress(engine.installation, [one.deletion]))[one.deletion].obstacles
    assert (obstacle.what, obstacle.held) == ("look", False)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Found((thing("x"),)), "belongs to the chain 'finally'"),
        (Found((Target(kind="release", id="x", lane=LANE, chain=FINALLY),)), "kind 'release'"),
        (Found((Target(kind="thing", id="x", lane="no lane", chain=FINALLY),)), "must be named"),
        (Found(()), "names no target"),
    ],
    ids=["another chain", "release", "lane", "nothing"],
)
async def test_an_invalid_target_is_a_failed_attempt_with_the_reason(
    engine: EngineUnderTest, verdict: Found, words: str
) -> None:
    provider = finds(verdict)
    one = provider.has("a", [look()])
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    (job,) = [job for job, target in await engine.targets_of(one) if target == "look"]
    assert words in (await engine.job(job))["first_error"]
    assert provider.called == ["look"]


async def test_a_job_of_another_chain_finds_nothing(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    provider.answers["first"] = [reads(found("late"))]
    one = provider.has("a", [thing("first"), look()])
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    (job,) = [job for job, target in await engine.targets_of(one) if target == "first"]
    assert "only a job in the chain 'finally'" in (await engine.job(job))["first_error"]
    assert provider.called == ["first", "look"]


@pytest.mark.long
async def test_five_thousand_late_targets_are_added_in_bounded_steps_and_removed(engine: EngineUnderTest) -> None:
    many = [f"t{number}" for number in range(BOUNDS.per_look + 5)]
    provider = finds(found(*many), found(*many))
    one = provider.has("a", [thing("first"), look()])
    await engine.publish(one)
    running = await engine.start(provider, concurrency=500, lane_cap=500)
    await engine.until_done(one, within=timedelta(minutes=3))
    assert sorted(provider.called) == sorted([*many, "first", "look"])
    # Six for the first look, with one more for the index; of the second look all but five are known.
    assert running.moves["append"] <= 14
    assert await engine.decisions("found late") == [one.deletion] * 2


async def test_two_jobs_of_the_same_stage_both_find_and_none_of_it_is_added_twice(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    provider.answers["look"] = [reads(found("both", "one"))]
    provider.answers["other"] = [reads(found("both", "two"))]
    one = provider.has("a", [thing("first"), look(), look("other")])
    await engine.publish(one)
    for _ in range(2):
        await engine.start(provider)
    await engine.until_done(one)
    assert sorted(provider.called) == ["both", "first", "look", "one", "other", "two"]
    assert provider.called.index("one") < provider.called.index("look")
    assert provider.called.index("two") < provider.called.index("other")


async def test_a_worker_that_stops_gracefully_adds_what_its_look_found(engine: EngineUnderTest) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        begun.set()
        await go.wait()
        return found("late")

    provider = finds(slow)
    one = provider.has("a", [look()])
    await engine.publish(one)
    running = await engine.start(provider)
    await begun.wait()
    running.worker.stop()
    go.set()
    await running.stop()
    assert await engine.decisions("found late") == [one.deletion]
    await ended_in_order(engine, provider, one, "late", "look")


async def test_a_worker_that_loses_its_lease_between_two_chunks_adds_nothing(
    engine: EngineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.shard.Shard.append_all.__defaults__", (SMALL,))
    many = [f"t{number}" for number in range(5)]
    provider = finds(found(*many), found(*many))
    one = provider.has("a", [look()])
    await engine.publish(one)
    running = await engine.start(provider, ready=False)
    move, sent = running.installation.caller.move, 0

    async def broken(name: str, *args: Any, **options: Any) -> bytes:
        nonlocal sent
        sent += name == "append"
        if name == "append" and sent == 3:
            assert list(await engine.leases(LOOK)), "the lease is kept until the append has ended"
            await engine.jump(2 * GRACE)
            assert len(await engine.reclaim(one)) == 1
        return await move(name, *args, **options)

    running.installation.caller.move = broken  # type: ignore[method-assign]
    await engine.until_done(one)
    assert sorted(provider.called[:5]) == many
    assert provider.called[5:] == ["look"]
    assert await engine.decisions("found late") == [one.deletion]
    assert running.worker.counters.settled["found"] == 1
    assert running.worker.counters.late == 1


async def test_a_deletion_without_late_targets_stores_nothing_more(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = provider.has("a", [thing("first"), look()])
    await engine.publish(one)
    running = await engine.start(provider)
    await engine.until_done(one)
    assert running.moves["append"] == 0
    assert not {"late", "indexed", "appending"} & set(await engine.deletion(one))


# ---- by hand: the state in Redis


@pytest.mark.every_server
async def test_the_deletion_stays_open_and_every_job_has_its_place(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    answer = await append(engine, one, "w", engine.finding(taken, [late("x"), late("y", 1)]))
    assert (answer.state, answer.added, answer.targets, answer.stages) == ("added", 2, 2, 3)
    told = await deletion_details(engine.installation, one.deletion)
    assert told is not None
    shown = [(stage.chain, stage.jobs, stage.left, stage.opened_at is not None, stage.release) for stage in told.stages]
    assert shown == [
        ("main", 1, 0, True, False),
        (FINALLY, 1, 0, True, False),
        ("release", 1, 1, False, True),
        (FINALLY, 1, 1, True, False),
        (FINALLY, 1, 1, False, False),
        (FINALLY, 1, 1, False, False),
    ]
    assert (told.deletion.jobs, told.deletion.left) == (5, 4)
    assert await names(engine, one) == ["first", "look", one.deletion, "x", "y"]
    (job,) = taken.lanes[0].jobs
    record = await engine.job(job)
    assert (record["stage"], record["verdict"], record["resume"]) == ("5", "found", "where to go on")
    assert "state" not in record
    assert not await engine.leases(LOOK)
    assert not await engine.queue(LOOK)
    assert not await engine.members("batches")
    assert await end(engine, one, LANE) == ["x"]
    assert await end(engine, one, LANE) == ["y"]
    assert await engine.state(one) == "running"
    assert await end(engine, one, LOOK) == ["look"]
    assert await engine.state(one) == "releasing"
    await end(engine, one, RELEASE)
    assert await engine.state(one) == "done"


@pytest.mark.parametrize("fate", ["removed", "abandoned", "left"])
async def test_what_is_in_the_deletion_is_not_added_again(engine: EngineUnderTest, fate: str) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("known", "sim/acct/other"), look(), look("second")])
    if fate == "abandoned":
        assert await engine.shard(one).abandon(jobs["known"], "ann") == "abandoned"
        await open_all(engine, one)
    else:
        await end(engine, one, "sim/acct/other", Left("kept by then") if fate == "left" else Gone())
    taken = await engine.take(one, "w", LOOK, 1)
    known = late("known")
    before = await engine.deletion(one)
    answer = await append(engine, one, "w", engine.finding(taken, [known]))
    assert (answer.state, answer.added) == ("known", 0)
    after = await engine.deletion(one)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= {"indexed"}
    again = await append(engine, one, "w", engine.finding(taken, [known, late("new")]))
    assert (again.state, again.added) == ("added", 1)


async def test_another_incarnation_of_the_same_id_is_another_target(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, late("x", incarnation="1"), thing("y"))
    sent = engine.finding(taken, [late("x", incarnation="1"), late("x", incarnation="2"), late("y", incarnation="1")])
    assert (await append(engine, one, "w", sent)).added == 2
    records = [await engine.job(job) for job, target in await engine.targets_of(one) if target == "x"]
    assert sorted(record["incarnation"] for record in records) == ["1", "2"]


async def test_what_was_abandoned_in_an_earlier_plan_is_not_added(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("left"), thing("gone"), look()])
    assert await engine.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    await engine.client.delete(f"{engine.shard(one).stem}job:{one.deletion}#1")
    await engine.jump(GRACE)
    await engine.tidy()
    await engine.lay(one, [look()], published=True)
    taken = await engine.take(one, "w", LOOK)
    answer = await append(engine, one, "w", engine.finding(taken, [late("left"), late("gone")]))
    assert (answer.state, answer.added) == ("added", 1)
    assert "left" not in await names(engine, one)


async def test_an_abandoned_job_that_can_not_be_read_may_have_been_any_of_them(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("left"), look()])
    await engine.rewrite(jobs["left"], "no record")
    assert await engine.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    await open_all(engine, one)
    taken = await engine.take(one, "w", LOOK)
    assert (await append(engine, one, "w", engine.finding(taken, [late("x")]))).state == "known"


async def test_a_large_plan_is_indexed_in_bounded_steps_that_survive_a_crash(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, *(thing(f"t{number}") for number in range(7)))
    shard, sent = engine.shard(one), engine.finding(taken, [late("t6"), late("new")])
    key = f"{shard.stem}targets:{one.deletion}#1"
    assert (await shard.append("w", sent, 0, 2, SMALL)).state == "preparing"
    assert await engine.client.hlen(key) == 2
    # Whoever began has died; another one continues, and notices that half an index was lost.
    assert await engine.client.delete(key) == 1
    assert (await shard.append("w", sent, 0, 2, SMALL)).state == "preparing"
    assert await engine.client.hlen(key) == 2
    assert (await append(engine, one, "w", sent, SMALL)).added == 1


async def test_an_index_that_was_lost_is_built_anew(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    assert (await append(engine, one, "w", engine.finding(taken, [late("x")]))).added == 1
    await end(engine, one, LANE)
    taken = await engine.take(one, "w", LOOK)
    assert await engine.client.delete(f"{engine.shard(one).stem}targets:{one.deletion}#1") == 1
    sent = engine.finding(taken, [late("x"), late("first"), late("y")])
    assert (await append(engine, one, "w", sent)).added == 1
    assert await names(engine, one) == ["first", "look", one.deletion, "x", "y"]


@pytest.mark.every_server
async def test_a_worker_that_dies_between_chunks_leaves_nothing_visible_and_the_next_look_adds_all(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"), worker="victim")
    shard, targets = engine.shard(one), [late(f"t{number}", number // 2) for number in range(5)]
    sent, offset = engine.finding(taken, targets), 0
    while offset < 4:
        answer = await shard.append("victim", sent, offset, 2, SMALL)
        assert answer.state in ("preparing", "writing")
        offset += 2 * (answer.state == "writing")
    assert await names(engine, one) == ["first", "look", one.deletion]
    assert not await engine.queue(LANE)
    hidden = f"{one.deletion}#1.3"
    assert (await engine.job(hidden))["target"] == "t0"
    assert await shard.abandon(hidden, "ann") == "unknown"
    assert await shard.retry(hidden, "ann") == "unknown"
    await engine.jump(2 * GRACE)
    await engine.reclaim(one)
    # Other targets by then: what the first one wrote must neither remain nor count as known.
    again = await engine.take(one, "w", LOOK, alone=taken.lanes[0].jobs[0])
    fresh = engine.finding(again, [late("t4"), late("t0"), late("u")])
    assert (await shard.append("victim", sent, 4, 2, SMALL)).state == "lost"
    assert (await append(engine, one, "w", fresh, SMALL)).added == 3
    assert await names(engine, one) == ["first", "look", one.deletion, "t4", "t0", "u"]
    assert len(await engine.targets_of(one)) == 6
    assert sorted(await end(engine, one, LANE)) == ["t0", "t4", "u"]
    assert await end(engine, one, LOOK) == ["look"]


async def test_an_index_that_is_lost_between_two_chunks_is_built_anew_and_nothing_is_added_twice(
    engine: EngineUnderTest,
) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    shard, sent = engine.shard(one), engine.finding(taken, [*map(late, ("t0", "t1", "first", "t2"))])
    while (await shard.append("w", sent, 0, 2, SMALL)).state == "preparing":
        pass
    assert await engine.client.delete(f"{shard.stem}targets:{one.deletion}#1") == 1
    assert (await shard.append("w", sent, 2, 2, SMALL)).state == "stale"
    assert (await append(engine, one, "w", sent, SMALL)).added == 3
    assert await names(engine, one) == ["first", "look", one.deletion, "t0", "t1", "t2"]


async def test_the_janitor_removes_what_an_append_left_that_nobody_continues(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"), worker="victim")
    shard, sent = engine.shard(one), engine.finding(taken, [late(f"t{number}") for number in range(5)])
    while (await shard.append("victim", sent, 0, 2, SMALL)).state == "preparing":
        pass
    await engine.jump(GRACE / 2)
    await engine.tidy()
    assert len(await engine.targets_of(one)) == 5, "its worker is alive"
    await engine.jump(2 * GRACE)
    await engine.reclaim(one)
    await engine.tidy()
    assert sorted(target for _, target in await engine.targets_of(one)) == sorted(["first", "look", one.deletion])
    again = await engine.take(one, "w", LOOK, alone=taken.lanes[0].jobs[0])
    assert await engine.settle(again, "w", Gone()) == [True]
    await open_all(engine, one)
    await end(engine, one, RELEASE)
    assert await engine.state(one) == "done"


async def test_a_worker_that_dies_after_the_last_chunk_has_settled_its_job(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"), worker="victim")
    # Nobody opens the stages, and a hand forgets that they were to be opened.
    answer = await engine.shard(one).append_all("victim", engine.finding(taken, [late("x")]))
    assert (answer.state, answer.opening) == ("added", 1)
    await engine.client.delete(engine.shard(one).stem + "opening")
    assert await engine.settle(taken, "victim", Gone()) == [False]
    await engine.jump(2 * GRACE)
    assert await engine.reclaim(one) == []
    await engine.tidy()
    await engine.tidy()
    assert await end(engine, one, LANE) == ["x"]
    await engine.client.delete(engine.shard(one).stem + "opening")
    await engine.jump(GRACE)
    await engine.tidy()
    await engine.tidy()
    assert await end(engine, one, LOOK) == ["look"]


async def test_a_worker_that_dies_before_it_appends_has_its_job_looked_at_again(engine: EngineUnderTest) -> None:
    one, provider = event("a"), finds(found("x"))
    taken = await looking(engine, one, thing("first"), worker="victim")
    await engine.jump(2 * GRACE)
    await engine.reclaim(one)
    assert (await append(engine, one, "victim", engine.finding(taken, [late("y")]))).state == "lost"
    await ended_in_order(engine, provider, one, "x", "look")


@pytest.mark.every_server
async def test_an_append_with_a_stale_fence_or_of_another_worker_changes_nothing(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    sent = engine.finding(taken, [late("x")])
    assert await engine.settle(taken, "w", Pending(timedelta(0))) == [True]
    before = await engine.deletion(one)
    assert (await append(engine, one, "w", sent)).state == "lost"
    taken = await engine.take(one, "w", LOOK)
    assert (await append(engine, one, "w", sent)).state == "lost"
    assert (await append(engine, one, "another", engine.finding(taken, [late("x")]))).state == "lost"
    assert await engine.deletion(one) == before
    assert len(await engine.targets_of(one)) == 3


async def test_a_second_look_of_the_stage_waits_while_another_one_appends(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [look(), look("second")])
    first = await engine.take(one, "w", LOOK, 1)
    second = await engine.take(one, "v", LOOK, 1)
    shard, sent = engine.shard(one), engine.finding(first, [late(f"t{number}") for number in range(5)])
    while (await shard.append("w", sent, 0, 2, SMALL)).state == "preparing":
        pass
    assert (await append(engine, one, "v", engine.finding(second, [late("u")]))).state == "busy"
    assert (await append(engine, one, "w", sent)).added == 5
    assert (await append(engine, one, "v", engine.finding(second, [late("u"), late("t0")]))).added == 1
    # The second one found something of the first one's, and comes after that.
    assert len(await end(engine, one, LANE)) == 5
    assert await end(engine, one, LANE) == ["u"]
    assert await end(engine, one, LOOK) == ["second"]
    assert await end(engine, one, LOOK) == ["look"]
    await end(engine, one, RELEASE)
    assert await engine.state(one) == "done"


@pytest.mark.parametrize("more", [(), ("y",)], ids=["nothing else", "more"])
async def test_a_second_look_that_finds_what_the_first_one_added_comes_after_it(
    engine: EngineUnderTest, more: tuple[str, ...]
) -> None:
    one = event("a")
    await engine.lay(one, [look(), look("second")])
    first = await engine.take(one, "w", LOOK, 1)
    second = await engine.take(one, "v", LOOK, 1)
    assert (await append(engine, one, "w", engine.finding(first, [late("x")]))).added == 1
    answer = await append(engine, one, "v", engine.finding(second, [late(name) for name in ("x", *more)]))
    assert (answer.state, answer.added) == ("added", len(more))
    assert await end(engine, one, LANE) == ["x"]
    if more:
        assert await end(engine, one, LANE) == ["y"]
    assert await end(engine, one, LOOK) == ["second"]
    assert await end(engine, one, LOOK) == ["look"]
    assert await engine.state(one) == "releasing"


async def test_the_rest_of_the_stage_ends_before_what_one_of_it_found_begins(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [look(), look("second"), look("next", 1)])
    first = await engine.take(one, "w", LOOK, 1)
    assert (await append(engine, one, "w", engine.finding(first, [late("x")]))).added == 1
    assert not await engine.queue(LANE)
    # The janitor neither queues the job of the later stage, nor opens anything early.
    await engine.jump(GRACE)
    await engine.tidy()
    assert not await engine.decisions("requeued")
    assert not await engine.queue(LANE)
    assert await end(engine, one, LOOK) == ["second"]
    assert await end(engine, one, LANE) == ["x"]
    assert await end(engine, one, LOOK) == ["look"]
    assert await end(engine, one, LOOK) == ["next"]
    assert await engine.state(one) == "releasing"


async def test_the_bounds_of_a_deletion_are_kept_and_named(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    sent = engine.finding(taken, [late(f"t{number}") for number in range(8)])
    answer = await append(engine, one, "w", sent, SMALL)
    assert (answer.state, answer.added, answer.targets) == ("added", SMALL.per_look, SMALL.per_look)
    assert len(await end(engine, one, LANE)) == SMALL.per_look
    taken = await engine.take(one, "w", LOOK)
    many = engine.finding(taken, [late(f"u{number}") for number in range(6)])
    answer = await append(engine, one, "w", many, SMALL)
    assert (answer.state, answer.targets, answer.stages) == ("bounds", 6, 2)
    stages = engine.finding(taken, [late(f"u{number}", number) for number in range(3)])
    assert (await append(engine, one, "w", stages, SMALL)).state == "bounds"
    assert len(await names(engine, one)) == 9
    assert (await append(engine, one, "w", engine.finding(taken, [late("v", 0), late("w", 1)]), SMALL)).added == 2


async def test_a_look_beyond_the_bounds_is_refused_with_what_to_do(
    engine: EngineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.shard.Shard.append_all.__defaults__", (LateBounds(targets=1),))
    provider = finds(found("x", "y"))
    one = provider.has("a", [look()])
    await engine.publish(one)
    await engine.start(provider)

    async def held() -> bool:
        return bool(await engine.members("held"))

    await engine.until("the look is held", held)
    told = await deletion_details(engine.installation, one.deletion)
    assert told is not None
    (job,) = [job for job in told.jobs if job.target == "look"]
    assert job.verdict == "refused"
    assert "`knell held drop`" in job.detail
    assert (await engine.job(job.id))["resume"] == "has found"


async def test_a_look_that_finds_nothing_else_again_and_again_is_held(engine: EngineUnderTest) -> None:
    provider = finds(*[found("first")] * 20)
    one = provider.has("a", [thing("first"), look()])
    engine.change("retry", blocked_base=timedelta(milliseconds=1), blocked_cap=timedelta(milliseconds=1))
    await engine.publish(one)
    await engine.start(provider)

    async def held() -> bool:
        return bool(await engine.members("held"))

    await engine.until("a person has to act", held)
    assert provider.called == ["first"]


# ---- people, and lost records


@pytest.mark.parametrize("when", ["unfinished", "open", "moved"])
async def test_an_abandoned_finding_job_does_not_keep_the_release_from_its_turn(
    engine: EngineUnderTest, when: str
) -> None:
    one, provider = event("a"), ScriptedProvider()
    taken = await looking(engine, one, thing("first"))
    (job,) = taken.lanes[0].jobs
    shard, sent = engine.shard(one), engine.finding(taken, [late(f"t{number}") for number in range(3)])
    if when == "unfinished":
        while (await shard.append("w", sent, 0, 2, SMALL)).state == "preparing":
            pass
    elif when == "moved":
        assert (await append(engine, one, "w", sent)).added == 3
    assert await shard.abandon(job, "ann") == "abandoned"
    assert (await append(engine, one, "w", sent, SMALL)).state == "lost"
    await open_all(engine, one)
    if when == "moved":
        assert await engine.state(one) == "running"
        assert len(await end(engine, one, LANE)) == 3
    assert await engine.state(one) == "releasing"
    await ended_in_order(engine, provider, one)


async def test_an_abandoned_late_target_is_not_found_again(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    assert (await append(engine, one, "w", engine.finding(taken, [late("x"), late("y")]))).added == 2
    jobs = {target: job for job, target in await engine.targets_of(one)}
    assert await engine.shard(one).abandon(jobs["x"], "ann") == "abandoned"
    assert await end(engine, one, LANE) == ["y"]
    taken = await engine.take(one, "w", LOOK)
    assert (await append(engine, one, "w", engine.finding(taken, [late("x")]))).state == "known"
    assert (await KeptStore(engine.installation).given_up(one.deletion)).covers("thing", "x")


@pytest.mark.parametrize("most", [200, 1])
async def test_a_withdrawn_deletion_cancels_late_targets_and_takes_no_more(engine: EngineUnderTest, most: int) -> None:
    one, provider = event("a"), ScriptedProvider()
    await engine.lay(one, [thing("first"), look(), look("second")])
    await end(engine, one, LANE)
    taken = await engine.take(one, "w", LOOK, 1)
    assert (await append(engine, one, "w", engine.finding(taken, [late("x"), late("y", 1)]))).added == 2
    second = await engine.take(one, "v", LOOK, 1)
    await engine.shard(one).withdraw(one.deletion, "for a test", most)
    if most == 1:
        answer = await append(engine, one, "v", engine.finding(second, [late("z")]))
        assert answer.state == "withdrawn"
    assert await withdraw(engine.installation, one.deletion, "for a test")
    assert (await engine.deletion(one))["abandoned"] == "4"
    await ended_in_order(engine, provider, one)


@pytest.mark.parametrize("job", ["look", "x"])
async def test_a_lost_record_after_an_append_has_all_planned_anew(engine: EngineUnderTest, job: str) -> None:
    one, provider = event("a"), ScriptedProvider()
    provider.has("a", [thing("first"), look()])
    taken = await looking(engine, one, thing("first"))
    assert (await append(engine, one, "w", engine.finding(taken, [late("x")]))).added == 1
    if job == "look":
        await end(engine, one, LANE)
    jobs = {target: name for name, target in await engine.targets_of(one)}
    plan, _, number = jobs[job].rpartition(".")
    assert await engine.client.hdel(f"{engine.shard(one).stem}job:{plan}", number) == 1
    for _ in range(2):
        await engine.jump(GRACE)
        await engine.tidy()
    assert await engine.decisions("planned anew") == [one.deletion]
    assert not [key async for key in engine.client.scan_iter(match=f"{engine.shard(one).stem}targets:*")]
    assert not {"late", "late_stages", "indexed"} & set(await engine.deletion(one))
    provider.answers["look"] = [reads(found("x"))]
    await ended_in_order(engine, provider, one, "first", "x", "look")


async def test_the_index_goes_with_the_deletion(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    assert (await append(engine, one, "w", engine.finding(taken, [late("x")]))).added == 1
    await ended_in_order(engine, ScriptedProvider(), one, "x", "look")
    now = timedelta()
    await engine.shard(one).expire(finished=now, audit=now, audit_entries=100, lanes=now, most=100)
    assert not [key async for key in engine.client.scan_iter(match=f"{engine.shard(one).stem}*{one.deletion}*")]


async def test_a_recheck_brings_a_refused_late_target_forward(engine: EngineUnderTest) -> None:
    one = event("a")
    taken = await looking(engine, one, thing("first"))
    assert (await append(engine, one, "w", engine.finding(taken, [late("x")]))).added == 1
    provider = ScriptedProvider()
    taken = await engine.take(one, "w", LANE)
    assert await engine.settle(taken, "w", Refused("denied")) == [True]
    (answer,) = await engine.shard(one).recheck([(one.deletion, 0)], "a mark was removed")
    assert (answer.forward, answer.next) == (1, -1)
    await ended_in_order(engine, provider, one, "x", "look")
