"""What one batch was given to call with, and what it called: the rest goes back to the shared budget.
A call for which nothing is left draws for itself. A refusal for want of quota is told on the spot, by the limit that
the refused call draws on."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from service.contract import Draw, Job, Pause
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.limits import limits_of
from workers.handlers.aws.model import Calls, Whose
from workers.handlers.aws.operations import operation_of
from workers.handlers.aws.paging import pages_by
from workers.handlers.protocol import Batch


class Tokens:
    """`draws` is what was reserved for each of so many jobs."""

    def __init__(self, batch: Batch, draws: Sequence[Draw], jobs: int) -> None:
        self._batch, self._draws = batch, draws
        self._left = {draw.limit.name: draw.cost * jobs for draw in draws}

    def spend(self, region: str, operation: str) -> bool:
        """Whether what was reserved is enough for one more call; then that is taken for it."""
        draws = limits_of(region, operation)
        if any(self._left.get(draw.limit.name, 0.0) < draw.cost for draw in draws):
            return False
        for draw in draws:
            self._left[draw.limit.name] -= draw.cost
        return True

    def refused(self, region: str, operation: str, error: AwsError) -> None:
        for draw in limits_of(region, operation)[:1]:
            if draw.limit.name in self._left:
                self._batch.tell(Pause(draw.limit.name, error.after))

    def handed_back(self) -> None:
        """One job was not cleared for any call: the runtime gives back what was reserved for it."""
        for draw in self._draws:
            self._left[draw.limit.name] -= draw.cost

    def give_back(self) -> None:
        """Less than nothing is left where the runtime gives back for a job whose reads were made all the same."""
        for name, left in self._left.items():
            if left:
                self._batch.unused(name, left)


class Counted:
    """Calls, each of them counted. `beyond` are paced ones, for what was not reserved."""

    def __init__(self, calls: Calls, tokens: Tokens, beyond: Callable[[], Awaitable[Calls]]) -> None:
        self._calls, self._tokens, self._beyond = calls, tokens, beyond

    @property
    def whose(self) -> Whose:
        return self._calls.whose

    @property
    def account(self) -> str:
        return self._calls.account

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        limited = operation_of(service, operation).limited
        if not self._tokens.spend(self.whose.region, limited):
            return await (await self._beyond()).call(service, operation, **arguments)
        try:
            return await self._calls.call(service, operation, **arguments)
        except AwsError as error:
            if error.what == "throttled":
                self._tokens.refused(self.whose.region, limited, error)
            raise

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        return pages_by(self.call, service, operation, key, arguments)


class Cleared:
    """A batch that remembers whether the one job it is asked about was cleared before: then a call may have been made,
    and what was reserved for it is not given back by the runtime."""

    def __init__(self, batch: Batch) -> None:
        self.lane, self.jobs, self.tell, self.unused = batch.lane, batch.jobs, batch.tell, batch.unused
        self._batch, self.once = batch, False

    async def clear(self, *jobs: Job) -> None:
        await self._batch.clear(*jobs)
        self.once = True
