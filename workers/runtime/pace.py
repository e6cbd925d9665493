"""When small steps follow each other while much is in the air, a moment's wait lets the next one do the work of many.
A worker with little to do never waits here, and nobody waits long beside what the jobs themselves take."""

import asyncio
import time
from typing import Final

from workers.runtime.crew import Crew

MUCH: Final = 32
"""Jobs in the air from which on a moment more or less is not noticed by any of them."""

FEW: Final = 32
"""Jobs in one step that are hardly worth its round trips."""

PART: Final = 0.1
LONGEST: Final = 0.2
"""A moment: this part of what a batch takes from its start to its landing lately, and never more seconds than that."""


class Pace:
    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._usual = 0.0
        self._not_before = 0.0

    def flew(self, seconds: float) -> None:
        """So long a batch was in the air."""
        self._usual += (seconds - self._usual) * 0.1

    def stepped(self, jobs: int) -> None:
        """A step was made, with so many jobs."""
        if self._hurts(jobs):
            self._not_before = time.monotonic() + self.moment

    async def next(self) -> None:
        """Before the next step: it comes a moment after a small one."""
        wait = self._not_before - time.monotonic()
        if wait > 0 and self._hurts(0):
            await asyncio.sleep(wait)

    async def more(self, jobs: int = 0) -> None:
        """Before a step with so many jobs: a few wait for those that are about to come."""
        if self._hurts(jobs):
            await asyncio.sleep(self.moment / 2)

    @property
    def moment(self) -> float:
        return min(self._usual * PART, LONGEST)

    def _hurts(self, jobs: int) -> bool:
        return jobs < FEW and self._crew.busy >= MUCH and not self._crew.stopping
