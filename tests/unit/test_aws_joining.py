"""Reads of many that are made as one: nobody gets an answer that is older than his question."""

import asyncio
from collections.abc import Collection
from datetime import timedelta

import pytest

from workers.handlers.aws.joining import Joined
from workers.handlers.aws.model import Calls, Whose


class Nobody:
    """Calls that are never made: what is read is the test's."""

    whose = Whose(source="s", namespace="n", region="r")
    account = "1"

    async def call(self, service: str, operation: str, /, **arguments: object) -> dict[str, object]:
        raise NotImplementedError

    def pages(self, service: str, operation: str, key: str, /, **arguments: object) -> object:
        raise NotImplementedError


CALLS: Calls = Nobody()  # type: ignore[assignment]  # only handed through


class Readings:
    """Each read waits until it is let go."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()

    async def read(self, _key: str, _calls: Calls, ids: Collection[str]) -> dict[str, int]:
        self.asked.append(list(ids))
        number = len(self.asked)
        self.begun.set()
        await self.gate.wait()
        return {one: number for one in ids if not one.startswith("missing")}


async def test_what_is_asked_for_at_the_same_moment_is_read_once() -> None:
    readings = Readings()
    readings.gate.set()
    joined = Joined[str, int](readings.read)
    found = await asyncio.gather(joined.ask("k", CALLS, ["b", "a"]), joined.ask("k", CALLS, ["a", "missing"]))
    assert readings.asked == [["a", "b", "missing"]]
    assert list(found) == [{"b": 1, "a": 1}, {"a": 1}]


async def test_a_read_may_wait_for_others_that_come_a_little_later() -> None:
    readings = Readings()
    readings.gate.set()
    joined = Joined[str, int](readings.read, gathers=timedelta(milliseconds=300))
    first = asyncio.create_task(joined.ask("k", CALLS, ["a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await joined.ask("k", CALLS, ["b"]) == {"b": 1}
    assert await first == {"a": 1}
    assert readings.asked == [["a", "b"]]


async def test_who_asks_while_a_read_is_on_its_way_is_answered_by_the_next() -> None:
    readings = Readings()
    joined = Joined[str, int](readings.read)
    first = asyncio.create_task(joined.ask("k", CALLS, ["a"]))
    await readings.begun.wait()
    late = [asyncio.create_task(joined.ask("k", CALLS, [one])) for one in ("a", "b")]
    await asyncio.sleep(0)
    assert readings.asked == [["a"]]
    readings.gate.set()
    assert await first == {"a": 1}
    assert [await one for one in late] == [{"a": 2}, {"b": 2}]
    assert readings.asked == [["a"], ["a", "b"]]


async def test_other_keys_do_not_wait() -> None:
    readings = Readings()
    joined = Joined[str, int](readings.read)
    tasks = [asyncio.create_task(joined.ask(key, CALLS, ["a"])) for key in ("k", "l")]
    for _ in range(10):
        await asyncio.sleep(0)
    assert readings.asked == [["a"], ["a"]]
    readings.gate.set()
    assert len(await asyncio.gather(*tasks)) == 2


async def test_more_than_one_call_takes_is_read_in_parts() -> None:
    readings = Readings()
    readings.gate.set()
    joined = Joined[str, int](readings.read, most=2)
    assert await joined.ask("k", CALLS, ["a", "b", "c"]) == {"a": 1, "b": 1, "c": 2}


async def test_a_failure_reaches_everyone_who_waits_and_nobody_after() -> None:
    answers: list[dict[str, int] | None] = [None, {"a": 1}]

    async def read(_key: str, _calls: Calls, _ids: Collection[str]) -> dict[str, int]:
        answer = answers.pop(0)
        if answer is None:
            raise ConnectionError("away")
        return answer

    joined = Joined[str, int](read)
    both = await asyncio.gather(*(joined.ask("k", CALLS, ["a"]) for _ in range(2)), return_exceptions=True)
    assert all(isinstance(one, ConnectionError) for one in both)
    assert await joined.ask("k", CALLS, ["a"]) == {"a": 1}


async def test_nobody_waits_after_the_end() -> None:
    readings = Readings()
    joined = Joined[str, int](readings.read)
    waiting = asyncio.create_task(joined.ask("k", CALLS, ["a"]))
    await readings.begun.wait()
    await joined.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
