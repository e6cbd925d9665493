"""Wake-ups: a small stream on each shard that tells waiting workers that work is due earlier than they know.

Every process reads the stream from its own position and on its own connection, so that a dying worker takes no wake-up
from others and none is missed while the connection is down.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from service.engine.clients import RedisClient, is_unavailable
from service.engine.keys import Keys

log = structlog.get_logger(__name__)
BLOCK_MS = 10_000


class WakeUps:
    """The wake-ups of one shard, as a growing count."""

    def __init__(self, blocking: RedisClient, keys: Keys, shard: int) -> None:
        self._client = blocking
        self._key = keys.of(shard, "wake")
        self._condition = asyncio.Event()
        self.count = 0
        self.on_loss: Callable[[], None] = lambda: None
        # Awaited between two reads: a busy worker need not read every single wake-up.
        self.between_reads: Callable[[], Awaitable[None]] = _at_once

    def notify(self) -> None:
        self.count += 1
        self._condition.set()

    async def wait(self, seen: int, timeout: float) -> None:
        """Returns when `count` differs from `seen`, or after the timeout."""
        try:
            async with asyncio.timeout(timeout):
                while self.count == seen:
                    self._condition.clear()
                    await self._condition.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        last = await self._last_id()
        self.notify()
        while True:
            try:
                answer = await self._client.execute_command(
                    "XREAD", "COUNT", 100, "BLOCK", BLOCK_MS, "STREAMS", self._key, last
                )
            except Exception as error:
                if not is_unavailable(error):
                    raise
                self.on_loss()
                await asyncio.sleep(0.2)
                # A server that lost writes may have lost a wake-up and may assign lower ids: treat it as a wake-up.
                last = await self._last_id()
                self.notify()
                continue
            if answer:
                last = _entries(answer)[-1][0]
                self.notify()
                await self.between_reads()

    async def _last_id(self) -> bytes:
        while True:
            try:
                entries = await self._client.execute_command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            except Exception as error:
                if not is_unavailable(error):
                    raise
                await asyncio.sleep(0.2)
            else:
                return bytes(entries[0][0]) if entries else b"0-0"


async def _at_once() -> None:
    pass


def _entries(answer: Any) -> Any:
    """The entries of the one stream that was read, in the shape of either protocol version."""
    return next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
