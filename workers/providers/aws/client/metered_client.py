"""Client whose calls spend the tokens reserved for a batch. A call beyond what was reserved draws on the shared budget
itself; a change does not wait for tokens, because consent and the reads that it is based on would grow old."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

from workers.handlers.lane_meter import LaneMeter
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.client.paging import paginate
from workers.providers.aws.errors import AwsError
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import AwsClient, CallScope, ReservedClient
from workers.providers.aws.services import is_read


class MeteredClient:
    """`beyond` returns a paced client for reads that were not reserved."""

    def __init__(
        self, client: ReservedClient, meter: LaneMeter, beyond: Callable[[], Awaitable[AwsClient]], limits: AwsLimits
    ) -> None:
        self._client, self._meter, self._beyond, self._limits = client, meter, beyond, limits

    @property
    def scope(self) -> CallScope:
        return self._client.scope

    @property
    def account(self) -> str:
        return self._client.account

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        names = operation_names(service, operation)
        draws = self._limits.of(self.scope.region, names.limited)
        if not self._meter.spend(draws):
            other = await self._beyond() if is_read(names.limited) else self._client.unreserved()
            return await other.call(service, operation, **arguments)
        try:
            return await self._client.call(service, operation, **arguments)
        except AwsError as error:
            if error.what == "throttled" and draws:
                told, *others = (draw.limit.name for draw in draws)
                self._meter.refused(told, error.after, others=tuple(others))
            raise

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        return paginate(self.call, service, operation, key, arguments)

    async def renew(self, lasting: timedelta) -> None:
        await self._client.renew(lasting)
