"""What becomes of a job after each verdict, with the state that Redis then holds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from service.contract import Blocked, Draw, Event, Gone, Job, Pending, Refused, Throttled, Verdict
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from workers.handlers.protocol import Batch

MS = timedelta(milliseconds=1)


async def verdict_of(world: World, job: str, verdict: str) -> dict[str, str]:
    """The job's record once it was written with that verdict."""

    async def written() -> dict[str, str] | None:
        record = await world.job(job)
        return record if record.get("verdict") == verdict else None

    found = await world.until(f"the verdict {verdict} is written", written)
    assert found is not None
    return found


def waits(record: dict[str, str], wait: timedelta, since: int) -> bool:
    """Whether a job is due so long after its verdict, which came after `since` and before it was written down."""
    return since <= float(record["due"]) - wait / MS <= float(record["last_at"])


async def calls(world: World, outside: Outside, count: int) -> None:
    async def made() -> bool:
        return len(outside.calls) >= count

    await world.until(f"call {count} was made", made)


async def laid(world: World, outside: Outside, *answers: Verdict | Exception) -> tuple[Event, str]:
    """One deletion with one target that gives these answers."""
    outside.answers["one"] = list(answers)
    one = event("a")
    jobs = await world.lay(one, [thing("one")])
    return one, jobs["one"]


async def test_pending_is_checked_again_at_its_time_and_spends_no_attempt(world: World) -> None:
    outside = Outside()
    one, job = await laid(world, outside, Pending(timedelta(minutes=5), "accepted"))
    begun = await world.now()
    await world.start(outside)
    record = await verdict_of(world, job, "check")
    assert record["detail"] == "accepted"
    assert record.get("attempts", "0") == "0"
    due = (await world.queue(LANE))[job]
    assert due == float(record["due"])
    assert waits(record, timedelta(minutes=5), begun)
    await world.jump(timedelta(minutes=4, seconds=50))

    async def untouched() -> bool:
        return len(outside.calls) == 1

    await world.stays("it is not checked early", untouched, timedelta(milliseconds=200))
    await world.jump(timedelta(seconds=10))
    await world.until_done(one)
    assert len(outside.calls) == 2


async def test_pending_may_go_on_in_another_lane_with_what_it_left_for_the_next_attempt(world: World) -> None:
    outside, seen = Outside(), list[tuple[str, str]]()

    async def begin(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        return Pending(MS, lane="sim/acct/read", resume="operation-7")

    async def check(job: Job, batch: Batch) -> Verdict:
        seen.append((batch.lane, job.resume))
        return Pending(MS) if len(seen) == 1 else Gone()

    outside.answers["one"] = [begin, check, check]
    one = event("a")
    jobs = await world.lay(one, [thing("one")])
    await world.start(outside)
    await world.until_done(one)
    assert seen == [("sim/acct/read", "operation-7"), ("sim/acct/read", "")]
    assert (await world.job(jobs["one"]))["lane"] == "sim/acct/read"
    assert not await world.leases(LANE)
    assert not await world.leases("sim/acct/read")


async def test_pending_into_a_lane_that_can_not_be_is_a_failed_attempt(world: World) -> None:
    outside = Outside()
    one, job = await laid(world, outside, Pending(MS, lane="nowhere"))
    await world.start(outside)
    await world.until_done(one)
    record = await world.job(job)
    assert record["attempts"] == "1"
    assert "nowhere" in record["first_error"]


@pytest.mark.every_server
async def test_throttled_spends_no_attempt_and_waits_as_long_as_was_said(world: World) -> None:
    outside = Outside()
    one, job = await laid(world, outside, Throttled(timedelta(seconds=30), "slow down"))
    begun = await world.now()
    await world.start(outside)
    record = await verdict_of(world, job, "throttled")
    assert record.get("attempts", "0") == "0"
    assert "first_error" not in record
    assert (await world.queue(LANE))[job] == float(record["due"])
    assert waits(record, timedelta(seconds=30), begun)
    await world.jump(timedelta(seconds=30))
    await world.until_done(one)
    assert (await world.stats())["throttled"] == 1


async def test_throttled_for_ever_never_holds_nor_kills_a_required_job(world: World) -> None:
    world.change("retry", held_after=2)
    outside = Outside()
    one, job = await laid(world, outside, *[Throttled(MS) for _ in range(6)])
    await world.start(outside)
    await world.until_done(one)
    assert (await world.job(job)).get("attempts", "0") == "0"
    assert not await world.decisions("held")
    assert len(outside.calls) == 7


@pytest.mark.every_server
async def test_blocked_with_a_named_time_is_due_then_and_not_a_millisecond_before(world: World) -> None:
    outside, wait = Outside(), 180_000
    told = list[int]()

    async def reserved(job: Job, batch: Batch) -> Verdict:
        await outside.call(job, batch)
        told.append(await world.now())
        return Blocked("NicReservedForAnotherVm", timedelta(milliseconds=wait))

    outside.answers["one"] = [reserved]
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    running = await world.start(outside)
    record = await verdict_of(world, job, "blocked")
    due = int(record["due"])
    assert waits(record, wait * MS, told[0])
    assert (await world.queue(LANE))[job] == due

    # A worker's restart shortens nothing.
    await running.crash()
    await world.start(outside)
    await world.tidy()
    assert (await world.queue(LANE))[job] == due
    left = due - await world.now()
    await world.jump(timedelta(milliseconds=left - 300))

    async def not_early() -> bool:
        return len(outside.calls) == 1 or await world.now() >= due

    await world.stays("it is not tried early", not_early, timedelta(milliseconds=250))
    await world.until_done(one)
    taken = [entry for entry in await world.audit("intent") if job in entry["jobs"]]
    assert len(taken) == 2
    assert len(outside.calls) == 2


async def test_blocked_without_a_time_waits_longer_each_time_and_spends_no_attempt(world: World) -> None:
    outside = Outside()
    one, job = await laid(world, outside, *[Blocked("in use") for _ in range(4)])
    await world.start(outside)
    await world.until_done(one)
    record = await world.job(job)
    assert record["waits"] == "4"
    assert record.get("attempts", "0") == "0"


async def test_an_unknown_error_is_tried_again_and_first_and_last_are_kept(world: World) -> None:
    outside = Outside()
    one, job = await laid(world, outside, OSError("first"), ValueError("second"), KeyError("third"))
    await world.start(outside)
    await world.until_done(one)
    record = await world.job(job)
    assert record["attempts"] == "3"
    assert record["first_error"] == "OSError: first"
    assert record["last_error"] == "KeyError: 'third'"
    assert len(outside.calls) == 4


async def test_a_failed_attempt_says_in_its_record_when_it_is_due_again(world: World) -> None:
    world.change("retry", base=timedelta(minutes=10), cap=timedelta(minutes=10))
    outside = Outside()
    _, job = await laid(world, outside, OSError("first"))
    await world.start(outside)
    record = await verdict_of(world, job, "retry")
    due = float(record["due"])
    assert due == (await world.queue(LANE))[job]
    assert due - float(record["last_at"]) <= 600_000


async def test_a_required_job_is_shown_as_held_and_goes_on_until_it_succeeds(world: World) -> None:
    world.change("retry", held_after=3)
    outside, reached, free = Outside(), asyncio.Event(), asyncio.Event()

    async def wait(job: Job, batch: Batch) -> Verdict:
        reached.set()
        await free.wait()
        raise OSError("again")

    outside.answers["one"] = [OSError("no"), OSError("no"), OSError("no"), wait, OSError("no")]
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    await world.start(outside)
    await reached.wait()
    assert list(await world.members("held")) == [f"job:{job}"]
    record = await world.job(job)
    assert (record["attempts"], record["held"]) == ("3", "1")
    assert await world.state(one) == "running"
    free.set()
    await world.until_done(one)
    assert not await world.members("held")
    assert (await world.job(job))["attempts"] == "5"
    assert not await world.members("dead")


async def test_a_best_effort_job_gives_up_at_its_deadline_and_the_stage_goes_on(world: World) -> None:
    world.change("retry", best_effort_deadline=timedelta(hours=1), base=timedelta(hours=5), cap=timedelta(hours=5))
    outside = Outside()
    outside.answers["log"] = [OSError("no") for _ in range(50)]
    one = event("a")
    jobs = await world.lay(one, [thing("log", strategy="best-effort"), thing("next", stage=1)])
    deadline = float((await world.job(jobs["log"]))["deadline"])
    await world.start(outside)
    await verdict_of(world, jobs["log"], "retry")

    # However long the backoff would be, the last attempt comes with the deadline, and not hours after it.
    assert (await world.queue(LANE))[jobs["log"]] <= deadline + timedelta(minutes=1) / MS
    assert "next" not in outside.called
    await world.jump(timedelta(hours=1))
    await world.until_done(one)
    record = await world.job(jobs["log"])
    assert record["state"] == "dead"
    assert "deadline" in record["last_error"]
    assert "OSError: no" in record["last_error"]
    assert list(await world.members("dead")) == [jobs["log"]]
    assert (await world.deletion(one))["given_up"] == "1"
    assert "next" in outside.called


async def test_a_required_job_never_dies_however_long_it_fails(world: World) -> None:
    world.change("retry", best_effort_deadline=timedelta(hours=1), held_after=2)
    outside = Outside(always=OSError("no"))
    one, job = await laid(world, outside)
    await world.start(outside)
    await calls(world, outside, 5)
    await world.jump(timedelta(days=30))
    await calls(world, outside, 10)
    record = await world.job(job)
    assert "state" not in record
    assert not await world.members("dead")
    assert await world.state(one) == "running"


async def test_refused_is_held_for_a_person_and_looked_at_again(world: World) -> None:
    outside = Outside()
    one, job = await laid(world, outside, Refused("tagged with another owner"))
    begun = await world.now()
    await world.start(outside)
    record = await verdict_of(world, job, "refused")
    assert record["detail"] == "tagged with another owner"
    assert list(await world.members("held")) == [f"job:{job}"]
    recheck = world.settings.retry.refused_recheck
    assert (await world.queue(LANE))[job] == float(record["due"])
    assert waits(record, recheck, begun)
    assert record.get("attempts", "0") == "0"
    await world.jump(recheck)
    await world.until_done(one)
    assert not await world.members("held")


async def test_one_failing_job_of_a_batch_leaves_the_others_alone(world: World) -> None:
    outside = Outside()
    outside.answers["t1"] = [OSError("only me")]
    one = event("a")
    jobs = await world.lay(one, [thing(f"t{number}") for number in range(3)])
    await world.start(outside)
    await world.until_done(one)
    attempts = {name: (await world.job(jobs[name])).get("attempts", "0") for name in ("t0", "t1", "t2")}
    assert attempts == {"t0": "0", "t1": "1", "t2": "0"}


class Careless:
    """A handler that forgets jobs, and breaks in the middle of a batch."""

    kind = "careless"

    def __init__(self) -> None:
        self.tried: list[list[str]] = []

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return () if lane == "sim/acct/careless" else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        self.tried.append([job.target for job in batch.jobs])
        yield batch.jobs[0], Gone()
        if len(self.tried) == 1:
            raise OSError("in the middle")


async def test_jobs_without_a_verdict_are_tried_again(world: World) -> None:
    careless, one = Careless(), event("a")
    targets = [thing(name, "sim/acct/careless") for name in ("a", "b", "c")]
    jobs = await world.lay(one, [type(t)(kind="careless", id=t.id, lane=t.lane) for t in targets])
    await world.start(others=[careless])
    await world.until_done(one)
    assert careless.tried[0] == ["a", "b", "c"]
    assert (await world.job(jobs["b"]))["first_error"] == "OSError: in the middle"
    assert (await world.job(jobs["c"]))["attempts"] in ("1", "2")


async def test_a_kind_that_no_handler_knows_is_retried_and_shown_until_one_comes(world: World) -> None:
    world.change("retry", held_after=2)
    one = event("a")
    target = thing("x", "sim/acct/careless")
    jobs = await world.lay(one, [type(target)(kind="careless", id="x", lane=target.lane)])
    ignorant = await world.start()

    async def held() -> bool:
        return f"job:{jobs['x']}" in await world.members("held")

    await world.until("it is held", held)
    assert "no handler for kind 'careless'" in (await world.job(jobs["x"]))["last_error"]
    await ignorant.stop()
    await world.start(others=[Careless()])
    await world.until_done(one)
    assert not await world.members("held")


async def test_an_attempt_that_takes_too_long_is_stopped_and_spent(world: World) -> None:
    outside = Outside()

    async def hang(job: Job, batch: Batch) -> Verdict:
        await asyncio.Event().wait()
        return Gone()

    outside.answers["one"] = [hang]
    one = event("a")
    jobs = await world.lay(one, [thing("one")])
    await world.start(outside, attempt_timeout=timedelta(milliseconds=200))
    await world.until_done(one)
    record = await world.job(jobs["one"])
    # On a busy machine the second attempt may have been too slow as well.
    assert int(record["attempts"]) >= 1
    assert "TimeoutError: no verdict within" in record["first_error"]
