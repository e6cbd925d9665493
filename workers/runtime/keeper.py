"""Renews the leases of what is in flight, and sends the heartbeats of this worker.

It goes on while the worker drains; when the server can't be reached, the flights stop by themselves in time.
"""

import asyncio
import time

import structlog

from service.engine.calls import ServerAway
from service.engine.engine import Shard
from service.settings import WorkerSettings
from workers.runtime.flight import Flights

log = structlog.get_logger(__name__)


class Keeper:
    def __init__(self, shard: Shard, settings: WorkerSettings, worker: str, flights: Flights) -> None:
        self._shard, self._settings, self._worker, self._flights = shard, settings, worker, flights

    async def run(self) -> None:
        pause = min(self._settings.lease, self._settings.silence).total_seconds() / 4
        while True:
            await self.renew()
            await asyncio.sleep(pause)

    async def renew(self) -> None:
        lease = self._settings.lease
        flights = self._flights.wanting_renewal(time.monotonic() + 0.7 * lease.total_seconds())
        batches = list({(flight.lane, flight.fence) for flight in flights})
        sent = time.monotonic()
        try:
            _, strangers = await self._shard.renew(
                self._worker, lease, batches, patience=lease / 2, silence=self._settings.silence
            )
        except ServerAway as error:
            log.warning("leases could not be renewed", reason=str(error))
            return
        if strangers:
            log.warning("leases lost", fences=strangers)
        for flight in flights:
            self._flights.renewed(flight, sent + 0.9 * lease.total_seconds(), set(strangers))
