"""Concurrency limits: the job slots of this process, and the cap on leased jobs of each lane.

A job whose worker died is tried again as the only job in its process, so that a second death can be attributed to it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase

from service.settings import WorkerSettings

ALONE_PERIOD = 5.0
"""Seconds for which suspect jobs run alone. Half as long, at least, ordinary jobs run before the next such period."""


class WorkerSlots:
    def __init__(self, size: int) -> None:
        self._size = size
        self.busy = 0
        self._changed = asyncio.Event()
        self._alone = False
        self._rest_until = 0.0
        self.stopping = False
        # One suspect at a time, whether job or event, so that a death can be attributed to it.
        self.suspects = asyncio.Lock()

    def free(self) -> int:
        """Slots free for ordinary jobs."""
        return 0 if self._alone or self.stopping else self._size - self.busy

    def acquire(self, count: int) -> None:
        self.busy += count

    def release(self, count: int) -> None:
        self.busy -= count
        self._changed.set()

    def stop(self) -> None:
        self.stopping = True
        self._changed.set()

    async def wait_changed(self) -> None:
        """Wait until a slot is released or the worker stops."""
        self._changed.clear()
        if not self.stopping:
            await self._changed.wait()

    async def wait_empty(self) -> None:
        while self.busy:
            self._changed.clear()
            await self._changed.wait()

    def may_run_alone(self) -> bool:
        free = not self._alone and not self.suspects.locked()
        return free and not self.stopping and time.monotonic() >= self._rest_until

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[float]:
        """Take no new jobs, wait until all slots are free, and run suspect jobs one at a time. Yields when to end."""
        self._alone = True
        try:
            async with self.suspects:
                await self.wait_empty()
                yield time.monotonic() + ALONE_PERIOD
        finally:
            self._alone = False
            self._rest_until = time.monotonic() + ALONE_PERIOD / 2
            self._changed.set()


class LaneCaps:
    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._known: dict[str, int] = {}

    def of(self, lane: str) -> int:
        cap = self._known.get(lane)
        if cap is None:
            patterns = self._settings.lane_caps.items()
            cap = next((cap for pattern, cap in patterns if fnmatchcase(lane, pattern)), self._settings.lane_cap)
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[lane] = cap
        return cap
