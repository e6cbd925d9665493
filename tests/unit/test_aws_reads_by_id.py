"""Reads by id on AWS: callers share calls, and each gets the ids that it asked for."""

import asyncio
from collections.abc import Collection
from datetime import timedelta

from workers.providers.aws.client.reads_by_id import ReadsById
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


class CountedReads:
    """Returns the number of the call for each id, except for those that are missing."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.clients: list[AwsClient] = []

    async def read(self, _key: str, calls: AwsClient, ids: Collection[str]) -> dict[str, int]:
        self.asked.append(list(ids))
        self.clients.append(calls)
        return {one: len(self.asked) for one in ids if not one.startswith("missing")}


async def test_concurrent_requests_are_read_once() -> None:
    readings = CountedReads()
    joined = ReadsById[str, int](readings.read)
    found = await asyncio.gather(joined.read("k", CALLS, ["b", "a"]), joined.read("k", CALLS, ["a", "missing"]))
    assert readings.asked == [["a", "b", "missing"]]
    assert list(found) == [{"b": 1, "a": 1}, {"a": 1}]


async def test_a_read_may_wait_for_others_that_come_a_little_later() -> None:
    readings = CountedReads()
    joined = ReadsById[str, int](readings.read, gather_time=timedelta(milliseconds=300))
    first = asyncio.create_task(joined.read("k", CALLS, ["a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await joined.read("k", CALLS, ["b"]) == {"b": 1}
    assert await first == {"a": 1}
    assert readings.asked == [["a", "b"]]


async def test_more_than_one_call_takes_is_read_in_parts() -> None:
    readings = CountedReads()
    joined = ReadsById[str, int](readings.read, max_ids=2)
    assert await joined.read("k", CALLS, ["a", "b", "c"]) == {"a": 1, "b": 1, "c": 2}


async def test_a_shared_read_uses_the_first_callers_client() -> None:
    readings, other = CountedReads(), UncallableClient()
    joined = ReadsById[str, int](readings.read)
    await asyncio.gather(
        joined.read("k", CALLS, ["a"]),
        joined.read("k", other, ["b"]),  # type: ignore[arg-type]  # only handed through
    )
    assert readings.clients == [CALLS]


async def test_without_ids_nothing_is_called() -> None:
    readings = CountedReads()
    assert await ReadsById[str, int](readings.read).read("k", CALLS, []) == {}
    assert readings.asked == []
