"""Calls to AWS that are counted against what their batch was given to call with.
One for which nothing is left draws for itself."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.limits import limits_of
from workers.handlers.aws.model import Calls, Whose
from workers.handlers.aws.operations import operation_of
from workers.handlers.aws.paging import pages_by
from workers.handlers.tokens import Tokens


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
        draws = limits_of(self.whose.region, operation_of(service, operation).limited)
        if not self._tokens.spend(draws):
            return await (await self._beyond()).call(service, operation, **arguments)
        try:
            return await self._calls.call(service, operation, **arguments)
        except AwsError as error:
            if error.what == "throttled" and draws:
                told, *others = (draw.limit.name for draw in draws)
                self._tokens.refused(told, error.after, others=tuple(others))
            raise

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        return pages_by(self.call, service, operation, key, arguments)
