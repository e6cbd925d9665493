"""Coalesced reads: no caller gets a result that is older than its request."""

import asyncio
import gc
from datetime import timedelta
from typing import Any

import pytest

from service.coalesced_reads import CoalescedReads


class GatedReads:
    """Each read waits until it is released, and returns its number for each item."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()

    async def read(self, _key: str, items: list[str]) -> dict[str, int]:
        self.asked.append(items)
        number = len(self.asked)
        self.begun.set()
        await self.gate.wait()
        return dict.fromkeys(items, number)


async def test_concurrent_requests_are_read_once_with_all_their_items() -> None:
    readings = GatedReads()
    readings.gate.set()
    joined = CoalescedReads(readings.read)
    found = await asyncio.gather(joined.read("k", ["b", "a"]), joined.read("k", ["c"]))
    assert readings.asked == [["b", "a", "c"]]
    assert list(found) == [{"b": 1, "a": 1, "c": 1}] * 2


async def test_a_read_may_wait_for_others_that_come_a_little_later() -> None:
    readings = GatedReads()
    readings.gate.set()
    joined = CoalescedReads(readings.read, gather_time=timedelta(milliseconds=300))
    first = asyncio.create_task(joined.read("k", ["a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await joined.read("k", ["b"]) == {"a": 1, "b": 1}
    assert await first == {"a": 1, "b": 1}
    assert readings.asked == [["a", "b"]]


async def test_a_request_during_a_read_is_served_by_the_next_read() -> None:
    readings = GatedReads()
    joined = CoalescedReads(readings.read)
    first = asyncio.create_task(joined.read("k", ["a"]))
    await readings.begun.wait()
    late = [asyncio.create_task(joined.read("k", [one])) for one in ("a", "b")]
    for _ in range(10):
        await asyncio.sleep(0)
    assert readings.asked == [["a"]]
    readings.gate.set()
    assert await first == {"a": 1}
    assert [await one for one in late] == [{"a": 2, "b": 2}] * 2
    assert readings.asked == [["a"], ["a", "b"]]


async def test_a_shared_read_is_never_used_by_a_later_caller() -> None:
    begun: list[int] = []
    reading, gate = asyncio.Event(), asyncio.Event()

    async def read(_key: str) -> int:
        begun.append(len(begun) + 1)
        number = begun[-1]
        reading.set()
        await gate.wait()
        return number

    shared = CoalescedReads.by_key(read)
    first, same = shared.ask("x"), shared.ask("x")
    await reading.wait()
    later, also_later = shared.ask("x"), shared.ask("x")
    gate.set()
    assert [await first, await same, await later, await also_later] == [1, 1, 2, 2]
    assert begun == [1, 2]


async def test_other_keys_do_not_wait() -> None:
    readings = GatedReads()
    joined = CoalescedReads(readings.read)
    tasks = [asyncio.create_task(joined.read(key, ["a"])) for key in ("k", "l")]
    for _ in range(10):
        await asyncio.sleep(0)
    assert readings.asked == [["a"], ["a"]]
    readings.gate.set()
    assert len(await asyncio.gather(*tasks)) == 2


async def test_a_failure_reaches_all_waiting_callers_and_no_later_one() -> None:
    answers: list[int | None] = [None, 1]

    async def read(_key: str) -> int:
        answer = answers.pop(0)
        if answer is None:
            raise ConnectionError("away")
        return answer

    joined = CoalescedReads.by_key(read)
    both = await asyncio.gather(*(joined.read("k") for _ in range(2)), return_exceptions=True)
    assert all(isinstance(one, ConnectionError) for one in both)
    assert await joined.read("k") == 1


async def test_a_cancelled_caller_does_not_cancel_the_read_for_others() -> None:
    readings = GatedReads()
    joined = CoalescedReads(readings.read)
    first, second = (asyncio.create_task(joined.read("k", [one])) for one in ("a", "b"))
    await readings.begun.wait()
    first.cancel()
    readings.gate.set()
    assert await second == {"a": 1, "b": 1}
    assert first.cancelled()


async def test_a_failure_is_not_logged_when_all_callers_were_cancelled() -> None:
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
    begun, gate = asyncio.Event(), asyncio.Event()

    async def read(_key: str) -> int:
        begun.set()
        await gate.wait()
        raise ConnectionError("away")

    joined = CoalescedReads.by_key(read)
    caller = asyncio.create_task(joined.read("k"))
    await begun.wait()
    caller.cancel()
    gate.set()
    # Begins after the failed one. The loop would report the first exception when its task is collected.
    with pytest.raises(ConnectionError):
        await joined.read("k")
    gc.collect()
    assert logged == []


async def test_no_caller_waits_after_close() -> None:
    readings = GatedReads()
    joined = CoalescedReads(readings.read)
    waiting = [asyncio.create_task(joined.read("k", ["a"]))]
    await readings.begun.wait()
    waiting.append(asyncio.create_task(joined.read("k", ["a"])))
    await asyncio.sleep(0)
    await joined.aclose()
    for one in waiting:
        with pytest.raises(asyncio.CancelledError):
            await one
