"""How the shares spread over the replicas: who holds more than its part hands some to those who have less.
Who is there is told in Redis and only a hint: at worst a share changes hands once for nothing, and is taken back."""

import asyncio
import math
import random
import time
from typing import Final

import structlog

from service.engine.installation import Installation
from service.engine.views.reading import server_ms

log = structlog.get_logger(__name__)

KEY: Final = "watchers"
PRESENT: Final = 8_000
"""Milliseconds for which a word of presence counts: shorter than any Lease lasts, so that a dead replica is gone from
the count before what it held is taken by others."""
_LOOK: Final = 2.0
_BETWEEN: Final = 3.0
_AFTER_NOTHING: Final = 600.0


class Presence:
    """The replicas that can watch, as they say themselves."""

    def __init__(self, installation: Installation, holder: str) -> None:
        self._installation, self._holder = installation, holder
        self._key = installation.keys.of(0, KEY)

    async def tell(self) -> None:
        """To be called often. What is long out of date goes."""
        now = await server_ms(self._installation.shards[0])
        await self._installation.caller.command("ZADD", self._key, now, self._holder)
        await self._installation.caller.command("ZREMRANGEBYSCORE", self._key, 0, now - 10 * PRESENT)

    async def leave(self) -> None:
        await self._installation.caller.command("ZREM", self._key, self._holder)

    async def count(self) -> int:
        now = await server_ms(self._installation.shards[0])
        return int(await self._installation.caller.command("ZCOUNT", self._key, now - PRESENT, "+inf"))


class Load:
    """The shares that this replica holds, out of so many that there are."""

    def __init__(self, presence: Presence, shares: int) -> None:
        self.held = 0
        self._presence, self._shares = presence, shares
        self._not_before = 0.0

    async def too_many(self) -> None:
        """Returns when a share should go to another replica: to one of those who ask, and to the next one later."""
        while True:
            await asyncio.sleep(_LOOK * random.uniform(0.8, 1.2))
            if self.held <= 1 or time.monotonic() < self._not_before:
                continue
            # Others who hold a share look at the same time; only the first of them is told.
            self._not_before = time.monotonic() + _BETWEEN
            if self.held > math.ceil(self._shares / max(1, await self._presence.count())):
                log.info("handing a share over to another replica", held=self.held, shares=self._shares)
                return

    def nobody_came(self) -> None:
        """What was handed over was still free: the others can't take it, so it is not tried again soon."""
        log.info("nobody took what was handed over")
        self._not_before = time.monotonic() + _AFTER_NOTHING
