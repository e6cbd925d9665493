"""Meter of one batch: counts the calls made for its jobs against the tokens that their lane reserved for them.
What is left when the batch ends goes back to the shared budget, however it ended."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from service.contract import Draw, Feedback, Pause, Remaining


class LaneMeter:
    """`draws` is what was reserved for each of `jobs` jobs; `report` passes on what responses say about limits."""

    def __init__(self, draws: Sequence[Draw], jobs: int, report: Callable[[Feedback], None]) -> None:
        self._left = {draw.limit.name: draw.cost * jobs for draw in draws}
        self._report = report
        self._closed = False
        self.throttled = False
        """Whether the provider refused a call that was counted here."""

    def spend(self, draws: Sequence[Draw]) -> bool:
        """Takes the tokens of one call; False if not enough are left, and once the batch has ended."""
        if self._closed or any(self._left.get(draw.limit.name, 0.0) < draw.cost for draw in draws):
            return False
        for draw in draws:
            self._left[draw.limit.name] -= draw.cost
        return True

    def refused(
        self, limit: str, after: timedelta | None, tokens: float | None = None, others: tuple[str, ...] = ()
    ) -> None:
        """The provider throttled a call, which also drew on the limits `others`."""
        self.throttled = True
        if limit in self._left:
            self._report(Pause(limit, after, tokens, others))

    def answered(self, limit: str, left: float | None, tokens: float | None = None) -> None:
        """A call succeeded; `left` is what its response said remains of the limit."""
        if limit in self._left:
            self._report(Remaining(limit, left, tokens))

    def close(self) -> dict[str, float]:
        """Ends the reservation, also for reads that go on in the background, and returns what is left of it."""
        self._closed = True
        return {name: tokens for name, tokens in self._left.items() if tokens}
