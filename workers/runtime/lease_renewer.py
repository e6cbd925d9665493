"""Lease renewal and heartbeat loop of a worker.

It keeps running while the worker drains. If Redis can't be reached, batches are cancelled before their leases end.
"""

import asyncio
import time

import structlog

from service.engine.calls import ServerUnavailable
from service.engine.shard import Shard
from service.settings import WorkerSettings
from workers.runtime.leased_batch import LeasedBatches

log = structlog.get_logger(__name__)


class LeaseRenewer:
    def __init__(self, shard: Shard, settings: WorkerSettings, worker: str, batches: LeasedBatches) -> None:
        self._shard, self._settings, self._worker, self._batches = shard, settings, worker, batches

    async def run(self) -> None:
        pause = min(self._settings.lease, self._settings.silence).total_seconds() / 4
        while True:
            await self.renew()
            await asyncio.sleep(pause)

    async def renew(self) -> None:
        lease = self._settings.lease
        batches = self._batches.wanting_renewal(time.monotonic() + 0.7 * lease.total_seconds())
        leases = list({(batch.lane, batch.fence) for batch in batches})
        sent = time.monotonic()
        try:
            _, strangers = await self._shard.renew(
                self._worker, lease, leases, patience=lease / 2, silence=self._settings.silence
            )
        except ServerUnavailable as error:
            log.warning("leases could not be renewed", reason=str(error))
            return
        if strangers:
            log.warning("leases lost", fences=strangers)
        for batch in batches:
            self._batches.renewed(batch, sent + 0.9 * lease.total_seconds(), set(strangers))
