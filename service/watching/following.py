"""Follows a strand from a list's resource version on: while one batch of changes is dealt with, the next one gathers.
The point in Redis from which the watch is known to be complete moves only when everything before it is published."""

import asyncio
import time
from contextlib import aclosing
from datetime import timedelta
from typing import Final

import msgspec

from service.engine.inventory import Inventory
from service.kubernetes import Change, ClusterError, Served, Silent, TooMany, Unavailable
from service.watching.assignment import Assignment, NotHolding
from service.watching.listing import VERSION_FIELD, Duties
from service.watching.marking import Marker
from service.watching.reporting import Report
from service.watching.strand import Strand

_MOST_GATHERED: Final = 2000
_MOST_BYTES: Final = 16 * 2**20
_LOOK: Final = timedelta(seconds=2)
_GATHERED: Final = 0.03
_RESUMES: Final = 5
_FIRST_WAIT: Final = 0.1


class Inbox:
    """Changes that were read and not dealt with yet; who reads waits while there are too many, or too long ones."""

    def __init__(self, most: int = _MOST_GATHERED, most_bytes: int = _MOST_BYTES) -> None:
        self._changes: list[Change] = []
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0
        self._came, self._taken = asyncio.Event(), asyncio.Event()
        self.failure: ClusterError | None = None

    async def put(self, change: Change) -> None:
        size = 0 if change.seen is None else len(change.seen.raw)
        # One object that is longer than all that may wait is let in alone.
        while self._changes and (len(self._changes) >= self._most or self._bytes + size > self._most_bytes):
            self._taken.clear()
            await self._taken.wait()
        self._changes.append(change)
        self._bytes += size
        self._came.set()

    def fail(self, error: ClusterError) -> None:
        """The watch can't go on; what came before is dealt with first."""
        self.failure = error
        self._came.set()

    async def take(self, within: float) -> list[Change]:
        if not self._changes and self.failure is None:
            self._came.clear()
            try:
                async with asyncio.timeout(within):
                    await self._came.wait()
            except TimeoutError:
                return []
        changes, self._changes, self._bytes = self._changes, [], 0
        self._taken.set()
        return changes


class Following:
    def __init__(self, strand: Strand, duties: Duties, store: Inventory, marker: Marker, report: Report) -> None:
        self._strand, self._duties = strand, duties
        self._store, self._marker, self._report = store, marker, report
        self._asked: list[str] = []

    @property
    def _assignment(self) -> Assignment:
        return self._strand.assignment

    async def remember_wishes(self) -> str:
        """Before a list begins: a relist that is asked for from now on is the next one. Answers when a person last
        accepted that the cluster was restored."""
        await self._store.begin_epoch()
        self._asked = await self._store.wishes()
        return self._asked[-1]

    async def run(self, served: Served, version: str, within: timedelta) -> None:
        """Returns when a list is due or asked for; raises what ended the watch, Expired among it."""
        end = time.monotonic() + within.total_seconds()
        inbox = Inbox()
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._read(served, version, inbox))
            trouble: Exception | None
            try:
                trouble = await self._handle(served, inbox, end)
            except (ClusterError, NotHolding) as error:
                # Carried out of the group, which would wrap it.
                trouble = error
            finally:
                reader.cancel()
        if trouble is not None:
            raise trouble

    # ---- reading

    async def _read(self, served: Served, version: str, inbox: Inbox) -> None:
        """Resumes after what was read last: all of that is in the inbox."""
        failures = 0
        settings, cluster = self._assignment.settings, self._assignment.cluster
        while True:
            began = time.monotonic()
            try:
                watch = cluster.watch(
                    served,
                    self._strand.namespace,
                    settings.selector,
                    version,
                    silence=self._assignment.watch.silence,
                    metadata_only=self._assignment.metadata_only,
                )
                async with aclosing(watch) as changes:
                    async for change in changes:
                        failures = 0
                        version = change.resource_version or version
                        await inbox.put(change)
                # A server that ends every watch at once must not be asked all the time.
                failures = failures + 1 if time.monotonic() - began < 1 else 0
            except Silent as error:
                # The server answers, so it is asked again at once; the next list makes good what it never told.
                self._report.said("watch fell silent, replaced", version=version, reason=str(error))
            except (Unavailable, TooMany) as error:
                failures += 1
                if failures > _RESUMES:
                    inbox.fail(error)
                    return
                self._report.said("watch broke, resuming", version=version, reason=str(error))
            except ClusterError as error:
                inbox.fail(error)
                return
            self._assignment.tally.resumed += 1
            if failures:
                await asyncio.sleep(_FIRST_WAIT * 2 ** min(failures - 1, _RESUMES))

    # ---- dealing with what was read

    async def _handle(self, served: Served, inbox: Inbox, end: float) -> ClusterError | None:
        look = _LOOK.total_seconds()
        looked = time.monotonic()
        while True:
            now = time.monotonic()
            batch = await inbox.take(max(0.0, min(end - now, looked + look - now)))
            if batch:
                await self._deal(served, batch)
                if len(batch) > 1:
                    # A burst: what comes in the next moment is dealt with together.
                    await asyncio.sleep(_GATHERED)
            elif inbox.failure is not None:
                return inbox.failure
            now = time.monotonic()
            if now >= end:
                return None
            if now >= looked + look:
                looked = now
                if await self._is_wanted():
                    return None

    async def _deal(self, served: Served, batch: list[Change]) -> None:
        latest: dict[str, Change] = {}
        came: list[Change] = []
        version = ""
        for change in batch:
            version = change.resource_version or version
            if change.unreadable:
                self._report.unreadable(change.unreadable)
            elif change.seen is not None and self._strand.includes(change.seen.namespace):
                # Taken out first: the order is that of the latest changes.
                uid = change.seen.uid
                before = latest.pop(uid, None)
                latest[uid] = change if before is None else self._after(before, change, came)
        self._assignment.tally.events += sum(change.kind != "BOOKMARK" for change in batch)
        if latest:
            self._assignment.act()
            await self._duties.changes(served, [*came, *latest.values()])
        self._assignment.count(self._strand.label, owned=self._duties.owned)
        if version:
            self._assignment.act()
            await self._store.note(
                {self._strand.field(VERSION_FIELD): version, self._strand.owned_field: self._duties.owned}
            )

    def _after(self, before: Change, change: Change, came: list[Change]) -> Change:
        """Two changes of one object in a batch, where only the latest is dealt with."""
        self._duties.passing(before)
        if before.kind == "DELETED" and change.kind == "ADDED":
            # It left the selector and is back; that it left was never counted.
            return msgspec.structs.replace(change, kind="MODIFIED")
        if before.kind != "ADDED":
            return change
        # Whoever came within this batch is counted as that, whatever happened to it since.
        if change.kind == "DELETED":
            came.append(before)
            return change
        return msgspec.structs.replace(change, kind="ADDED")

    # ---- lists that are asked for

    async def _is_wanted(self) -> bool:
        """A person asked, Redis lost something, or more was to be marked than could wait."""
        if self._marker.wants_a_list():
            return True
        asked = await self._store.wishes()
        if asked == self._asked:
            return False
        if asked[0] == self._asked[0]:
            self._report.said("a list is asked for")
        else:
            self._report.warned("Redis was emptied, listing everything again")
        return True
