"""Coalesces equal reads: callers that arrive while a read is in flight wait for the next one and share its result.
A caller never gets a result that was requested before the caller asked."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import timedelta
from typing import Any, Generic, NamedTuple, Never, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")


class _NextRead(NamedTuple, Generic[T, V]):
    task: "asyncio.Task[V]"
    items: list[T]


class CoalescedReads(Generic[K, T, V]):
    """Runs one read per key at a time. `read` gets the items of all callers that share it, in the order of their
    arrival; it begins after `gather_time` at the earliest."""

    def __init__(self, read: Callable[[K, list[T]], Awaitable[V]], *, gather_time: timedelta = timedelta(0)) -> None:
        self._read, self._gather_time = read, gather_time.total_seconds()
        self._next: dict[K, _NextRead[T, V]] = {}
        self._running: dict[K, asyncio.Task[V]] = {}

    @classmethod
    def by_key(cls, read: Callable[[K], Awaitable[V]]) -> "CoalescedReads[K, Never, V]":
        """For reads that take no items."""
        return CoalescedReads[K, Never, V](lambda key, _items: read(key))

    async def read(self, key: K, items: Iterable[T] = ()) -> V:
        return await asyncio.shield(self.ask(key, items))

    def ask(self, key: K, items: Iterable[T] = ()) -> "asyncio.Task[V]":
        """The next read, for a caller that does other things meanwhile. To be awaited with a shield: other callers may
        wait for the same task."""
        coming = self._next.get(key)
        if coming is None:
            gathered = list[T]()
            task = asyncio.ensure_future(self._run(key, gathered))
            task.add_done_callback(_retrieve_exception)
            coming = self._next[key] = _NextRead(task, gathered)
        coming.items.extend(items)
        return coming.task

    async def aclose(self) -> None:
        """Cancels all reads."""
        tasks = [*(coming.task for coming in self._next.values()), *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: K, items: list[T]) -> V:
        try:
            await asyncio.sleep(self._gather_time)
            if (before := self._running.get(key)) is not None:
                await asyncio.wait([before])
        finally:
            # Callers can't join any more: a result must be younger than the request.
            task = self._next.pop(key).task
        self._running[key] = task
        try:
            return await self._read(key, items)
        finally:
            del self._running[key]


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Retrieves the exception, so that asyncio does not log it when every caller was cancelled."""
    if not task.cancelled():
        task.exception()
