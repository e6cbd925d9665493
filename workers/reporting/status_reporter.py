"""Reporter of deletion status: Events for the object and a condition on it, as often as the settings allow. Reports
wait in a bounded queue; when it is full they are dropped and counted, so that no job waits for them.

Obstacles of a deletion are read from its records whenever they may have changed, so that the condition shows the
current ones, whichever worker found them.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from weakref import WeakValueDictionary

import structlog
from msgspec.structs import replace

from service.contract.names import CONDITION
from service.engine.batch_reads import chunks, members, text
from service.engine.event_rate import may_post_event, reported_key
from service.engine.installation import Installation
from service.engine.keys import deletion_of
from service.engine.shard import Shard
from service.engine.views.overview import pauses
from service.engine.views.progress import Progress, progress, removal_summary
from service.kubernetes import KubeObject
from service.kubernetes.conditions import ConditionStatus, set_condition
from service.kubernetes.events import EventType, post_event
from service.masking import mask_text
from service.settings import FeedbackSettings
from workers.handlers.collector import ObjectRef
from workers.handlers.source_clusters import SourceClusters
from workers.handlers.status_reports import DONE, WARNINGS, StatusReport
from workers.judging.deletion_records import DeletionRecords
from workers.reporting.messages import IN_PROGRESS, done_message, obstacles_message, paused_message

log = structlog.get_logger(__name__)

MOST = 2_000
"""Longest queue of reports, and of deletions whose records are to be read."""

GATHER_FOR = 1.0
"""Seconds for which changes of a deletion are gathered before its records are read."""

AT_ONCE = 100
"""Deletions that are read in one call."""

READ_EVERY = 2_000
"""Milliseconds for which no worker reads the same deletion again."""

CHECK_PAUSE_EVERY = 1.5
"""Seconds between two checks whether everything is paused."""

WRITERS = 8
CONDITION_EVERY = 60_000
"""Milliseconds for which the same condition is not written again."""


class StatusReporter:
    """Implements `JobStatusListener` for the worker; `report` is what planners and handlers call."""

    def __init__(
        self,
        installation: Installation,
        settings: FeedbackSettings,
        clusters: SourceClusters,
        records: DeletionRecords,
        *,
        most: int = MOST,
    ) -> None:
        self._installation, self._settings, self._clusters, self._records = installation, settings, clusters, records
        self._most = most
        self._queue: asyncio.Queue[StatusReport] = asyncio.Queue(most)
        self._changed: set[str] = set()
        # By shard, the message about a pause of everything; empty without one.
        self._paused: dict[int, str] = {}
        # One lock per object, so that its reports are written in order.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._change_added, self._room = asyncio.Event(), asyncio.Event()
        self.dropped = 0

    # ---- receiving

    def report(self, report: StatusReport) -> None:
        """Queues a report, without the object's full content. Orphans are skipped: they have no object to report on."""
        if report.ref.orphan:
            return
        live = report.live.without_raw() if report.live is not None else None
        try:
            self._queue.put_nowait(replace(report, live=live))
        except asyncio.QueueFull:
            self._drop()

    def status_changed(self, job: str) -> None:
        self._mark_changed(deletion_of(job))

    def _mark_changed(self, deletion: str) -> None:
        if deletion in self._changed:
            return
        if len(self._changed) >= self._most:
            self._drop()
            return
        self._changed.add(deletion)
        self._change_added.set()

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:
            log.warning("status reports dropped, the queue is full", dropped=self.dropped)

    # ---- reading what changed

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_changed())
            if self._settings.conditions:
                group.create_task(self._watch_pause())
            for _ in range(WRITERS):
                group.create_task(self._write_queued())

    async def drained(self) -> None:
        await self._queue.join()

    async def _read_changed(self) -> None:
        while True:
            await self._change_added.wait()
            await asyncio.sleep(GATHER_FOR)
            self._change_added.clear()
            changed, self._changed = self._changed, set()
            self._room.set()
            for part in chunks(changed, AT_ONCE):
                try:
                    await self._read(part)
                except Exception as error:  # noqa: BLE001  # as below
                    log.warning("status not reported", deletions=len(part), error=str(error))

    async def _read(self, deletions: Iterable[str]) -> None:
        known = await self._records.find(deletions)
        claimed = await asyncio.gather(*map(self._claim_read, known.values()))
        mine = {one: ref for (one, ref), is_claimed in zip(known.items(), claimed, strict=True) if is_claimed}
        for one in known.keys() - mine.keys():
            # Another worker read it a moment ago, perhaps before the change.
            self._mark_changed(one)
        found = await progress(self._installation, mine)
        for one, ref in mine.items():
            if one in found and (report := _status_of(ref, found[one])) is not None:
                self.report(replace(report, from_records=True))

    async def _claim_read(self, ref: ObjectRef) -> bool:
        key = reported_key(self._installation, ref.deletion, ref.uid, "look")
        return bool(await self._installation.caller.command("SET", key, "1", "NX", "PX", READ_EVERY))

    async def _watch_pause(self) -> None:
        """A pause of everything, and its end, changes the status of every open deletion without a change of any job."""
        while True:
            for shard in self._installation.shards:
                try:
                    await self._check_pause(shard)
                except Exception as error:  # noqa: BLE001  # as below
                    log.warning("pauses not read", shard=shard.number, error=str(error))
            await asyncio.sleep(CHECK_PAUSE_EVERY)

    async def _check_pause(self, shard: Shard) -> None:
        message = next((paused_message(one) for one in await pauses(shard) if one.lane == "*"), "")
        key, known = f"{shard.stem}told:pause:all", self._paused.get(shard.number)
        if known is None:
            # What earlier processes reported.
            known = text(await shard.caller.command("GET", key) or b"")
        self._paused[shard.number] = message
        if message == known:
            return
        if message:
            await shard.caller.command("SET", key, message)
        async for page in members(shard, "open"):
            for member in page:
                if len(self._changed) >= self._most:
                    self._room.clear()
                    await self._room.wait()
                self._mark_changed(member.name)
        if not message:
            await shard.caller.command("DEL", key)

    # ---- writing Events and conditions

    async def _write_queued(self) -> None:
        while True:
            report = await self._queue.get()
            lock = self._locks.setdefault(report.ref.uid, asyncio.Lock())
            try:
                async with lock:
                    await self._write(report)
            except Exception as error:  # noqa: BLE001  # reporting is best effort and must not stop the worker
                log.warning("status not reported", deletion=report.ref.deletion, reason=report.reason, error=str(error))
            finally:
                self._queue.task_done()

    async def _write(self, report: StatusReport) -> None:
        cluster = self._clusters.of(report.ref.source)
        if cluster is None:
            return
        ref, every = report.ref, self._settings.every
        if report.from_records:
            # Read again: another worker may have reported something newer while this report was queued.
            found = await progress(self._installation, [ref.deletion])
            now_known = _status_of(ref, found[ref.deletion]) if ref.deletion in found else None
            if now_known is None:
                return
            report = now_known
        if report.reason == DONE:
            report = replace(report, message=done_message(await removal_summary(self._installation, ref.deletion)))
        event = (
            self._settings.events
            and report.event
            and await may_post_event(self._installation, ref.deletion, ref.uid, report.reason, every)
        )
        now = self._with_pause(report)
        condition = self._settings.conditions and await self._is_new_condition(now)
        if not (event or condition):
            return
        seen = report.live or _seen_of(ref)
        served = await cluster.served(ref.resource)
        if condition:
            state: ConditionStatus = "True" if now.reason == DONE else "False"
            message = mask_text(now.message)
            written = await set_condition(cluster.client, served, seen, CONDITION, state, now.reason, message)
            if written is None:
                await self._installation.caller.command("DEL", self._condition_key(ref))
                self._mark_changed(ref.deletion)
        if event:
            kind: EventType = "Warning" if report.reason in WARNINGS else "Normal"
            await post_event(cluster.client, served, seen, report.reason, mask_text(report.message), kind)

    def _with_pause(self, report: StatusReport) -> StatusReport:
        """The report for the condition: while everything is paused, its message begins with the pause."""
        pause = self._paused.get(self._installation.keys.shard_of(report.ref.deletion), "")
        match report.reason if pause else "":
            case "CleanupStarted":
                return replace(report, reason="CleanupPaused", message=pause, stable_message="")
            case "CleanupWaiting" | "CleanupHeld":
                stable = f"{pause}; {report.stable_message or report.message}"
                reason = report.reason if report.reason == "CleanupHeld" else "CleanupPaused"
                return replace(report, reason=reason, message=f"{pause}; {report.message}", stable_message=stable)
            case _:
                return report

    def _condition_key(self, ref: ObjectRef) -> str:
        round_ = ref.deletion.rpartition("/")[2]
        return reported_key(self._installation, ref.deletion, ref.uid, f"condition:{round_}")

    async def _is_new_condition(self, report: StatusReport) -> bool:
        """Whether no replica has written this condition recently. An Event is written once per reason, a condition
        whenever its message changes, and never again after the release."""
        key = self._condition_key(report.ref)
        digest = hashlib.sha256((report.stable_message or report.message).encode()).hexdigest()[:32]
        written = f"{report.reason} {digest}".encode()
        before = await self._installation.caller.command("GET", key)
        if before == written or (before or b"").startswith(DONE.encode()):
            return False
        before = await self._installation.caller.command("SET", key, written, "PX", CONDITION_EVERY, "GET", get=True)
        return bool(before != written)


def _status_of(ref: ObjectRef, found: Progress) -> StatusReport | None:
    """The status according to the records; None if there is nothing to report, as for a deletion that has ended."""
    match found.state:
        case "held":
            return StatusReport(ref, "CleanupHeld", found.why)
        case "waiting":
            return StatusReport(ref, "CleanupWaiting", found.why)
        case "running" | "releasing" if found.obstacles:
            held = any(one.held for one in found.obstacles)
            message, stable = obstacles_message(found.obstacles), obstacles_message(found.obstacles, times=False)
            return StatusReport(ref, "CleanupHeld" if held else "CleanupWaiting", message, stable_message=stable)
        case "running" | "releasing":
            return StatusReport(ref, "CleanupStarted", IN_PROGRESS, event=False)
        case _:
            return None


def _seen_of(ref: ObjectRef) -> KubeObject:
    """The object as far as it is known without reading it; `set_condition` reads it itself."""
    return KubeObject(uid=ref.uid, name=ref.name, namespace=ref.namespace)
