"""Clock of a stand-in, which tests can stop, advance and speed up, with timers.
Timers run only when the clock is asked to catch up, which is before each request."""

import heapq
import itertools
import time
from collections.abc import Callable

import msgspec


class ClockSetting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the clock: seconds to advance it by, and its rate (1 is real time)."""

    advance: float = 0.0
    rate: float | None = None


class Clock:
    """Seconds since the start of the stand-in."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = rate
        self._at, self._since = 0.0, time.monotonic()
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        return self._at + (time.monotonic() - self._since) * self._rate

    @property
    def rate(self) -> float:
        return self._rate

    def set(self, setting: ClockSetting) -> None:
        now = self.now()
        self._at, self._since = now + setting.advance, time.monotonic()
        if setting.rate is not None:
            self._rate = setting.rate
        self.catch_up()

    def real(self, at: float) -> float:
        """Wall-clock time of a time of this clock, at the present rate."""
        return time.time() + (at - self.now()) / self._rate if self._rate else time.time()

    def ours(self, seconds: float) -> float:
        """A duration of this clock in real seconds; unchanged if the clock is stopped."""
        return seconds / self._rate if self._rate else seconds

    def after(self, seconds: float, action: Callable[[float], None]) -> None:
        """Calls the action after a delay, at once if it is 0, with the time at which it was due."""
        now = self.now()
        if seconds <= 0:
            action(now)
        else:
            heapq.heappush(self._due, (now + seconds, next(self._numbers), action))

    def catch_up(self) -> None:
        while self._due and self._due[0][0] <= self.now():
            at, _, action = heapq.heappop(self._due)
            action(at)
