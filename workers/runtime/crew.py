"""How much one worker process may have in its hands, and the times when it works on a single job alone.

A job that was in the hands of a worker that died is tried with nothing else in the process, so that a second death
says something about it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SOLO_SPELL = 5.0
"""Seconds of working alone, or with the rest, before the other has its turn."""


class Crew:
    def __init__(self, size: int) -> None:
        self._size = size
        self.busy = 0
        self._changed = asyncio.Event()
        self._alone = False
        self._rest_until = 0.0
        self.stopping = False
        # One suspect at a time, be it a job or an event: a death must point to one of them.
        self.suspects = asyncio.Lock()

    def room(self) -> int:
        """Places free for ordinary work."""
        return 0 if self._alone or self.stopping else self._size - self.busy

    def enter(self, count: int) -> None:
        self.busy += count

    def leave(self, count: int) -> None:
        self.busy -= count
        self._changed.set()

    def stop(self) -> None:
        self.stopping = True
        self._changed.set()

    async def changed(self) -> None:
        """Wait until a place became free or the worker stops."""
        self._changed.clear()
        if not self.stopping:
            await self._changed.wait()

    async def empty(self) -> None:
        while self.busy:
            self._changed.clear()
            await self._changed.wait()

    def may_work_alone(self) -> bool:
        free = not self._alone and not self.suspects.locked()
        return free and not self.stopping and time.monotonic() >= self._rest_until

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[float]:
        """Take nothing new, wait until all hands are free, and have the process for one job at a time."""
        self._alone = True
        try:
            async with self.suspects:
                await self.empty()
                yield time.monotonic() + SOLO_SPELL
        finally:
            self._alone = False
            self._rest_until = time.monotonic() + SOLO_SPELL / 2
            self._changed.set()
