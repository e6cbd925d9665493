"""Leader election by a Lease of coordination.k8s.io, which is taken, renewed and handed back. A Lease has expired when
this process has seen it unchanged for its duration, so that clocks of different machines are never compared."""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Final, Protocol, Self

import structlog

from service.kubernetes.client import KubernetesClient
from service.kubernetes.errors import ClusterError, Conflict, NotFound, TooMany, Unavailable, Unreadable
from service.kubernetes.lease_client import Annotations, LeaseClient, LeaseRecord, read_lease
from service.kubernetes.objects import KubeObject

log = structlog.get_logger(__name__)

# Parts of the duration: between renewals, between retries of a failed one, the timeout of a call, between reads of a
# waiting process, until a holder that can't renew stops, and the timeout of the counter before and after a write.
_RENEW: Final = 1 / 4
_RETRY: Final = 1 / 12
_CALL: Final = 1 / 4
_CHECK: Final = 1 / 8
_STOP: Final = 2 / 3
_COUNTER: Final = 1 / 16
_HAND_BACK_TRIES: Final = 3


def steady_clock() -> float:
    """Seconds that also pass while the machine is suspended, if the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LeaseWriteCounter(Protocol):
    """Counter that is written to the Lease with every record, and stored elsewhere, too."""

    async def next_annotations(self, found: KubeObject | None) -> Annotations:
        """The annotations for the next record; `found` is the Lease as it was read, None for a new one."""

    async def written(self, live: KubeObject) -> None:
        """The server has confirmed the record."""


class Lease:
    """`async with lease:` waits until it is held, renews it, and hands it back at the end.

    A dead holder is replaced within `duration`: the record has two thirds of it, which leaves a waiting process the
    time to notice. A holder that can't renew stops well before another may take the Lease: `held` turns false by the
    clock alone, and `lost` is set soon after. `holder` must be unique to the process.
    """

    def __init__(
        self,
        cluster: KubernetesClient,
        namespace: str,
        name: str,
        holder: str,
        duration: timedelta = timedelta(seconds=15),
        *,
        counter: LeaseWriteCounter | None = None,
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        self.name, self.holder = name, holder
        self._counter = counter
        self.lost = asyncio.Event()
        self._clock = clock
        # Whole seconds, as in the record that other processes read.
        self._duration = max(1, int(duration.total_seconds() * 2 / 3))
        self._client = LeaseClient(cluster, namespace, name, timedelta(seconds=self._duration * _CALL))
        self._log = log.bind(cluster=cluster.name, lease=f"{namespace}/{name}", holder=holder)
        self._ours: KubeObject | None = None
        self._renewed = 0.0
        self._seen_version = ""
        self._seen_since = 0.0
        self._expires = 0.0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether this process may act right now."""
        return self._ours is not None and self._clock() < self._deadline

    @property
    def _deadline(self) -> float:
        return self._renewed + self._duration * _STOP

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
        """Waits until it is held. Raises only errors that waiting does not fix: Forbidden, a missing Namespace."""
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
        """Reads it once, and takes it if it is free."""
        found = await self._client.get()
        if found is not None and not self._free(found, read_lease(found)):
            return False
        annotations = await self._next_annotations(found)
        # From before the request: the record is not older than that.
        started_at = self._clock()
        try:
            if found is None:
                self._ours = await self._client.create(self.holder, self._duration, annotations)
            else:
                self._ours = await self._client.take(found, self.holder, self._duration, annotations)
            await self._written(self._ours)
        except Conflict:
            # Another process took it first.
            return False
        except asyncio.CancelledError:
            # The server may have written it nevertheless.
            self._ours = None
            await self._hand_back_shielded(None)
            raise
        self._renewed = started_at
        self.lost.clear()
        self._log.info("lease taken")
        return True

    async def keep(self) -> None:
        """Renews until it is lost, and then returns."""
        try:
            pause = self._duration * _RENEW
            while self._ours is not None:
                await asyncio.sleep(max(0.0, min(pause, self._deadline - self._clock())))
                if self._clock() >= self._deadline:
                    self._lose("it could not be renewed in time")
                    return
                pause = self._duration * (_RENEW if await self._renew(self._ours) else _RETRY)
        except Exception:
            self._lose("the renewal failed with an unexpected error")
            raise

    async def release(self) -> None:
        """Hands it back, so that another process may take it at once. Does nothing if it is not held."""
        ours, self._ours = self._ours, None
        if ours is None:
            return
        await self._hand_back_shielded(ours)

    async def _hand_back_shielded(self, ours: KubeObject | None) -> None:
        """Completes even if it is cancelled, as when the process stops: the others should not have to wait for the
        expiry."""
        handing_back = asyncio.ensure_future(self._hand_back(ours))
        try:
            await asyncio.shield(handing_back)
        except asyncio.CancelledError:
            await handing_back
            raise

    async def _hand_back(self, ours: KubeObject | None) -> None:
        try:
            for _ in range(_HAND_BACK_TRIES):
                ours = ours or await self._client.get()
                if ours is None or read_lease(ours).holder != self.holder:
                    return
                try:
                    handed_back = await self._client.hand_back(ours, await self._next_annotations(ours))
                except Conflict:
                    # An interrupted renewal has changed it, or another process took it.
                    ours = None
                else:
                    self._log.info("lease handed back")
                    await self._written(handed_back)
                    return
        except ClusterError as error:
            self._log.info("lease not handed back", error=str(error))

    async def _renew(self, ours: KubeObject) -> bool:
        annotations = await self._next_annotations(ours)
        started_at = self._clock()
        try:
            self._ours = await self._client.renew(ours, self.holder, self._duration, annotations)
        except Conflict:
            await self._reread()
            return False
        except NotFound:
            self._lose("it was deleted")
            return False
        except ClusterError as error:
            self._log.warning("lease not renewed", error=str(error))
            return False
        self._renewed = started_at
        await self._written(self._ours)
        return True

    async def _next_annotations(self, found: KubeObject | None) -> Annotations:
        """None after a short timeout: the counter must not cost the Lease."""
        if self._counter is None:
            return {}
        try:
            async with asyncio.timeout(self._duration * _COUNTER):
                return await self._counter.next_annotations(found)
        except TimeoutError:
            return {}

    async def _written(self, live: KubeObject) -> None:
        if self._counter is None:
            return
        try:
            async with asyncio.timeout(self._duration * _COUNTER):
                await self._counter.written(live)
        except (ClusterError, TimeoutError) as error:
            self._log.info("lease not counted", error=str(error))

    async def _reread(self) -> None:
        """After a conflict: a renewal whose response was lost, an edit by hand, or another holder."""
        try:
            found = await self._client.get()
            if found is not None and read_lease(found).holder == self.holder:
                self._ours = found
                return
        except ClusterError as error:
            self._log.warning("lease can't be read", error=str(error))
            return
        self._lose("another process holds it")

    def _lose(self, why: str) -> None:
        self._log.warning("lease lost", why=why)
        self._ours = None
        self.lost.set()

    def _free(self, found: KubeObject, record: LeaseRecord) -> bool:
        now = self._clock()
        if found.resource_version != self._seen_version:
            self._seen_version, self._seen_since = found.resource_version, now
        self._expires = self._seen_since + (record.duration or self._duration)
        return not record.holder or record.holder == self.holder or now >= self._expires

    def _pause(self) -> float:
        """Until the next read: regularly, and as soon as the record has expired."""
        usual = self._duration * _CHECK * random.uniform(0.8, 1.0)
        left = self._expires - self._clock()
        return min(usual, left) if left > 0 else usual
