"""Cadence at which jobs that may not reach a call for long ask for consent all the same: blocked and refused jobs, and
those that only wait for completion. What is no longer wanted is then left soon."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from service.contract import Blocked, Job, Pending, Refused
from workers.removal import Attempt

RECHECK_EVERY: Final = 4
"""A blocked job rechecks once in this many rounds whether it is still wanted."""

RECHECK_INTERVAL: Final = timedelta(minutes=1)
"""How often a job that only waits for completion rechecks."""


class ConsentRechecks:
    """State of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Jobs that only wait, ordered by their last recheck.
        self._last: dict[str, float] = {}

    def is_due(self, job: Job, prepared: object) -> bool:
        """Whether the job should ask for consent now; `prepared` is what the reads of its batch led to."""
        record = job.record
        if record.verdict == "check":
            return isinstance(prepared, Attempt | Pending) and self._is_check_due(job.id)
        if not isinstance(prepared, Attempt | Blocked | Refused):
            return False
        return record.verdict == "refused" or (record.verdict == "blocked" and record.waits % RECHECK_EVERY == 0)

    def _is_check_due(self, job: str) -> bool:
        now, long = self._clock(), RECHECK_INTERVAL.total_seconds()
        # A job that still waits has rechecked meanwhile, however slow its lane: older entries are finished jobs.
        while self._last and now - (first := next(iter(self._last.items())))[1] > 15 * long and first[0] != job:
            del self._last[first[0]]
        if now - self._last.setdefault(job, now) < long:
            return False
        del self._last[job]
        self._last[job] = now
        return True
