"""Coalesced reads: no caller gets a result that is older than its request."""

import asyncio
from collections.abc import Collection
from datetime import timedelta

import pytest

from workers.providers.aws.client.coalesced_reads import CoalescedReads
from workers.providers.aws.model import AwsClient, CallScope


class UncallableClient:
    """A client that is never called: the test supplies what is read."""

    whose = CallScope(source="s", namespace="n", region="r")
    account = "1"

    async def call(self, service: str, operation: str, /, **arguments: object) -> dict[str, object]:
        raise NotImplementedError

    def pages(self, service: str, operation: str, key: str, /, **arguments: object) -> object:
        raise NotImplementedError


CALLS: AwsClient = UncallableClient()  # type: ignore[assignment]  # only handed through


class GatedReads:
    """Each read waits until it is released."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()

    async def read(self, _key: str, _calls: AwsClient, ids: Collection[str]) -> dict[str, int]:
        self.asked.append(list(ids))
        number = len(self.asked)
        self.begun.set()
        await self.gate.wait()
        return {one: number for one in ids if not one.startswith("missing")}


async def test_concurrent_requests_are_read_once() -> None:
    readings = GatedReads()
    readings.gate.set()
    joined = CoalescedReads[str, int](readings.read)
    found = await asyncio.gather(joined.read("k", CALLS, ["b", "a"]), joined.read("k", CALLS, ["a", "missing"]))
    assert readings.asked == [["a", "b", "missing"]]
    assert list(found) == [{"b": 1, "a": 1}, {"a": 1}]


async def test_a_read_may_wait_for_others_that_come_a_little_later() -> None:
    readings = GatedReads()
    readings.gate.set()
    joined = CoalescedReads[str, int](readings.read, gather_time=timedelta(milliseconds=300))
    first = asyncio.create_task(joined.read("k", CALLS, ["a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await joined.read("k", CALLS, ["b"]) == {"b": 1}
    assert await first == {"a": 1}
    assert readings.asked == [["a", "b"]]


async def test_a_request_during_a_read_is_served_by_the_next_read() -> None:
    readings = GatedReads()
    joined = CoalescedReads[str, int](readings.read)
    first = asyncio.create_task(joined.read("k", CALLS, ["a"]))
    await readings.begun.wait()
    late = [asyncio.create_task(joined.read("k", CALLS, [one])) for one in ("a", "b")]
    await asyncio.sleep(0)
    assert readings.asked == [["a"]]
    readings.gate.set()
    assert await first == {"a": 1}
    assert [await one for one in late] == [{"a": 2}, {"b": 2}]
    assert readings.asked == [["a"], ["a", "b"]]


async def test_other_keys_do_not_wait() -> None:
    readings = GatedReads()
    joined = CoalescedReads[str, int](readings.read)
    tasks = [asyncio.create_task(joined.read(key, CALLS, ["a"])) for key in ("k", "l")]
    for _ in range(10):
        await asyncio.sleep(0)
    assert readings.asked == [["a"], ["a"]]
    readings.gate.set()
    assert len(await asyncio.gather(*tasks)) == 2


async def test_more_than_one_call_takes_is_read_in_parts() -> None:
    readings = GatedReads()
    readings.gate.set()
    joined = CoalescedReads[str, int](readings.read, max_ids=2)
    assert await joined.read("k", CALLS, ["a", "b", "c"]) == {"a": 1, "b": 1, "c": 2}


async def test_a_failure_reaches_all_waiting_callers_and_no_later_one() -> None:
    answers: list[dict[str, int] | None] = [None, {"a": 1}]

    async def read(_key: str, _calls: AwsClient, _ids: Collection[str]) -> dict[str, int]:
        answer = answers.pop(0)
        if answer is None:
            raise ConnectionError("away")
        return answer

    joined = CoalescedReads[str, int](read)
    both = await asyncio.gather(*(joined.read("k", CALLS, ["a"]) for _ in range(2)), return_exceptions=True)
    assert all(isinstance(one, ConnectionError) for one in both)
    assert await joined.read("k", CALLS, ["a"]) == {"a": 1}


async def test_no_caller_waits_after_close() -> None:
    readings = GatedReads()
    joined = CoalescedReads[str, int](readings.read)
    waiting = asyncio.create_task(joined.read("k", CALLS, ["a"]))
    await readings.begun.wait()
    await joined.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
