"""Waits until servers have agreed on something, within a deadline.
For set-up and tests only: the service itself never waits like this."""

import time
from collections.abc import Callable
from datetime import timedelta

import redis

from standins.servers.binaries import NoServerError

_STEP = 0.02


def wait_until(what: str, holds: Callable[[], bool], within: timedelta = timedelta(seconds=20)) -> None:
    """A server that cannot be reached, or refuses because it is not ready, counts as not yet."""
    deadline = time.monotonic() + within.total_seconds()
    while not _holds(holds):
        if time.monotonic() > deadline:
            raise NoServerError(f"waited {within.total_seconds():g} s in vain until {what}")
        time.sleep(_STEP)


def _holds(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):
        return False
