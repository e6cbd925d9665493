"""Token account of one batch: what was reserved, what its calls spent, and what is returned to the shared budget.
Throttled calls are reported at once, with the limit that they drew on."""

from collections.abc import Sequence
from datetime import timedelta

from service.contract import Draw, Job, Pause, Remaining
from workers.handlers.protocol import Batch


class BatchTokens:
    """`draws` is what was reserved for each of `jobs` jobs."""

    def __init__(self, batch: Batch, draws: Sequence[Draw], jobs: int) -> None:
        self._batch, self._draws = batch, draws
        self._left = {draw.limit.name: draw.cost * jobs for draw in draws}

    def spend(self, draws: Sequence[Draw]) -> bool:
        """Takes the tokens of one call; False if not enough are left."""
        if any(self._left.get(draw.limit.name, 0.0) < draw.cost for draw in draws):
            return False
        for draw in draws:
            self._left[draw.limit.name] -= draw.cost
        return True

    def refused(
        self, limit: str, after: timedelta | None, tokens: float | None = None, others: tuple[str, ...] = ()
    ) -> None:
        if limit in self._left:
            self._batch.report_quota(Pause(limit, after, tokens, others))

    def answered(self, limit: str, left: float | None, tokens: float | None = None) -> None:
        """A call succeeded; `left` is what its response said remains of the limit."""
        if limit in self._left:
            self._batch.report_quota(Remaining(limit, left, tokens))

    def handed_back(self) -> None:
        """One job was not cleared for any call: the runtime returns the tokens reserved for it."""
        for draw in self._draws:
            self._left[draw.limit.name] -= draw.cost

    def give_back(self) -> None:
        """Returns the rest. It is negative if the runtime returns the tokens of a job that has already made reads."""
        for name, left in self._left.items():
            if left:
                self._batch.unused(name, left)


class ClearanceTracker:
    """Batch wrapper for one job that records whether it was cleared: then a call may have been made, and the runtime
    does not return its tokens."""

    def __init__(self, batch: Batch) -> None:
        self.lane, self.jobs, self.report_quota, self.unused = batch.lane, batch.jobs, batch.report_quota, batch.unused
        self._batch, self.once = batch, False

    async def clear(self, *jobs: Job) -> None:
        await self._batch.clear(*jobs)
        self.once = True
