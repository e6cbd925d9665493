"""Makes sure that one process at a time has a task: a Lease in coordination.k8s.io, taken, renewed and handed back.
Expiry is judged by how long we ourselves have seen the record unchanged, so that no two clocks are ever compared."""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Final, Protocol, Self

import structlog

from service.kubernetes.client import Cluster
from service.kubernetes.errors import ClusterError, Conflict, NotFound, TooMany, Unavailable, Unreadable
from service.kubernetes.lease_records import Annotations, LeaseRecord, LeaseRecords, read
from service.kubernetes.objects import Live

log = structlog.get_logger(__name__)

# Of the record's time: between renewals, between attempts after a failed one, for one call, between looks of those
# who wait, until a holder that could not renew stops, and for the counter before and after a write.
_RENEW: Final = 1 / 4
_RETRY: Final = 1 / 12
_PATIENCE: Final = 1 / 4
_LOOK: Final = 1 / 8
_STOP: Final = 2 / 3
_COUNTED: Final = 1 / 16
_HAND_BACK_TRIES: Final = 3


def steady_clock() -> float:
    """Seconds that also pass while the machine sleeps, where the system can tell: a holder that slept is none."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Counter(Protocol):
    """Something that is counted on the Lease with every write of it, and kept elsewhere, too."""

    async def following(self, found: Live | None) -> Annotations:
        """What is written along with the next record; `found` is the Lease as it was read, None for a new one."""

    async def written(self, live: Live) -> None:
        """The server has confirmed it."""


class Lease:
    """`async with lease:` waits until it is ours, keeps it renewed, and hands it back at the end.

    A holder that dies is replaced within `duration`: the record itself lasts two thirds of it, which leaves those who
    wait the time to notice. Whoever could not renew stops well before anybody else may take it: `held` turns false by
    the clock alone, and `lost` is set soon after. The text of `holder` must be one process's own.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        holder: str,
        duration: timedelta = timedelta(seconds=15),
        *,
        counter: Counter | None = None,
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        self.name, self.holder = name, holder
        self._counter = counter
        self.lost = asyncio.Event()
        self._clock = clock
        # Whole seconds, for that is what the record can say and what others go by.
        self._lasts = max(1, int(duration.total_seconds() * 2 / 3))
        self._records = LeaseRecords(cluster, namespace, name, timedelta(seconds=self._lasts * _PATIENCE))
        self._log = log.bind(cluster=cluster.name, lease=f"{namespace}/{name}", holder=holder)
        self._ours: Live | None = None
        self._renewed = 0.0
        self._seen_version = ""
        self._seen_since = 0.0
        self._runs_out = 0.0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether we may act at this very moment."""
        return self._ours is not None and self._clock() < self._deadline

    @property
    def _deadline(self) -> float:
        return self._renewed + self._lasts * _STOP

    async def __aenter__(self) -> Self:
        await self.acquire()
        self._keeper = asyncio.create_task(self.keep(), name=f"lease {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        keeper, self._keeper = self._keeper, None
        try:
            if keeper is not None:
                keeper.cancel()
                await asyncio.wait([keeper])
                if not keeper.cancelled():
                    keeper.result()
        finally:
            await self.release()

    async def acquire(self) -> None:
        """Waits until it is ours. Raises only what waiting does not mend: Forbidden, a Namespace that is not there."""
        quiet = False
        while True:
            try:
                if await self.try_acquire():
                    return
            except (Unavailable, TooMany, Unreadable) as error:
                if not quiet:
                    self._log.warning("lease can't be read", error=str(error))
                quiet = True
            await asyncio.sleep(self._pause())

    async def try_acquire(self) -> bool:
        """One look, and the attempt to take it if it is free."""
        found = await self._records.look()
        if found is not None and not self._free(found, read(found)):
            return False
        annotations = await self._following(found)
        # From before the request: the record is at least as young as that.
        asked_at = self._clock()
        try:
            if found is None:
                self._ours = await self._records.create(self.holder, self._lasts, annotations)
            else:
                self._ours = await self._records.take(found, self.holder, self._lasts, annotations)
            await self._written(self._ours)
        except Conflict:
            # Somebody else was quicker.
            return False
        except asyncio.CancelledError:
            # The server may have given it to us all the same.
            self._ours = None
            await self._hand_back_whatever(None)
            raise
        self._renewed = asked_at
        self.lost.clear()
        self._log.info("lease taken")
        return True

    async def keep(self) -> None:
        """Renews until it is lost, and then returns."""
        try:
            pause = self._lasts * _RENEW
            while self._ours is not None:
                await asyncio.sleep(max(0.0, min(pause, self._deadline - self._clock())))
                if self._clock() >= self._deadline:
                    self._lose("it could not be renewed in time")
                    return
                pause = self._lasts * (_RENEW if await self._renew(self._ours) else _RETRY)
        except Exception:
            self._lose("the renewal failed in a way that nobody foresaw")
            raise

    async def release(self) -> None:
        """Hands it back, so that another may take it at once. Quiet where it is not ours any more."""
        ours, self._ours = self._ours, None
        if ours is None:
            return
        await self._hand_back_whatever(ours)

    async def _hand_back_whatever(self, ours: Live | None) -> None:
        """To its end, for a process that stops is often being cancelled, and the others should not wait for that."""
        handing_back = asyncio.ensure_future(self._hand_back(ours))
        try:
            await asyncio.shield(handing_back)
        except asyncio.CancelledError:
            await handing_back
            raise

    async def _hand_back(self, ours: Live | None) -> None:
        try:
            for _ in range(_HAND_BACK_TRIES):
                ours = ours or await self._records.look()
                if ours is None or read(ours).holder != self.holder:
                    return
                try:
                    handed_back = await self._records.hand_back(ours, await self._following(ours))
                except Conflict:
                    # A renewal that was cut off has changed it, or another took it.
                    ours = None
                else:
                    self._log.info("lease handed back")
                    await self._written(handed_back)
                    return
        except ClusterError as error:
            self._log.info("lease not handed back", error=str(error))

    async def _renew(self, ours: Live) -> bool:
        annotations = await self._following(ours)
        asked_at = self._clock()
        try:
            self._ours = await self._records.renew(ours, self.holder, self._lasts, annotations)
        except Conflict:
            await self._look_again()
            return False
        except NotFound:
            self._lose("somebody deleted it")
            return False
        except ClusterError as error:
            self._log.warning("lease not renewed", error=str(error))
            return False
        self._renewed = asked_at
        await self._written(self._ours)
        return True

    async def _following(self, found: Live | None) -> Annotations:
        """Nothing where it takes longer than a moment: no Lease is lost for the counter."""
        if self._counter is None:
            return {}
        try:
            async with asyncio.timeout(self._lasts * _COUNTED):
                return await self._counter.following(found)
        except TimeoutError:
            return {}

    async def _written(self, live: Live) -> None:
        if self._counter is None:
            return
        try:
            async with asyncio.timeout(self._lasts * _COUNTED):
                await self._counter.written(live)
        except (ClusterError, TimeoutError) as error:
            self._log.info("lease not counted", error=str(error))

    async def _look_again(self) -> None:
        """A conflict is a renewal of ours whose answer was lost, an edit by hand, or the end."""
        try:
            found = await self._records.look()
            if found is not None and read(found).holder == self.holder:
                self._ours = found
                return
        except ClusterError as error:
            self._log.warning("lease can't be read", error=str(error))
            return
        self._lose("another holds it")

    def _lose(self, why: str) -> None:
        self._log.warning("lease lost", why=why)
        self._ours = None
        self.lost.set()

    def _free(self, found: Live, record: LeaseRecord) -> bool:
        now = self._clock()
        if found.resource_version != self._seen_version:
            self._seen_version, self._seen_since = found.resource_version, now
        self._runs_out = self._seen_since + (record.duration or self._lasts)
        return not record.holder or record.holder == self.holder or now >= self._runs_out

    def _pause(self) -> float:
        """Until the next look: soon enough to see a change, and as soon as the record has run out."""
        usual = self._lasts * _LOOK * random.uniform(0.8, 1.0)
        left = self._runs_out - self._clock()
        return min(usual, left) if left > 0 else usual
