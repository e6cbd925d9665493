"""Due times aligned across processes, so that one call checks many resources. All processes count the periods from the
epoch; a clock that is off costs an extra call and nothing else."""

import time
from datetime import timedelta


def aligned_delay(period: timedelta, least: float, now: float | None = None) -> timedelta:
    """Delay until the next multiple of `period`; one that is less than the share `least` of a period away is
    skipped."""
    length = period.total_seconds()
    rest = length - (time.time() if now is None else now) % length
    return timedelta(seconds=rest if rest >= least * length else rest + length)
