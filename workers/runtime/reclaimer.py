"""Reclaim loop: returns jobs and events of dead workers as soon as their heartbeats or leases expire.

It sleeps until the next heartbeat or lease expires, but never longer than half a lease.
"""

import asyncio
from collections.abc import Callable

import structlog

from service.engine.shard import Shard
from service.settings import WorkerSettings
from workers.runtime.server_clock import ServerClock

log = structlog.get_logger(__name__)


class Reclaimer:
    """`offer` is called when there are events to claim."""

    def __init__(self, shard: Shard, settings: WorkerSettings, clock: ServerClock, offer: Callable[[], None]) -> None:
        self._shard, self._settings, self._clock, self._offer = shard, settings, clock, offer

    async def run(self) -> None:
        half = self._settings.lease.total_seconds() / 2
        # A worker sends a heartbeat every quarter of a lease. If it died soon after taking a batch, its last heartbeat
        # is younger than the batch: with a whole lease of silence it would count as alive when the batch's lease ends.
        silence = self._settings.lease / 2
        while True:
            answer = await self._shard.reclaim(deaths=self._settings.deaths, silence=silence, by_heartbeat=True)
            if answer.given_back:
                log.warning(
                    "workers died or leases ran out, jobs given back",
                    count=len(answer.given_back),
                    jobs=answer.given_back,
                )
            if answer.events:
                log.warning("planners died, events are claimed", count=answer.events)
                self._offer()
            for job in answer.set_aside:
                log.error("set aside: it kills its workers", job=job)
            if not answer.given_back:
                pause = self._clock.until(answer.next_end) if answer.next_end else half
                await asyncio.sleep(max(0.05, min(half, pause)))
