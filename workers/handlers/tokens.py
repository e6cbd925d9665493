"""What one batch was given to call with, and what it called: the rest goes back to the shared budget.
A refusal for want of quota is told on the spot, by the limit that the refused call draws on."""

from collections.abc import Sequence
from datetime import timedelta

from service.contract import Draw, Job, Pause, Remaining
from workers.handlers.protocol import Batch


class Tokens:
    """`draws` is what was reserved for each of so many jobs."""

    def __init__(self, batch: Batch, draws: Sequence[Draw], jobs: int) -> None:
        self._batch, self._draws = batch, draws
        self._left = {draw.limit.name: draw.cost * jobs for draw in draws}

    def spend(self, draws: Sequence[Draw]) -> bool:
        """Whether what was reserved is enough for one more call; then that is taken for it."""
        if any(self._left.get(draw.limit.name, 0.0) < draw.cost for draw in draws):
            return False
        for draw in draws:
            self._left[draw.limit.name] -= draw.cost
        return True

    def refused(
        self, limit: str, after: timedelta | None, tokens: float | None = None, others: tuple[str, ...] = ()
    ) -> None:
        if limit in self._left:
            self._batch.tell(Pause(limit, after, tokens, others))

    def answered(self, limit: str, left: float | None, tokens: float | None = None) -> None:
        """A call came back, and perhaps told how much of its limit is left."""
        if limit in self._left:
            self._batch.tell(Remaining(limit, left, tokens))

    def handed_back(self) -> None:
        """One job was not cleared for any call: the runtime gives back what was reserved for it."""
        for draw in self._draws:
            self._left[draw.limit.name] -= draw.cost

    def give_back(self) -> None:
        """Less than nothing is left where the runtime gives back for a job whose reads were made all the same."""
        for name, left in self._left.items():
            if left:
                self._batch.unused(name, left)


class Cleared:
    """A batch that remembers whether the one job it is asked about was cleared before: then a call may have been made,
    and what was reserved for it is not given back by the runtime."""

    def __init__(self, batch: Batch) -> None:
        self.lane, self.jobs, self.tell, self.unused = batch.lane, batch.jobs, batch.tell, batch.unused
        self._batch, self.once = batch, False

    async def clear(self, *jobs: Job) -> None:
        await self._batch.clear(*jobs)
        self.once = True
