"""Writer of settlements (the results of attempts), in batches: while one call is under way, the next batch gathers.

Delays are recomputed when a batch is sent, so that an unavailable server neither shortens nor lengthens a wait.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from service.engine.script_arguments import JobSettlement, LateTargets
from service.engine.script_replies import Appended
from service.engine.shard import Shard
from workers.runtime.batch_delay import BatchDelay

log = structlog.get_logger(__name__)
MOST = 1000


class SettlementWriter:
    def __init__(
        self, shard: Shard, worker: str, delay: BatchDelay, settled: Callable[[list[JobSettlement], list[int]], None]
    ) -> None:
        self._shard, self._worker, self._delay, self._settled = shard, worker, delay, settled
        self._waiting: list[tuple[float, JobSettlement]] = []
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, settlement: JobSettlement) -> None:
        if not self._waiting:
            # Later ones join the same batch.
            self._idle.clear()
            self._wanted.set()
        self._waiting.append((time.monotonic(), settlement))

    async def append(self, late: LateTargets) -> Appended:
        """Adds late targets, which settles the job that found them; other answers than `added` settle nothing."""
        answer = await self._shard.append_all(self._worker, late)
        if answer.opening:
            await self._open_stages()
        if answer.state == "added":
            self._settled([late.settlement], [late.settlement.fence])
        return answer

    async def drained(self) -> None:
        """Wait until all settlements are written."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                await self._delay.before_batch(len(self._waiting))
                part, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._write(part)
            self._idle.set()

    async def _write(self, part: list[tuple[float, JobSettlement]]) -> None:
        def items() -> list[JobSettlement]:
            now = time.monotonic()
            return [
                item if not item.delay else item._replace(delay=max(0, item.delay - int((now - since) * 1000)))
                for since, item in part
            ]

        answer = await self._shard.settle(self._worker, items)
        if answer.opening:
            await self._open_stages()
        settlements = [item for _, item in part]
        self._settled(settlements, answer.accepted)

    async def _open_stages(self) -> None:
        while (await self._shard.open_stages())[1]:
            pass
