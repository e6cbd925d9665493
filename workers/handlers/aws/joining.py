"""Reads of many made as one: ids that are asked for while a read is on its way are read together by the next.
An answer is never used by who asked after it was asked for."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from workers.handlers.aws.model import Calls

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Joined(Generic[K, V]):
    """`read` answers those of the ids that are there, at most `most` at once, in the name of the first who asked:
    whoever asks under one key must be allowed the same. The first who asks waits for others, as long as `gathers`."""

    def __init__(
        self,
        read: Callable[[K, Calls, Collection[str]], Awaitable[dict[str, V]]],
        *,
        most: int = 10_000,
        gathers: timedelta = timedelta(0),
    ) -> None:
        self._read, self._most, self._gathers = read, most, gathers.total_seconds()
        self._next: dict[K, tuple[asyncio.Task[dict[str, V]], set[str]]] = {}
        self._now: dict[K, asyncio.Task[dict[str, V]]] = {}

    async def ask(self, key: K, calls: Calls, ids: Collection[str]) -> dict[str, V]:
        if not ids:
            return {}
        if key not in self._next:
            wanted = set[str]()
            task = asyncio.ensure_future(self._run(key, calls, wanted, self._now.get(key)))
            task.add_done_callback(_looked_at)
            self._next[key] = task, wanted
        coming, together = self._next[key]
        together.update(ids)
        found = await asyncio.shield(coming)
        return {one: found[one] for one in ids if one in found}

    async def aclose(self) -> None:
        """Nobody waits any more."""
        tasks = [*(task for task, _ in self._next.values()), *self._now.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, key: K, calls: Calls, wanted: set[str], before: "asyncio.Task[dict[str, V]] | None"
    ) -> dict[str, V]:
        try:
            await asyncio.sleep(self._gathers)
            if before is not None:
                await asyncio.wait([before])
        finally:
            # From here on nobody joins: an answer must be younger than the question.
            task, _ = self._next.pop(key)
        self._now[key] = task
        try:
            found: dict[str, V] = {}
            ids = sorted(wanted)
            for begin in range(0, len(ids), self._most):
                found |= await self._read(key, calls, ids[begin : begin + self._most])
            return found
        finally:
            if self._now.get(key) is task:
                del self._now[key]


def _looked_at(task: "asyncio.Task[Any]") -> None:
    """Nobody need wait for an answer any more; then its failure is nobody's either."""
    if not task.cancelled():
        task.exception()
