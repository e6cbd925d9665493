"""Client whose calls spend the tokens reserved for a batch. A call beyond what was reserved draws on the shared budget
itself."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from workers.handlers.aws.client.operations import operation_names
from workers.handlers.aws.client.paging import paginate
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.limits import limits_of
from workers.handlers.aws.model import AwsClient, CallScope
from workers.handlers.batch_tokens import BatchTokens


class MeteredClient:
    """`beyond` returns a paced client for calls that were not reserved."""

    def __init__(self, client: AwsClient, tokens: BatchTokens, beyond: Callable[[], Awaitable[AwsClient]]) -> None:
        self._client, self._tokens, self._beyond = client, tokens, beyond

    @property
    def scope(self) -> CallScope:
        return self._client.scope

    @property
    def account(self) -> str:
        return self._client.account

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        draws = limits_of(self.scope.region, operation_names(service, operation).limited)
        if not self._tokens.spend(draws):
            return await (await self._beyond()).call(service, operation, **arguments)
        try:
            return await self._client.call(service, operation, **arguments)
        except AwsError as error:
            if error.what == "throttled" and draws:
                told, *others = (draw.limit.name for draw in draws)
                self._tokens.refused(told, error.after, others=tuple(others))
            raise

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        return paginate(self.call, service, operation, key, arguments)
