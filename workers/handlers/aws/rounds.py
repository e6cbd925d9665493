"""Due times that fall together, so that many resources are looked at in one call.
Rounds are counted from the same moment by every process; clocks that differ cost a call more and nothing else."""

import time
from datetime import timedelta


def until_round(period: timedelta, least: float, now: float | None = None) -> timedelta:
    """How long until a round of that period begins; one that begins before that share of it is over is left out."""
    length = period.total_seconds()
    rest = length - (time.time() if now is None else now) % length
    return timedelta(seconds=rest if rest >= least * length else rest + length)
