"""Redis reads for health and metrics, on connections of their own with a timeout of one second.
Separate connections keep the answers right while the connection pool of the process is busy or hangs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from redis.exceptions import RedisError

from service.engine.clients import RedisClient, RedisClients, is_unavailable
from service.engine.keys import Keys
from service.masking import mask_text
from service.settings import Settings

TIMEOUT: Final = timedelta(seconds=1)
# Seconds in which further health checks reuse the last result.
_REUSE: Final = 0.5

T = TypeVar("T")


class RedisOutage(NamedTuple):
    why: str
    since: datetime


class RedisProbe:
    """`own_outage` returns since when (monotonic seconds) and why the process's own calls fail: a server that refuses
    writes still answers the reads made here."""

    def __init__(self, settings: Settings, own_outage: Callable[[], tuple[float, str] | None] | None = None) -> None:
        redis = settings.redis
        self.keys = Keys(redis.prefix, redis.shards)
        self._connections = RedisClients(
            msgspec.structs.replace(redis, call_timeout=TIMEOUT, connect_timeout=TIMEOUT, max_connections=8),
            name="knell-surface",
        )
        self._own_outage = own_outage or (lambda: None)
        self._since: datetime | None = None
        self._why = ""
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    @property
    def client(self) -> RedisClient:
        return self._connections.client

    async def outage(self) -> RedisOutage | None:
        """None when every shard's server answers and the process's own calls get through."""
        if time.monotonic() - self._read_at > _REUSE:
            await self.read(self._touch_every_shard)
        own = self._own_outage()
        if own is None:
            return None if self._since is None else RedisOutage(self._why, self._since)
        since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - own[0])
        if self._since is None:
            return RedisOutage(mask_text(own[1]), since)
        return RedisOutage(self._why, min(self._since, since))

    async def read(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Runs a read within the timeout. A failure is recorded as an outage and returns None."""
        async with self._reading:
            try:
                async with asyncio.timeout(TIMEOUT.total_seconds()):
                    # The Redis Cluster client loses connections if its first use is many concurrent calls.
                    await self.client.initialize()
                    found = await work()
            except Exception as error:
                if not isinstance(error, RedisError) and not is_unavailable(error):
                    raise
                self._record(error)
                return None
            else:
                self._since, self._why = None, ""
                return found
            finally:
                self._read_at = time.monotonic()

    def _record(self, error: Exception) -> None:
        if self._since is None:
            self._since = datetime.now(UTC)
        words = " ".join(str(error).split()) or f"no answer within {TIMEOUT.total_seconds():g} s"
        self._why = mask_text(f"{type(error).__name__}: {words}")

    async def _touch_every_shard(self) -> None:
        keys = (self.keys.of(shard, "meta") for shard in range(self.keys.shards))
        await gather_or_cancel(self.client.execute_command("EXISTS", key) for key in keys)

    async def aclose(self) -> None:
        await self._connections.aclose()


async def gather_or_cancel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs reads concurrently. When one fails, the others are cancelled and awaited before the error is raised, so that
    none keeps using a connection."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
