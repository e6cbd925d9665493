"""The time of a stand-in, which tests can stop, move and speed up, and what is to happen at a time of it.
Nothing happens by itself: what is due is done before the next request is looked at."""

import heapq
import itertools
import time
from collections.abc import Callable

import msgspec


class Setting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the clock: seconds to move it on by, and how many of its seconds pass in one of ours."""

    advance: float = 0.0
    rate: float | None = None


class Clock:
    """Seconds since the stand-in began."""

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

    def set(self, setting: Setting) -> None:
        now = self.now()
        self._at, self._since = now + setting.advance, time.monotonic()
        if setting.rate is not None:
            self._rate = setting.rate
        self.catch_up()

    def real(self, at: float) -> float:
        """The wall clock's time at a time of this one, as long as the rate was what it is now."""
        return time.time() + (at - self.now()) / self._rate if self._rate else time.time()

    def ours(self, seconds: float) -> float:
        """How long that many of its seconds last for who waits for them; a clock that stands says them as they are."""
        return seconds / self._rate if self._rate else seconds

    def after(self, seconds: float, deed: Callable[[float], None]) -> None:
        """Done at once when there is nothing to wait for; the deed is told the time at which it was due."""
        now = self.now()
        if seconds <= 0:
            deed(now)
        else:
            heapq.heappush(self._due, (now + seconds, next(self._numbers), deed))

    def catch_up(self) -> None:
        while self._due and self._due[0][0] <= self.now():
            at, _, deed = heapq.heappop(self._due)
            deed(at)
