"""Log of the tokens of one limit while a machine spends them: grants with their times, and returns.

Time never goes back here: it is the latest that the limit has seen, with a lower and an upper bound for each call."""

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

from service.contract import Limit
from tests.properties.laws import BrokenLaw

BUCKET = "no bucket is overdrawn"
WINDOW = "no window is overdrawn"
PAUSE = "nothing is granted before a pause ends"
EMPTY = "after a pause a limit starts empty"

EPSILON = 1e-6


@dataclass(slots=True)
class Spent:
    """Tokens granted in one call. What is handed back unused was never spent, whether it is credited or not."""

    earliest: float
    latest: float
    tokens: float
    window: float


@dataclass(slots=True)
class SpendingLog:
    limit: Limit
    entries: list[Spent] = field(default_factory=list)
    earliest: float = 0.0
    latest: float = 0.0
    pause: float = 0.0
    pauses: list[float] = field(default_factory=list)
    after_pause: list[Spent] = field(default_factory=list)

    @property
    def per(self) -> float:
        return self.limit.per / timedelta(milliseconds=1)

    @property
    def rate(self) -> float:
        """Tokens in a millisecond."""
        return self.limit.capacity / self.per

    def see(self, earliest: float, latest: float) -> None:
        """The limit was looked at by a call that ran between these two times."""
        self.earliest, self.latest = max(self.earliest, earliest), max(self.latest, latest)

    def spend(self, tokens: float, window: float) -> Spent:
        entry = Spent(self.earliest, self.latest, tokens, window)
        self.entries.append(entry)
        self.after_pause.append(entry)
        if tokens > 0 and self.latest <= self.pause:
            raise BrokenLaw(PAUSE, f"{entry}; {self}")
        return entry

    def paused(self, until: float) -> None:
        """`until` is the earliest end that the pause can have."""
        self.pause, self.after_pause = max(self.pause, until), []
        self.pauses.append(self.pause)

    def corrected(self) -> None:
        """The provider said what is left, perhaps more than we thought: its word begins a new book."""
        self.entries, self.after_pause, self.pause = [], [], 0.0

    def check(self) -> None:
        """Returns only make sums smaller, so it is enough to look at those that end with the latest entry."""
        if self.entries and self.limit.kind == "bucket":
            self._check_intervals()
        elif self.entries:
            self._check_windows()
        self._check_pause()

    def _check_intervals(self) -> None:
        """Over any interval at most the capacity and what flowed in meanwhile."""
        total, end = 0.0, self.entries[-1]
        for begin in reversed(self.entries):
            total += begin.tokens
            most = self.limit.capacity - self.limit.spare + self.rate * (end.latest - begin.earliest)
            if total > most + EPSILON:
                raise BrokenLaw(BUCKET, f"{total} tokens where {most:.3f} were allowed; {self}")

    def _check_windows(self) -> None:
        windows: dict[float, float] = {}
        for entry in self.entries:
            windows[entry.window] = windows.get(entry.window, 0.0) + entry.tokens
        starts = sorted(window for window, tokens in windows.items() if tokens > 0)
        for window in starts:
            if windows[window] > self.limit.capacity - self.limit.spare + EPSILON:
                raise BrokenLaw(WINDOW, f"{windows[window]} tokens in the one from {window}; {self}")
        for one, other in pairwise(starts):
            # A pause ends a window early; the next one then begins at its end, with nothing in it.
            if other - one < self.per and not any(one < end <= other + 1 for end in self.pauses):
                raise BrokenLaw(WINDOW, f"windows begin at {one} and {other}; {self}")

    def _check_pause(self) -> None:
        """After a pause a limit starts empty."""
        if not self.pause or (self.limit.kind == "window" and self.latest > self.pause + self.per):
            return
        total = sum(entry.tokens for entry in self.after_pause)
        most = max(0.0, self.rate * (self.latest - self.pause))
        if total > most + EPSILON:
            raise BrokenLaw(EMPTY, f"{total} tokens where {most:.3f} can have come; {self}")
