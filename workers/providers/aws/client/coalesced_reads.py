"""Coalesced reads: ids requested while a read is in flight are read together by the next one. A read that has begun
never serves a later caller."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from workers.providers.aws.model import AwsClient

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CoalescedReads(Generic[K, V]):
    """`read` returns the ids that exist, at most `max_ids` per call, with the first caller's client: callers that share
    a key must have the same permissions. The first caller waits `gather_time` for others."""

    def __init__(
        self,
        read: Callable[[K, AwsClient, Collection[str]], Awaitable[dict[str, V]]],
        *,
        max_ids: int = 10_000,
        gather_time: timedelta = timedelta(0),
    ) -> None:
        self._read, self._max_ids, self._gather_time = read, max_ids, gather_time.total_seconds()
        self._next: dict[K, tuple[asyncio.Task[dict[str, V]], set[str]]] = {}
        self._running: dict[K, asyncio.Task[dict[str, V]]] = {}

    async def read(self, key: K, client: AwsClient, ids: Collection[str]) -> dict[str, V]:
        if not ids:
            return {}
        if key not in self._next:
            wanted = set[str]()
            task = asyncio.ensure_future(self._run(key, client, wanted, self._running.get(key)))
            task.add_done_callback(_retrieve_exception)
            self._next[key] = task, wanted
        coming, together = self._next[key]
        together.update(ids)
        found = await asyncio.shield(coming)
        return {one: found[one] for one in ids if one in found}

    async def aclose(self) -> None:
        tasks = [*(task for task, _ in self._next.values()), *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, key: K, client: AwsClient, wanted: set[str], before: "asyncio.Task[dict[str, V]] | None"
    ) -> dict[str, V]:
        try:
            await asyncio.sleep(self._gather_time)
            if before is not None:
                await asyncio.wait([before])
        finally:
            # Callers can't join any more: a result must be younger than the request.
            task, _ = self._next.pop(key)
        self._running[key] = task
        try:
            found: dict[str, V] = {}
            ids = sorted(wanted)
            for begin in range(0, len(ids), self._max_ids):
                found |= await self._read(key, client, ids[begin : begin + self._max_ids])
            return found
        finally:
            if self._running.get(key) is task:
                del self._running[key]


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Retrieves the exception, so that asyncio does not log it when every caller was cancelled."""
    if not task.cancelled():
        task.exception()
