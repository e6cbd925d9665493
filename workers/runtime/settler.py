"""Writes down what attempts found, in batches: while one settle is on its way, the next one gathers.

Due times are worked out at the moment of sending, so a server that was away shortens no wait and lengthens none.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from service.engine.engine import Shard
from service.engine.rows import Settlement
from workers.runtime.pace import Pace

log = structlog.get_logger(__name__)
MOST = 1000


class Settler:
    def __init__(
        self, shard: Shard, worker: str, pace: Pace, settled: Callable[[list[Settlement], list[int]], None]
    ) -> None:
        self._shard, self._worker, self._pace, self._settled = shard, worker, pace, settled
        self._waiting: list[tuple[float, Settlement]] = []
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, settlement: Settlement) -> None:
        if not self._waiting:
            # The others go along.
            self._idle.clear()
            self._wanted.set()
        self._waiting.append((time.monotonic(), settlement))

    async def drained(self) -> None:
        """Wait until everything put so far is written."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                await self._pace.more(len(self._waiting))
                part, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._write(part)
            self._idle.set()

    async def _write(self, part: list[tuple[float, Settlement]]) -> None:
        def items() -> list[Settlement]:
            now = time.monotonic()
            return [
                item if not item.delay else item._replace(delay=max(0, item.delay - int((now - since) * 1000)))
                for since, item in part
            ]

        answer = await self._shard.settle(self._worker, items)
        if answer.opening:
            while (await self._shard.open())[1]:
                pass
        settlements = [item for _, item in part]
        self._settled(settlements, answer.accepted)
