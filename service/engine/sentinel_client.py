"""Sentinel discovery that is safe for concurrent connections. The discovery of redis-py reorders its list of sentinels
while other coroutines iterate over it, which loses sentinels."""

from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.exceptions import ConnectionError as UnreachableError
from redis.exceptions import TimeoutError as SilentError

from service.settings import HostPort


class MasterFinder(Sentinel):
    """Queries the sentinels in turn, beginning with the last one that answered."""

    def __init__(self, entries: tuple[HostPort, ...], options: dict[str, Any]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        # Created here because the parent has no parameter for the connection class.
        self.sentinels = [
            Redis.from_pool(BlockingConnectionPool(host=entry.host, port=entry.port, **options)) for entry in entries
        ]
        self._knew: Redis | None = None

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        reasons = []
        for sentinel in sorted(self.sentinels, key=lambda known: known is not self._knew):
            try:
                masters = await sentinel.sentinel_masters()
            except (UnreachableError, SilentError) as error:
                reasons.append(str(error))
                continue
            # With protocol 2 the library returns a dict by name; the list in its type hints is for protocol 3.
            state = masters.get(service_name) if isinstance(masters, dict) else None
            if state and self.check_master_state(state, service_name):
                self._knew = sentinel
                return state["ip"], state["port"]
            reasons.append("one knows the name, but its master is down" if state else "one does not know the name")
        raise MasterNotFoundError(f"no sentinel names a master {service_name}: {'; '.join(reasons)}")


class SentinelClientPool(SentinelConnectionPool, BlockingConnectionPool):
    """Pool that discovers the master for each new connection and waits for a free one when it is exhausted."""
