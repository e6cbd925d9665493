"""Coalescing of equal reads: callers that arrive while a read is in flight wait for the next one and share its result.
A caller never gets a result that was requested before the caller asked."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class FreshReads(Generic[K, V]):
    """Runs one read per key at a time and lets waiting callers share the next one."""

    def __init__(self, read: Callable[[K], Coroutine[Any, Any, V]]) -> None:
        self._read = read
        self._next: dict[K, asyncio.Task[V]] = {}
        self._now: dict[K, asyncio.Task[V]] = {}

    def ask(self, key: K) -> asyncio.Task[V]:
        """To be awaited with a shield: other callers may wait for the same task."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.ensure_future(self._run(key, self._now.get(key)))
            task.add_done_callback(_looked_at)
        return task

    async def aclose(self) -> None:
        """Cancels all reads."""
        tasks = [*self._next.values(), *self._now.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: K, before: "asyncio.Task[V] | None") -> V:
        try:
            if before is not None:
                await asyncio.wait([before])
            else:
                await asyncio.sleep(0)
        finally:
            task = self._next.pop(key)
        self._now[key] = task
        try:
            return await self._read(key)
        finally:
            if self._now.get(key) is task:
                del self._now[key]


def _looked_at(task: "asyncio.Task[Any]") -> None:
    """Marks the exception as retrieved: all callers may have been cancelled."""
    if not task.cancelled():
        task.exception()
