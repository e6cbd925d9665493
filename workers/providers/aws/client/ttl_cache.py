"""Cache with a time to live that loads each key once for concurrent callers. Refusals are cached for a shorter time: a
thousand jobs without permission need not ask a thousand times. Unlike with `coalesced_reads`, a caller may get what was
read before it asked."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from workers.providers.aws.errors import NoAccess

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

REFUSAL_TTL: Final = timedelta(seconds=5)


class _CacheEntry(Generic[V]):
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.until = float("-inf")
        self.known: tuple[V] | NoAccess | None = None


class TtlCache(Generic[K, V]):
    """Age counts from the start of the load. Only NoAccess is cached as a refusal; other errors are raised to the
    caller."""

    def __init__(self, *, most: int = 4096, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._entries: dict[K, _CacheEntry[V]] = {}

    async def get(self, key: K, find: Callable[[], Awaitable[tuple[V, timedelta]]]) -> V:
        """`find` returns a value and how long it may be used."""
        entry = self._entries.get(key)
        if entry is None:
            self._make_room()
            entry = self._entries[key] = _CacheEntry()
        if not self._current(entry):
            async with entry.lock:
                if not self._current(entry):
                    await self._find(entry, find)
        if isinstance(entry.known, NoAccess):
            raise NoAccess(str(entry.known), again=entry.known.again)
        assert entry.known is not None  # noqa: S101  # it was found, or the finding raised
        return entry.known[0]

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)

    def _current(self, entry: _CacheEntry[V]) -> bool:
        return self._clock() < entry.until

    async def _find(self, entry: _CacheEntry[V], find: Callable[[], Awaitable[tuple[V, timedelta]]]) -> None:
        begun = self._clock()
        try:
            value, lasting = await find()
        except NoAccess as refusal:
            # A new exception: the traceback of the old one keeps its frames alive.
            entry.known, lasting = NoAccess(str(refusal), again=refusal.again), REFUSAL_TTL
        else:
            entry.known = (value,)
        entry.until = begun + lasting.total_seconds()

    def _make_room(self) -> None:
        if len(self._entries) < self._most:
            return
        for key, entry in list(self._entries.items()):
            if not self._current(entry) and not entry.lock.locked():
                del self._entries[key]
        while len(self._entries) >= self._most:
            del self._entries[next(iter(self._entries))]
