"""Gives back jobs and events that dead workers held, as soon as their heartbeats or their leases end.

It sleeps until the next heartbeat or lease would end, or half a lease, whichever comes first.
"""

import asyncio
from collections.abc import Callable

import structlog

from service.engine.engine import Shard
from service.settings import WorkerSettings
from workers.runtime.clock import ServerClock

log = structlog.get_logger(__name__)


class Reclaimer:
    """`offer` is called when there are events to be claimed."""

    def __init__(self, shard: Shard, settings: WorkerSettings, clock: ServerClock, offer: Callable[[], None]) -> None:
        self._shard, self._settings, self._clock, self._offer = shard, settings, clock, offer

    async def run(self) -> None:
        half = self._settings.lease.total_seconds() / 2
        # A worker shows itself every quarter of a lease. One that died soon after taking a batch was last heard a
        # little after that: with a whole lease of patience it would count as alive when the batch's lease ends.
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
