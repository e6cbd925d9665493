"""Estimate of the Redis server's clock between two replies.

Leases and deadlines are measured on the local monotonic clock; only comparisons with stored times use this one.
"""

import time


class ServerClock:
    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def heard(self, now_ms: int) -> None:
        """A reply contained the server's time."""
        self._ahead = now_ms / 1000 - time.monotonic()

    def now_ms(self) -> int:
        return int((time.monotonic() + self._ahead) * 1000)

    def until(self, at_ms: int) -> float:
        """Seconds until a time on the server's clock, at least zero."""
        return max(0.0, at_ms / 1000 - (time.monotonic() + self._ahead))
