"""What is dear to find out is kept for a while, and found out once for all who ask meanwhile.
A refusal is kept as well, for a shorter while: a thousand jobs that may not do something need not all ask for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from workers.handlers.aws.errors import NoAccess

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

REFUSED: Final = timedelta(seconds=5)


class _Entry(Generic[V]):
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.until = float("-inf")
        self.known: tuple[V] | NoAccess | None = None


class Remembered(Generic[K, V]):
    """Its age counts from the moment at which it was asked for, not from that of the answer. Only NoAccess is taken for
    a refusal; every other failure is the asker's own."""

    def __init__(self, *, most: int = 4096, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._entries: dict[K, _Entry[V]] = {}

    async def get(self, key: K, find: Callable[[], Awaitable[tuple[V, timedelta]]]) -> V:
        """`find` answers a value and how long it may be used."""
        entry = self._entries.get(key)
        if entry is None:
            self._make_room()
            entry = self._entries[key] = _Entry()
        if not self._current(entry):
            async with entry.turn:
                if not self._current(entry):
                    await self._find(entry, find)
        if isinstance(entry.known, NoAccess):
            raise NoAccess(str(entry.known), again=entry.known.again)
        assert entry.known is not None  # noqa: S101  # it was found, or the finding raised
        return entry.known[0]

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)

    def _current(self, entry: _Entry[V]) -> bool:
        return self._clock() < entry.until

    async def _find(self, entry: _Entry[V], find: Callable[[], Awaitable[tuple[V, timedelta]]]) -> None:
        begun = self._clock()
        try:
            value, lasting = await find()
        except NoAccess as refusal:
            # A new one: the old one's traceback holds on to everything that was at hand where it arose.
            entry.known, lasting = NoAccess(str(refusal), again=refusal.again), REFUSED
        else:
            entry.known = (value,)
        entry.until = begun + lasting.total_seconds()

    def _make_room(self) -> None:
        if len(self._entries) < self._most:
            return
        for key, entry in list(self._entries.items()):
            if not self._current(entry) and not entry.turn.locked():
                del self._entries[key]
        while len(self._entries) >= self._most:
            del self._entries[next(iter(self._entries))]
