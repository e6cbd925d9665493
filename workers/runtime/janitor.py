"""Janitor loop of one shard: repairs inconsistent records and removes expired ones.

Inconsistencies come from crashes, manual changes and lost writes. One janitor works at a time, in small steps, so that
no call takes long.
"""

import asyncio

import structlog

from service.engine.calls import RedisCaller
from service.engine.shard import Shard
from service.settings import Settings

log = structlog.get_logger(__name__)
TURN_MS = 5_000
EXPIRIES = 20
EXPIRED_AT_ONCE = 200


class Janitor:
    def __init__(self, shard: Shard, settings: Settings, worker: str) -> None:
        self._shard, self._settings, self._worker = shard, settings, worker
        self._caller: RedisCaller = shard.caller
        self._jobs, self._open = "0", "0"

    async def run(self) -> None:
        while True:
            if await self._my_turn():
                await self.step()
            await asyncio.sleep(1.0)

    async def _my_turn(self) -> bool:
        key = self._shard.stem + "janitor"
        if await self._caller.command("SET", key, self._worker, "NX", "PX", TURN_MS):
            return True
        if await self._caller.command("GET", key) == self._worker.encode():
            await self._caller.command("PEXPIRE", key, TURN_MS)
            return True
        return False

    async def step(self) -> None:
        """One small step of every duty."""
        shard = self._shard
        while (await shard.withdraw())[1]:
            pass
        while (await shard.open_stages())[1]:
            pass
        self._jobs, back, known = await shard.requeue(self._jobs)
        self._open, added, reopened = await shard.repair(self._open)
        if back or known or added or reopened:
            log.warning("repaired", requeued=back, known_again=known, published_again=added, reopened=reopened)
        # One call per step would never catch up after a busy day.
        for _ in range(EXPIRIES):
            if not await self._expire():
                break
        await shard.refresh_stats()

    async def _expire(self) -> bool:
        """Whether there is more to remove."""
        shard, keep = self._shard, self._settings.retention
        removed, lanes = await shard.expire(
            finished=keep.finished, audit=keep.audit, audit_entries=keep.audit_entries, lanes=keep.lanes
        )
        if removed:
            log.info("retention", deletions=removed, lanes=lanes)
        return removed >= EXPIRED_AT_ONCE

    async def whole_round(self) -> None:
        """Scan everything once; for tests and `doctor`."""
        self._jobs, self._open = "0", "0"
        jobs = deletions = False
        while not (jobs and deletions):
            await self.step()
            # The two scans end at different times and begin again at once.
            jobs, deletions = jobs or self._jobs == "0", deletions or self._open == "0"
