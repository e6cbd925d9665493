"""Wake-ups: a small stream on each shard tells sleepers that something is due earlier than they knew.

Everyone reads it with a place of his own, on a connection of his own: no wake-up can be swallowed by a dying
worker, and none is missed while a connection is away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from service.engine.connection import Client, is_away
from service.engine.keys import Keys

log = structlog.get_logger(__name__)
BLOCK_MS = 10_000


class WakeUps:
    """The wake-ups of one shard, as a number that grows."""

    def __init__(self, blocking: Client, keys: Keys, shard: int) -> None:
        self._client = blocking
        self._key = keys.of(shard, "wake")
        self._condition = asyncio.Event()
        self.count = 0
        self.on_loss: Callable[[], None] = lambda: None
        # Between two reads: one who is busy anyway need not hear of every single one.
        self.breathe: Callable[[], Awaitable[None]] = _at_once

    def poke(self) -> None:
        self.count += 1
        self._condition.set()

    async def wait(self, seen: int, timeout: float) -> None:
        """Return when a wake-up has come since `seen` was read, or after the time."""
        try:
            async with asyncio.timeout(timeout):
                while self.count == seen:
                    self._condition.clear()
                    await self._condition.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        last = await self._last_id()
        self.poke()
        while True:
            try:
                answer = await self._client.execute_command(
                    "XREAD", "COUNT", 100, "BLOCK", BLOCK_MS, "STREAMS", self._key, last
                )
            except Exception as error:
                if not is_away(error):
                    raise
                self.on_loss()
                await asyncio.sleep(0.2)
                # A server that lost writes may have lost a wake-up too, and may count from lower: have everyone look.
                last = await self._last_id()
                self.poke()
                continue
            if answer:
                last = _entries(answer)[-1][0]
                self.poke()
                await self.breathe()

    async def _last_id(self) -> bytes:
        while True:
            try:
                entries = await self._client.execute_command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            except Exception as error:
                if not is_away(error):
                    raise
                await asyncio.sleep(0.2)
            else:
                return bytes(entries[0][0]) if entries else b"0-0"


async def _at_once() -> None:
    pass


def _entries(answer: Any) -> Any:
    """The entries of the one stream that was read, in whichever protocol's shape."""
    return next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
