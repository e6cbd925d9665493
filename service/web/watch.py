"""A look at the server on connections of its own, so that a busy or hung process pool never hides the truth.
It is impatient: who asks for health or numbers wants an answer within a moment, whatever the server does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeVar

import msgspec
from redis.exceptions import RedisError

from service.engine.connection import Client, Connections, is_away
from service.engine.keys import Keys
from service.masking import mask_text
from service.settings import Settings
from service.web.together import together

PATIENCE: Final = timedelta(seconds=1)
# Probes that come close together share one look.
_FRESH: Final = 0.5

T = TypeVar("T")


class Away(NamedTuple):
    """Why the server can't be used, and since when."""

    why: str
    since: datetime


class Watch:
    """`moves_away` tells what the process's own calls suffer: a server that can't write shows only there."""

    def __init__(self, settings: Settings, moves_away: Callable[[], tuple[float, str] | None] | None = None) -> None:
        redis = settings.redis
        self.keys = Keys(redis.prefix, redis.shards)
        self._connections = Connections(
            msgspec.structs.replace(redis, call_timeout=PATIENCE, connect_timeout=PATIENCE, max_connections=8),
            name="knell-surface",
        )
        self._moves_away = moves_away or (lambda: None)
        self._since: datetime | None = None
        self._why = ""
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    @property
    def client(self) -> Client:
        return self._connections.client

    async def away(self) -> Away | None:
        """None when every shard's server answers and the process's own calls get through."""
        if time.monotonic() - self._looked > _FRESH:
            await self.look(self._touch_every_shard)
        suffered = self._moves_away()
        if suffered is None:
            return None if self._since is None else Away(self._why, self._since)
        since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - suffered[0])
        if self._since is None:
            return Away(mask_text(suffered[1]), since)
        return Away(self._why, min(self._since, since))

    async def look(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Run a read within the patience; None, and remembered as away, where it fails."""
        async with self._looking:
            try:
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    # A Cluster's client loses connections when it is first used by many calls at once.
                    await self.client.initialize()
                    found = await work()
            except Exception as error:
                if not isinstance(error, RedisError) and not is_away(error):
                    raise
                self._lost(error)
                return None
            else:
                self._since, self._why = None, ""
                return found
            finally:
                self._looked = time.monotonic()

    def _lost(self, error: Exception) -> None:
        if self._since is None:
            self._since = datetime.now(UTC)
        words = " ".join(str(error).split()) or f"no answer within {PATIENCE.total_seconds():g} s"
        self._why = mask_text(f"{type(error).__name__}: {words}")

    async def _touch_every_shard(self) -> None:
        keys = (self.keys.of(shard, "meta") for shard in range(self.keys.shards))
        await together(self.client.execute_command("EXISTS", key) for key in keys)

    async def aclose(self) -> None:
        await self._connections.aclose()
