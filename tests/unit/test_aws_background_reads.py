"""Reads that outlast their caller: each runs once, and its result goes only to the caller that returns for it."""

import asyncio
from datetime import timedelta

import pytest

from tests.engine.waiting import until
from workers.providers.aws.client.background_reads import BackgroundReads, StillRunning

SHORT = timedelta(milliseconds=20)
LONG = timedelta(seconds=20)


class GatedWork:
    """Work that waits until it is released, and then returns how often it was started, or fails."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.free = asyncio.Event()
        self.failure: Exception | None = None

    async def do(self) -> int:
        self.begun += 1
        number = self.begun
        try:
            await self.free.wait()
            if self.failure is not None:
                raise self.failure
            return number
        finally:
            self.ended += 1

    async def until_ended(self, number: int = 1) -> None:
        async def ended() -> bool:
            return self.ended >= number

        await until(f"{number} have ended", ended)


async def test_what_is_quick_is_answered_at_once() -> None:
    work, looks = GatedWork(), BackgroundReads[int](LONG)
    work.free.set()
    assert await looks.result(looks.name(), "q", work.do) == 1


async def test_a_caller_that_leaves_gets_the_result_of_the_same_read_when_it_returns() -> None:
    work, looks = GatedWork(), BackgroundReads[int](SHORT)
    name = looks.name()
    for _ in range(3):
        with pytest.raises(StillRunning):
            await looks.result(name, "q", work.do)
    work.free.set()
    await work.until_ended()
    assert looks.name(["another-1", name]) == name
    assert await looks.result(name, "q", work.do) == 1
    assert work.begun == 1


async def test_a_read_continues_when_its_caller_is_cancelled() -> None:
    work, looks = GatedWork(), BackgroundReads[int](LONG)
    asking = asyncio.create_task(looks.result("plan a", "q", work.do))

    async def begun() -> bool:
        return work.begun == 1

    await until("it has begun", begun)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    work.free.set()
    assert await looks.result("plan a", "q", work.do) == 1


async def test_a_result_is_returned_once_and_the_next_call_reads_anew() -> None:
    work, looks = GatedWork(), BackgroundReads[int](LONG)
    work.free.set()
    name = looks.name()
    assert await looks.result(name, "q", work.do) == 1
    assert looks.name([name]) != name
    assert await looks.result(name, "q", work.do) == 2


async def test_a_result_is_not_returned_under_another_name() -> None:
    work, looks = GatedWork(), BackgroundReads[int](SHORT)
    first, second = looks.name(), looks.name()
    assert first != second
    for name in (first, second):
        with pytest.raises(StillRunning):
            await looks.result(name, "q", work.do)
    work.free.set()
    await work.until_ended(2)
    assert await looks.result(second, "q", work.do) == 2
    assert await looks.result(first, "q", work.do) == 1


async def test_a_changed_question_starts_a_new_read_and_cancels_the_old_one() -> None:
    work, looks = GatedWork(), BackgroundReads[int](SHORT)
    for question in ("before", "after"):
        with pytest.raises(StillRunning):
            await looks.result("plan a", question, work.do)
    await work.until_ended(1)
    work.free.set()
    await work.until_ended(2)
    assert await looks.result("plan a", "after", work.do) == 2


async def test_another_process_does_not_know_the_name() -> None:
    work, looks, restarted = GatedWork(), BackgroundReads[int](SHORT), BackgroundReads[int](SHORT)
    name = looks.name()
    with pytest.raises(StillRunning):
        await looks.result(name, "q", work.do)
    assert restarted.name([name]) != name
    work.free.set()
    assert await restarted.result(restarted.name([name]), "q", work.do) == 2


async def test_a_failure_is_raised_to_the_returning_caller_and_the_next_call_reads_anew() -> None:
    work, looks = GatedWork(), BackgroundReads[int](SHORT)
    with pytest.raises(StillRunning):
        await looks.result("plan a", "q", work.do)
    work.failure = ConnectionError("away")
    work.free.set()
    await work.until_ended()
    with pytest.raises(ConnectionError, match="away"):
        await looks.result("plan a", "q", work.do)
    work.failure = None
    assert await looks.result("plan a", "q", work.do) == 2


async def test_a_result_that_no_caller_returns_for_is_dropped() -> None:
    work, looks = GatedWork(), BackgroundReads[int](SHORT, result_ttl=SHORT)
    name = looks.name()
    with pytest.raises(StillRunning):
        await looks.result(name, "q", work.do)
    work.free.set()

    async def dropped() -> bool:
        return looks.name([name]) != name

    await until("the answer is dropped", dropped)


async def test_the_oldest_is_called_off_when_there_are_too_many() -> None:
    work, looks = GatedWork(), BackgroundReads[int](SHORT, max_reads=2)
    names = [looks.name() for _ in range(3)]
    for name in names:
        with pytest.raises(StillRunning):
            await looks.result(name, "q", work.do)
    await work.until_ended(1)
    assert [looks.name([name]) == name for name in names] == [False, True, True]


async def test_nothing_goes_on_after_the_end() -> None:
    work, looks = GatedWork(), BackgroundReads[int](SHORT)
    with pytest.raises(StillRunning):
        await looks.result("plan a", "q", work.do)
    await looks.aclose()
    assert work.ended == 1


async def test_a_caller_of_a_read_that_was_evicted_is_asked_to_retry() -> None:
    work, looks = GatedWork(), BackgroundReads[int](LONG, max_reads=1)
    first = asyncio.ensure_future(looks.result("one", "q", work.do))

    async def begun() -> bool:
        return work.begun == 1

    await until("the first has begun", begun)
    second = asyncio.ensure_future(looks.result("two", "q", work.do))
    with pytest.raises(StillRunning):
        await first
    work.free.set()
    assert await second == 2
