"""Sweeps one source again and again, in one process of all: a Lease says which, and Redis when the next pass is due.
A pass that could not be made is made later; whoever takes over goes on from the last one that was."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import structlog

from service.contract.names import sweep_lease
from service.engine.orphans import Orphans
from service.kubernetes import Cluster, ClusterError, Counter, Lease
from service.settings import Settings
from workers.handlers.places import Place, Places
from workers.sweeps.passing import Swept

log = structlog.get_logger(__name__)
SOONER: Final = 0.2
"""After a pass that failed the next one comes after this part of the usual time."""

LOOK: Final = timedelta(seconds=5)
"""How soon a process looks again for a cluster that it could not reach."""


Counting = Callable[[Cluster, str, str], Counter]


class Sweeper:
    """`one_pass` makes a pass of the source; `counting` counts on the Lease of a cluster, by its uid."""

    def __init__(
        self,
        settings: Settings,
        places: Places,
        orphans: Orphans,
        source: str,
        holder: str,
        one_pass: Callable[[], Awaitable[Swept]],
        counting: Counting,
    ) -> None:
        self._counting = counting
        self._settings, self._places, self._orphans, self._pass = settings, places, orphans, one_pass
        self._source, self._holder = source, holder
        self._log = log.bind(source=source)

    async def run(self) -> None:
        """Goes on for ever."""
        while True:
            try:
                place = await self._place()
                watch, name = self._settings.watch, sweep_lease(self._source)
                counter = self._counting(place.cluster, await place.identity(), name)
                lease = Lease(place.cluster, watch.namespace, name, self._holder, watch.lease, counter=counter)
                async with lease:
                    await self._while_held(lease)
            except ClusterError as error:
                self._log.warning("no sweep, for its Lease can't be had", reason=str(error))
                await asyncio.sleep(self._settings.watch.retry.total_seconds())

    async def _place(self) -> Place:
        while (place := self._places.of(self._source)) is None:  # noqa: ASYNC110 - clusters come in without a bell
            await asyncio.sleep(LOOK.total_seconds())
        return place

    async def _while_held(self, lease: Lease) -> None:
        """Until it is lost: then a pass that is under way is given up, for another may have begun one."""
        sweeping = asyncio.ensure_future(self._sweep())
        losing = asyncio.ensure_future(lease.lost.wait())
        try:
            await asyncio.wait([sweeping, losing], return_when=asyncio.FIRST_COMPLETED)
            if sweeping.done():
                sweeping.result()
        finally:
            for task in (sweeping, losing):
                task.cancel()
            await asyncio.wait([sweeping, losing])

    async def _sweep(self) -> None:
        every = self._settings.azure.sweep.every / timedelta(milliseconds=1)
        while True:
            wait = await self._orphans.last() + every - await self._orphans.now()
            # A clock that went back makes the last pass one of the future.
            if 0 < wait <= every:
                await asyncio.sleep(wait / 1000)
                continue
            if not await self._one():
                await asyncio.sleep(every * SOONER / 1000)

    async def _one(self) -> bool:
        try:
            swept = await self._pass()
        except Exception as error:  # noqa: BLE001  # here a pass is accounted for, whatever it raised
            why = f"{type(error).__name__}: {error}"
            self._log.warning("sweep made no pass, nothing is known of anything", reason=why)
            await self._orphans.trouble(f"sweep: {why}")
            return False
        await self._orphans.trouble("sweep: " + "; ".join(swept.trouble) if swept.trouble else "")
        self._log.info(
            "swept", by=swept.way, listed=swept.listed, claims=swept.claims, orphans=swept.found, told=swept.told,
            unidentified=swept.unidentified, policy=swept.decision.kind,
        )  # fmt: skip
        return True
