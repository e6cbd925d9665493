"""Watch of a source's objects, from the resource version of the last list on: while one batch of watch events is
processed, the next is buffered. The resource version in Redis moves only after everything before it is published.
Expired (410) ends it: see list_watch."""

import asyncio
import time
from contextlib import aclosing
from datetime import timedelta
from typing import Final

import msgspec

from service.engine.inventory import Inventory
from service.kubernetes import ClusterError, ServedResource, TooMany, Unavailable, WatchEvent, WatchStalled
from service.watching.assignment import VERSION_FIELD, Assignment, LeaseNotHeld, ListScope, ObjectHandler
from service.watching.finalizer_patcher import FinalizerPatcher
from service.watching.source_status import SourceStatus

_MOST_BUFFERED: Final = 2000
_MOST_BYTES: Final = 16 * 2**20
_REQUEST_CHECK: Final = timedelta(seconds=2)
_BURST_PAUSE: Final = 0.03
_RESUMES: Final = 5
_FIRST_WAIT: Final = 0.1


class WatchBuffer:
    """Events that were read and not processed yet, bounded by number and by bytes: `put` waits while it is full."""

    def __init__(self, most: int = _MOST_BUFFERED, most_bytes: int = _MOST_BYTES) -> None:
        self._changes: list[WatchEvent] = []
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self.failure: ClusterError | None = None

    async def put(self, change: WatchEvent) -> None:
        size = 0 if change.seen is None else len(change.seen.raw)
        # An object that is larger than the whole buffer is accepted alone.
        while self._changes and (len(self._changes) >= self._most or self._bytes + size > self._most_bytes):
            self._taken.clear()
            await self._taken.wait()
        self._changes.append(change)
        self._bytes += size
        self._arrived.set()

    def fail(self, error: ClusterError) -> None:
        """The watch can't go on; what is in the buffer is processed first."""
        self.failure = error
        self._arrived.set()

    async def take(self, within: float) -> list[WatchEvent]:
        if not self._changes and self.failure is None:
            self._arrived.clear()
            try:
                async with asyncio.timeout(within):
                    await self._arrived.wait()
            except TimeoutError:
                return []
        changes, self._changes, self._bytes = self._changes, [], 0
        self._taken.set()
        return changes


class WatchFollower:
    def __init__(
        self,
        list_scope: ListScope,
        handler: ObjectHandler,
        store: Inventory,
        patcher: FinalizerPatcher,
        status: SourceStatus,
    ) -> None:
        self._list_scope, self._handler = list_scope, handler
        self._store, self._patcher, self._status = store, patcher, status
        self._requests: list[str] = []

    @property
    def _assignment(self) -> Assignment:
        return self._list_scope.assignment

    async def note_relist_requests(self) -> str:
        """To be called before a list: a relist that is requested from now on is the next one. Returns when an operator
        last accepted a restore of the cluster."""
        await self._store.begin_epoch()
        self._requests = await self._store.relist_signals()
        return self._requests[-1]

    async def run(self, served: ServedResource, version: str, within: timedelta) -> None:
        """Returns when a list is due or requested; raises what ended the watch, such as Expired."""
        end = time.monotonic() + within.total_seconds()
        buffer = WatchBuffer()
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._read(served, version, buffer))
            failure: Exception | None
            try:
                failure = await self._process_batches(served, buffer, end)
            except (ClusterError, LeaseNotHeld) as error:
                # Raised outside the task group, which would wrap it.
                failure = error
            finally:
                reader.cancel()
        if failure is not None:
            raise failure

    # ---- reading

    async def _read(self, served: ServedResource, version: str, buffer: WatchBuffer) -> None:
        """Resumes a broken watch after the last event, which is in the buffer."""
        failures = 0
        settings, cluster = self._assignment.settings, self._assignment.cluster
        while True:
            began = time.monotonic()
            try:
                watch = cluster.watch(
                    served,
                    self._list_scope.namespace,
                    settings.selector,
                    version,
                    silence=self._assignment.watch.silence,
                    metadata_only=self._assignment.metadata_only,
                )
                async with aclosing(watch) as changes:
                    async for change in changes:
                        failures = 0
                        version = change.resource_version or version
                        await buffer.put(change)
                # Backs off from a server that ends every watch at once.
                failures = failures + 1 if time.monotonic() - began < 1 else 0
            except WatchStalled as error:
                # The server is reachable, so it is resumed at once; the next list finds events that were never sent.
                self._status.info("watch stalled, replaced", version=version, reason=str(error))
            except (Unavailable, TooMany) as error:
                failures += 1
                if failures > _RESUMES:
                    buffer.fail(error)
                    return
                self._status.info("watch broke, resuming", version=version, reason=str(error))
            except ClusterError as error:
                buffer.fail(error)
                return
            self._assignment.counters.resumed += 1
            if failures:
                await asyncio.sleep(_FIRST_WAIT * 2 ** min(failures - 1, _RESUMES))

    # ---- processing

    async def _process_batches(self, served: ServedResource, buffer: WatchBuffer, end: float) -> ClusterError | None:
        every = _REQUEST_CHECK.total_seconds()
        checked = time.monotonic()
        while True:
            now = time.monotonic()
            batch = await buffer.take(max(0.0, min(end - now, checked + every - now)))
            if batch:
                await self._process(served, batch)
                if len(batch) > 1:
                    # A burst: the events of the next moment are processed together.
                    await asyncio.sleep(_BURST_PAUSE)
            elif buffer.failure is not None:
                return buffer.failure
            now = time.monotonic()
            if now >= end:
                return None
            if now >= checked + every:
                checked = now
                if await self._relist_requested():
                    return None

    async def _process(self, served: ServedResource, batch: list[WatchEvent]) -> None:
        latest: dict[str, WatchEvent] = {}
        added: list[WatchEvent] = []
        version = ""
        for change in batch:
            version = change.resource_version or version
            if change.unreadable:
                self._status.report_unreadable(change.unreadable)
            elif change.seen is not None and self._list_scope.includes(change.seen.namespace):
                # Removed first, so that the order is that of the latest events.
                uid = change.seen.uid
                before = latest.pop(uid, None)
                latest[uid] = change if before is None else self._merge(before, change, added)
        self._assignment.counters.events += sum(change.kind != "BOOKMARK" for change in batch)
        if latest:
            self._assignment.require_lease()
            await self._handler.handle_events(served, [*added, *latest.values()])
        self._assignment.count(self._list_scope.label, owned=self._handler.owned)
        if version:
            self._assignment.require_lease()
            await self._store.save_state(
                {self._list_scope.field(VERSION_FIELD): version, self._list_scope.owned_field: self._handler.owned}
            )

    def _merge(self, before: WatchEvent, change: WatchEvent, added: list[WatchEvent]) -> WatchEvent:
        """Merges two events of one object in a batch, of which only the latest is processed."""
        self._handler.handle_skipped(before)
        if before.kind == "DELETED" and change.kind == "ADDED":
            # It left the selector and is back; it is counted still.
            return msgspec.structs.replace(change, kind="MODIFIED")
        if before.kind != "ADDED":
            return change
        # An object that was added within this batch is counted as added, whatever happened to it since.
        if change.kind == "DELETED":
            added.append(before)
            return change
        return msgspec.structs.replace(change, kind="ADDED")

    # ---- requested lists

    async def _relist_requested(self) -> bool:
        """By an operator, after a loss in Redis, or because the finalizer queue overflowed."""
        if self._patcher.needs_relist():
            return True
        signals = await self._store.relist_signals()
        if signals == self._requests:
            return False
        if signals[0] == self._requests[0]:
            self._status.info("relist requested")
        else:
            self._status.warning("Redis was emptied, listing everything again")
        return True
