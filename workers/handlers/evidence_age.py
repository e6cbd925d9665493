"""Age limit of the reads that a destructive call is based on, the same for every provider.
If consent arrives too late, nothing is sent, and the next attempt reads everything again."""

import time
from datetime import timedelta
from typing import Final

FRESH: Final = timedelta(seconds=5)
"""How old the read of a resource may be when its delete is sent."""


def now() -> float:
    """Clock for the time of reads."""
    return time.monotonic()


class Outdated(Exception):
    """Consent arrived after the read had expired. Nothing was sent."""


def fresh_until(read: float) -> float:
    """When a read made at this time of the monotonic clock expires."""
    return read + FRESH.total_seconds()


def is_aging(expires: float) -> bool:
    """Whether a read is too old to ask for consent: half of its lifetime is reserved for that."""
    return now() > expires - FRESH.total_seconds() / 2


def require_fresh(expires: float) -> None:
    """Raises Outdated."""
    if now() > expires:
        raise Outdated("answers of its cluster that take so long that what was read of it before has grown old")
