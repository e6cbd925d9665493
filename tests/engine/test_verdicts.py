"""The state of a job in Redis after each verdict."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from service.contract import Blocked, Draw, Event, Gone, Job, Pending, Refused, Throttled, Verdict
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.handlers.protocol import Batch

MS = timedelta(milliseconds=1)


async def verdict_of(engine: EngineUnderTest, job: str, verdict: str) -> dict[str, str]:
    """The job's record once it was written with that verdict."""

    async def written() -> dict[str, str] | None:
        record = await engine.job(job)
        return record if record.get("verdict") == verdict else None

    found = await engine.until(f"the verdict {verdict} is written", written)
    assert found is not None
    return found


def waits(record: dict[str, str], wait: timedelta, since: int) -> bool:
    """Whether a job is due so long after its verdict, which came after `since` and before it was written down."""
    return since <= float(record["due"]) - wait / MS <= float(record["last_at"])


async def calls(engine: EngineUnderTest, provider: ScriptedProvider, count: int) -> None:
    async def made() -> bool:
        return len(provider.calls) >= count

    await engine.until(f"call {count} was made", made)


async def laid(engine: EngineUnderTest, provider: ScriptedProvider, *answers: Verdict | Exception) -> tuple[Event, str]:
    """One deletion with one target that gives these answers."""
    provider.answers["one"] = list(answers)
    one = event("a")
    jobs = await engine.lay(one, [thing("one")])
    return one, jobs["one"]


async def test_pending_is_checked_again_at_its_time_and_spends_no_attempt(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one, job = await laid(engine, provider, Pending(timedelta(minutes=5), "accepted"))
    begun = await engine.now()
    await engine.start(provider)
    record = await verdict_of(engine, job, "check")
    assert record["detail"] == "accepted"
    assert record.get("attempts", "0") == "0"
    due = (await engine.queue(LANE))[job]
    assert due == float(record["due"])
    assert waits(record, timedelta(minutes=5), begun)
    await engine.jump(timedelta(minutes=4, seconds=50))

    async def untouched() -> bool:
        return len(provider.calls) == 1

    await engine.stays("it is not checked early", untouched, timedelta(milliseconds=200))
    await engine.jump(timedelta(seconds=10))
    await engine.until_done(one)
    assert len(provider.calls) == 2


async def test_pending_may_go_on_in_another_lane_with_what_it_left_for_the_next_attempt(
    engine: EngineUnderTest,
) -> None:
    provider, seen = ScriptedProvider(), list[tuple[str, str]]()

    async def begin(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        return Pending(MS, lane="sim/acct/read", resume="operation-7")

    async def check(job: Job, batch: Batch) -> Verdict:
        seen.append((batch.lane, job.resume))
        return Pending(MS) if len(seen) == 1 else Gone()

    provider.answers["one"] = [begin, check, check]
    one = event("a")
    jobs = await engine.lay(one, [thing("one")])
    await engine.start(provider)
    await engine.until_done(one)
    assert seen == [("sim/acct/read", "operation-7"), ("sim/acct/read", "")]
    assert (await engine.job(jobs["one"]))["lane"] == "sim/acct/read"
    assert not await engine.leases(LANE)
    assert not await engine.leases("sim/acct/read")


async def test_pending_into_a_lane_that_can_not_be_is_a_failed_attempt(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one, job = await laid(engine, provider, Pending(MS, lane="nowhere"))
    await engine.start(provider)
    await engine.until_done(one)
    record = await engine.job(job)
    assert record["attempts"] == "1"
    assert "nowhere" in record["first_error"]


@pytest.mark.every_server
async def test_throttled_spends_no_attempt_and_waits_as_long_as_was_said(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one, job = await laid(engine, provider, Throttled(timedelta(seconds=30), "slow down"))
    begun = await engine.now()
    await engine.start(provider)
    record = await verdict_of(engine, job, "throttled")
    assert record.get("attempts", "0") == "0"
    assert "first_error" not in record
    assert (await engine.queue(LANE))[job] == float(record["due"])
    assert waits(record, timedelta(seconds=30), begun)
    await engine.jump(timedelta(seconds=30))
    await engine.until_done(one)
    assert (await engine.stats())["throttled"] == 1


async def test_throttled_for_ever_never_holds_nor_kills_a_required_job(engine: EngineUnderTest) -> None:
    engine.change("retry", held_after=2)
    provider = ScriptedProvider()
    one, job = await laid(engine, provider, *[Throttled(MS) for _ in range(6)])
    await engine.start(provider)
    await engine.until_done(one)
    assert (await engine.job(job)).get("attempts", "0") == "0"
    assert not await engine.decisions("held")
    assert len(provider.calls) == 7


@pytest.mark.every_server
async def test_blocked_with_a_named_time_is_due_then_and_not_a_millisecond_before(engine: EngineUnderTest) -> None:
    provider, wait = ScriptedProvider(), 180_000
    told = list[int]()

    async def reserved(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        told.append(await engine.now())
        return Blocked("NicReservedForAnotherVm", timedelta(milliseconds=wait))

    provider.answers["one"] = [reserved]
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    running = await engine.start(provider)
    record = await verdict_of(engine, job, "blocked")
    due = int(record["due"])
    assert waits(record, wait * MS, told[0])
    assert (await engine.queue(LANE))[job] == due

    # A worker's restart shortens nothing.
    await running.crash()
    await engine.start(provider)
    await engine.tidy()
    assert (await engine.queue(LANE))[job] == due
    left = due - await engine.now()
    await engine.jump(timedelta(milliseconds=left - 300))

    async def not_early() -> bool:
        return len(provider.calls) == 1 or await engine.now() >= due

    await engine.stays("it is not tried early", not_early, timedelta(milliseconds=250))
    await engine.until_done(one)
    taken = [entry for entry in await engine.audit("intent") if job in entry["jobs"]]
    assert len(taken) == 2
    assert len(provider.calls) == 2


async def test_blocked_without_a_time_waits_longer_each_time_and_spends_no_attempt(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one, job = await laid(engine, provider, *[Blocked("in use") for _ in range(4)])
    await engine.start(provider)
    await engine.until_done(one)
    record = await engine.job(job)
    assert record["waits"] == "4"
    assert record.get("attempts", "0") == "0"


async def test_an_unknown_error_is_tried_again_and_first_and_last_are_kept(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one, job = await laid(engine, provider, OSError("first"), ValueError("second"), KeyError("third"))
    await engine.start(provider)
    await engine.until_done(one)
    record = await engine.job(job)
    assert record["attempts"] == "3"
    assert record["first_error"] == "OSError: first"
    assert record["last_error"] == "KeyError: 'third'"
    assert len(provider.calls) == 4


async def test_a_failed_attempt_says_in_its_record_when_it_is_due_again(engine: EngineUnderTest) -> None:
    engine.change("retry", base=timedelta(minutes=10), cap=timedelta(minutes=10))
    provider = ScriptedProvider()
    _, job = await laid(engine, provider, OSError("first"))
    await engine.start(provider)
    record = await verdict_of(engine, job, "retry")
    due = float(record["due"])
    assert due == (await engine.queue(LANE))[job]
    assert due - float(record["last_at"]) <= 600_000


async def test_a_required_job_is_shown_as_held_and_goes_on_until_it_succeeds(engine: EngineUnderTest) -> None:
    engine.change("retry", held_after=3)
    provider, reached, free = ScriptedProvider(), asyncio.Event(), asyncio.Event()

    async def wait(job: Job, batch: Batch) -> Verdict:
        reached.set()
        await free.wait()
        raise OSError("again")

    provider.answers["one"] = [OSError("no"), OSError("no"), OSError("no"), wait, OSError("no")]
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    await engine.start(provider)
    await reached.wait()
    assert list(await engine.members("held")) == [f"job:{job}"]
    record = await engine.job(job)
    assert (record["attempts"], record["held"]) == ("3", "1")
    assert await engine.state(one) == "running"
    free.set()
    await engine.until_done(one)
    assert not await engine.members("held")
    assert (await engine.job(job))["attempts"] == "5"
    assert not await engine.members("dead")


async def test_a_best_effort_job_gives_up_at_its_deadline_and_the_stage_goes_on(engine: EngineUnderTest) -> None:
    engine.change("retry", best_effort_deadline=timedelta(hours=1), base=timedelta(hours=5), cap=timedelta(hours=5))
    provider = ScriptedProvider()
    provider.answers["log"] = [OSError("no") for _ in range(50)]
    one = event("a")
    jobs = await engine.lay(one, [thing("log", strategy="best-effort"), thing("next", stage=1)])
    deadline = float((await engine.job(jobs["log"]))["deadline"])
    await engine.start(provider)
    await verdict_of(engine, jobs["log"], "retry")

    # However long the backoff would be, the last attempt comes with the deadline, and not hours after it.
    assert (await engine.queue(LANE))[jobs["log"]] <= deadline + timedelta(minutes=1) / MS
    assert "next" not in provider.called
    await engine.jump(timedelta(hours=1))
    await engine.until_done(one)
    record = await engine.job(jobs["log"])
    assert record["state"] == "dead"
    assert "deadline" in record["last_error"]
    assert "OSError: no" in record["last_error"]
    assert list(await engine.members("dead")) == [jobs["log"]]
    assert (await engine.deletion(one))["given_up"] == "1"
    assert "next" in provider.called


async def test_a_required_job_never_dies_however_long_it_fails(engine: EngineUnderTest) -> None:
    engine.change("retry", best_effort_deadline=timedelta(hours=1), held_after=2)
    provider = ScriptedProvider(always=OSError("no"))
    one, job = await laid(engine, provider)
    await engine.start(provider)
    await calls(engine, provider, 5)
    await engine.jump(timedelta(days=30))
    await calls(engine, provider, 10)
    record = await engine.job(job)
    assert "state" not in record
    assert not await engine.members("dead")
    assert await engine.state(one) == "running"


async def test_refused_is_held_for_a_person_and_looked_at_again(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one, job = await laid(engine, provider, Refused("tagged with another owner"))
    begun = await engine.now()
    await engine.start(provider)
    record = await verdict_of(engine, job, "refused")
    assert record["detail"] == "tagged with another owner"
    assert list(await engine.members("held")) == [f"job:{job}"]
    recheck = engine.settings.retry.refused_recheck
    assert (await engine.queue(LANE))[job] == float(record["due"])
    assert waits(record, recheck, begun)
    assert record.get("attempts", "0") == "0"
    await engine.jump(recheck)
    await engine.until_done(one)
    assert not await engine.members("held")


async def test_one_failing_job_of_a_batch_leaves_the_others_alone(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    provider.answers["t1"] = [OSError("only me")]
    one = event("a")
    jobs = await engine.lay(one, [thing(f"t{number}") for number in range(3)])
    await engine.start(provider)
    await engine.until_done(one)
    attempts = {name: (await engine.job(jobs[name])).get("attempts", "0") for name in ("t0", "t1", "t2")}
    assert attempts == {"t0": "0", "t1": "1", "t2": "0"}


class FaultyHandler:
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


async def test_jobs_without_a_verdict_are_tried_again(engine: EngineUnderTest) -> None:
    careless, one = FaultyHandler(), event("a")
    targets = [thing(name, "sim/acct/careless") for name in ("a", "b", "c")]
    jobs = await engine.lay(one, [type(t)(kind="careless", id=t.id, lane=t.lane) for t in targets])
    await engine.start(others=[careless])
    await engine.until_done(one)
    assert careless.tried[0] == ["a", "b", "c"]
    assert (await engine.job(jobs["b"]))["first_error"] == "OSError: in the middle"
    assert (await engine.job(jobs["c"]))["attempts"] in ("1", "2")


async def test_a_kind_that_no_handler_knows_is_retried_and_shown_until_one_comes(engine: EngineUnderTest) -> None:
    engine.change("retry", held_after=2)
    one = event("a")
    target = thing("x", "sim/acct/careless")
    jobs = await engine.lay(one, [type(target)(kind="careless", id="x", lane=target.lane)])
    ignorant = await engine.start()

    async def held() -> bool:
        return f"job:{jobs['x']}" in await engine.members("held")

    await engine.until("it is held", held)
    assert "no handler for kind 'careless'" in (await engine.job(jobs["x"]))["last_error"]
    await ignorant.stop()
    await engine.start(others=[FaultyHandler()])
    await engine.until_done(one)
    assert not await engine.members("held")


async def test_an_attempt_that_takes_too_long_is_stopped_and_spent(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()

    async def hang(job: Job, batch: Batch) -> Verdict:
        await asyncio.Event().wait()
        return Gone()

    provider.answers["one"] = [hang]
    one = event("a")
    jobs = await engine.lay(one, [thing("one")])
    await engine.start(provider, attempt_timeout=timedelta(milliseconds=200))
    await engine.until_done(one)
    record = await engine.job(jobs["one"])
    # On a busy machine the second attempt may have been too slow as well.
    assert int(record["attempts"]) >= 1
    assert "TimeoutError: no verdict within" in record["first_error"]
