"""The server's time, as far as this process can tell between two answers.

Leases and deadlines are measured on the local monotonic clock; only what is compared with stored times uses this.
"""

import time


class ServerClock:
    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def heard(self, now_ms: int) -> None:
        """The server said what time it is."""
        self._ahead = now_ms / 1000 - time.monotonic()

    def now_ms(self) -> int:
        return int((time.monotonic() + self._ahead) * 1000)

    def until(self, at_ms: int) -> float:
        """Seconds until a moment of the server's clock, not below zero."""
        return max(0.0, at_ms / 1000 - (time.monotonic() + self._ahead))
