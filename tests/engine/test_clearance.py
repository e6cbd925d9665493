"""Clearance before a destructive call: each deletion waits for the consent of its own object only, and pauses and
leases of many jobs are read at once."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from service.contract import Job, decode_job_record
from service.engine.calls import RedisCaller
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, event, thing
from workers.handlers.protocol import NotCleared
from workers.runtime.clearance import Clearance
from workers.runtime.server_clock import ServerClock


class GatedObjects:
    """Each object answers when a test lets it."""

    def __init__(self, jobs: list[Job]) -> None:
        self.answers = {job.deletion: asyncio.Future[Exception | None]() for job in jobs}

    async def objection(self, deletion: str) -> Exception | None:
        return await asyncio.shield(self.answers[deletion])


class ConsentBatch:
    """A batch of one job for each of several deletions, all of which ask at the same moment."""

    def __init__(self, engine: EngineUnderTest, jobs: list[Job], caller: Any = None) -> None:
        installation, objects = engine.installation, GatedObjects(jobs)
        caller = caller or installation.caller
        number = engine.shard(jobs[0].id).number
        self.gate = Clearance(caller, installation.keys, number, "holder", ServerClock(), objects)
        self.checks = [asyncio.ensure_future(self.gate.check(LANE, (), [job], len(jobs))) for job in jobs]
        self.answers = list(objects.answers.values())

    async def aclose(self) -> None:
        for check in self.checks:
            check.cancel()
        await asyncio.gather(*self.checks, return_exceptions=True)
        await self.gate.aclose()


class _GatedCaller:
    """Counts commands, and answers the first one only when it may."""

    def __init__(self, caller: RedisCaller) -> None:
        self._caller, self.trips = caller, Counter[str]()
        self.asked, self.free = asyncio.Event(), asyncio.Event()

    async def command(self, *words: Any) -> Any:
        self.trips[str(words[0])] += 1
        self.asked.set()
        await self.free.wait()
        return await self._caller.command(*words)


async def taken(engine: EngineUnderTest, count: int) -> list[Job]:
    first = event("a")
    for one in (first, *(engine.beside(first, f"b{number}-") for number in range(1, count))):
        await engine.lay(one, [thing(one.uid)])
    (lane,) = (await engine.take(first, "holder", LANE)).lanes
    assert len(lane.jobs) == count
    return [
        Job(job, lane.fence, decode_job_record(record)) for job, record in zip(lane.jobs, lane.records, strict=True)
    ]


async def test_what_is_consented_to_goes_on_whatever_becomes_of_the_others_in_its_batch(
    engine: EngineUnderTest,
) -> None:
    """Of five objects one is silent, one can't be asked, one is no longer asked, and one objects."""
    asking = ConsentBatch(engine, await taken(engine, 5))
    silent, broken, called_off, objects, consents = asking.answers
    broken.set_exception(OSError("no route"))
    called_off.cancel()
    objects.set_result(NotCleared("protected", refused=True))
    consents.set_result(None)
    done = await asyncio.gather(*asking.checks[1:], return_exceptions=True)
    assert [type(one) for one in done] == [OSError, asyncio.CancelledError, NotCleared, type(None)]
    assert not asking.checks[0].done()
    silent.set_result(None)
    await asking.checks[0]
    await asking.aclose()


async def test_cancelling_one_job_does_not_cancel_the_check_of_others(engine: EngineUnderTest) -> None:
    asking = ConsentBatch(engine, await taken(engine, 2))
    for answer in asking.answers:
        answer.set_result(None)
    asking.checks[0].cancel()
    await asking.checks[1]
    await asking.aclose()


async def test_a_lease_that_is_lost_while_the_objects_are_asked_clears_nothing(engine: EngineUnderTest) -> None:
    """What was read before the last of them answered would not tell."""
    jobs = await taken(engine, 2)
    asking = ConsentBatch(engine, jobs)
    first, second = asking.answers
    first.set_result(None)
    await asking.checks[0]
    await engine.client.delete(engine.shard(jobs[1].id).stem + "batches")
    second.set_result(None)
    with pytest.raises(NotCleared, match="taken back"):
        await asking.checks[1]
    await asking.aclose()


async def test_consents_that_arrive_one_by_one_share_reads_of_pauses_and_leases(engine: EngineUnderTest) -> None:
    caller = _GatedCaller(engine.installation.caller)
    asking = ConsentBatch(engine, await taken(engine, 40), caller)
    first, *others = asking.answers
    first.set_result(None)
    await caller.asked.wait()
    # They come while the read for the first one is under way, which does not count for them.
    for answer in others:
        answer.set_result(None)
    caller.free.set()
    await asyncio.gather(*asking.checks)
    assert caller.trips["HMGET"] == 2
    await asking.aclose()
