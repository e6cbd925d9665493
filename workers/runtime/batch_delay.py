"""Adaptive delay that makes Redis calls fewer and larger while many jobs run: a call for a few jobs waits a moment for
more. A worker with few running jobs never waits, and the delay is always short compared to what the jobs themselves
take."""

import asyncio
import time
from typing import Final

from workers.runtime.slots import WorkerSlots

BUSY_FROM: Final = 32
"""Running jobs from which on a short delay makes no noticeable difference to any of them."""

SMALL_STEP: Final = 32
"""A step with fewer jobs is hardly worth its round trips."""

SHARE: Final = 0.1
LONGEST: Final = 0.2
"""The delay is this share of the average duration of recent batches, and never longer than LONGEST seconds."""


class BatchDelay:
    def __init__(self, slots: WorkerSlots) -> None:
        self._slots = slots
        self._batch_seconds = 0.0
        self._not_before = 0.0

    def finished(self, seconds: float) -> None:
        """A batch has ended; `seconds` is how long it ran."""
        self._batch_seconds += (seconds - self._batch_seconds) * 0.1

    def step_done(self, jobs: int) -> None:
        """A step was made with so many jobs."""
        if self._is_small_step(jobs):
            self._not_before = time.monotonic() + self.pause

    async def before_step(self) -> None:
        """To be awaited before each step: after a small step the next one is delayed."""
        wait = self._not_before - time.monotonic()
        if wait > 0 and self._is_small_step(0):
            await asyncio.sleep(wait)

    async def before_batch(self, jobs: int = 0) -> None:
        """To be awaited before a step with so many jobs: if they are few, wait for more."""
        if self._is_small_step(jobs):
            await asyncio.sleep(self.pause / 2)

    @property
    def pause(self) -> float:
        return min(self._batch_seconds * SHARE, LONGEST)

    def _is_small_step(self, jobs: int) -> bool:
        return jobs < SMALL_STEP and self._slots.busy >= BUSY_FROM and not self._slots.stopping
