"""Planner loop: reads events from the stream, calls the planner of their source, and writes deletions and jobs.

A plan is written before its stream entry is acked. An entry whose worker died is claimed by another worker and planned
alone; if that worker dies too, the event waits in Redis before it is planned again, longer each time.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from service.contract import Event, Hold, NewerVersion, decode_event
from service.engine.calls import RedisCaller
from service.engine.clients import RedisClient, is_unavailable
from service.engine.plan_layout import InvalidPlan, PlanLayout, lay_out_plan
from service.engine.script_arguments import CHUNK, PlanRow, UnplannedEvent, event_fields, ms, plan_rows
from service.engine.script_replies import Claimed
from service.engine.shard import Shard
from service.masking import mask_text
from service.settings import Settings
from workers.handlers.registry import HandlerRegistry
from workers.runtime.counters import WorkerCounters
from workers.runtime.slots import ALONE_PERIOD, WorkerSlots

log = structlog.get_logger(__name__)
GROUP = "planners"
ALONE = b"alone"
"""Field of a stream entry, not of the event: workers died while planning it, so it is only planned alone."""
READ = 100
BLOCK_MS = 5_000


class PlannerLoop:
    """Plans the events of one shard in this process."""

    def __init__(
        self,
        shard: Shard,
        blocking: RedisClient,
        registry: HandlerRegistry,
        settings: Settings,
        worker: str,
        slots: WorkerSlots,
        counters: WorkerCounters,
    ) -> None:
        self._shard, self._blocking, self._registry = shard, blocking, registry
        self._settings, self._worker, self._slots, self._counters = settings, worker, slots, counters
        self._caller: RedisCaller = shard.caller
        self._events = shard.stem + "events"
        self._running: set[str] = set()
        self._free = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._plans: list[PlanRow] = []
        self._plans_ready = asyncio.Event()
        self._unstarted: set[str] = set()
        self._keeps_alive = True
        self._reader: asyncio.Task[None] | None = None
        self._suspects, self._suspect = shard.stem + "suspects", ""
        self.on_loss: Callable[[], None] = lambda: None
        # Set when a worker is known to be dead: its entries can be claimed at once.
        self.dead_worker = asyncio.Event()

    # ---- reading

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Read and plan until the worker stops."""
        self._reader = asyncio.current_task()
        while not self._slots.stopping:
            room = self._settings.worker.planners - len(self._running)
            if room <= 0 or self._claiming.locked():
                self._free.clear()
                await self._free.wait()
                continue
            entries = await self._read(min(room, READ))
            alone = [entry for entry, raw in entries if ALONE in raw]
            if alone:
                await self._make_claimable(alone)
                entries = [(entry, raw) for entry, raw in entries if ALONE not in raw]
            self._unstarted = {entry for entry, _ in entries}
            # A suspect is planned alone: entries of a read that was in flight wait until it is done.
            async with self._claiming:
                for entry, raw in entries:
                    self._begin(group, entry, raw)
                self._unstarted.clear()

    async def _read(self, count: int) -> list[tuple[str, dict[bytes, bytes]]]:
        try:
            answer = await self._blocking.execute_command(
                "XREADGROUP", "GROUP", GROUP, self._worker, "COUNT", count, "BLOCK", BLOCK_MS,
                "STREAMS", self._events, ">",
            )  # fmt: skip
        except Exception as error:
            if "NOGROUP" in str(error):
                await self.make_group()
            elif is_unavailable(error):
                await asyncio.sleep(0.2)
            else:
                raise
            return []
        if not answer:
            return []
        found = next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
        return [(entry.decode(), _fields(raw)) for entry, raw in found]

    async def _make_claimable(self, entries: list[str]) -> None:
        """Makes entries of this worker look idle, so that any worker without running plans may claim them."""
        idle = ("IDLE", ms(self._settings.worker.plan_claim) + 1, "JUSTID")
        try:
            await self._caller.command(
                "XCLAIM", self._events, GROUP, self._worker, 0, *entries, *idle, parse_justid=True
            )
        except Exception as error:
            if "NOGROUP" not in str(error):
                raise
            await self.make_group()

    async def make_group(self) -> None:
        """The group begins at the first entry, so entries older than the group are read as well."""
        # The group was created at startup: if it is gone, all data may be gone.
        self.on_loss()
        try:
            await self._caller.command("XGROUP", "CREATE", self._events, GROUP, "0", "MKSTREAM")
        except Exception as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _begin(self, group: asyncio.TaskGroup, entry: str, raw: dict[bytes, bytes]) -> None:
        self._running.add(entry)
        group.create_task(self._plan_one(entry, raw))

    # ---- planning

    async def _plan_one(self, entry: str, raw: dict[bytes, bytes]) -> None:
        held = await self._plan_or_hold(entry, raw)
        if held is not None:
            self._counters.held += await self._shard.hold([held])
            self._done(entry)

    async def _plan_or_hold(self, entry: str, raw: dict[bytes, bytes]) -> UnplannedEvent | None:
        """Passes the plan to the writer, or returns why the event is held."""
        event = _decoded(entry, raw)
        if isinstance(event, UnplannedEvent):
            return event
        with structlog.contextvars.bound_contextvars(deletion=event.deletion, entry=entry):
            arranged, why = await self._make_plan(event)
        if isinstance(arranged, Hold):
            again, exact = self._wait(arranged)
            # Without a time for the next check it could not continue by itself.
            where = "waiting" if arranged.waits and again else "held"
            if where == "waiting":
                log.info("deletion waits", deletion=event.deletion, reason=arranged.reason)
            else:
                log.warning("deletion held", deletion=event.deletion, reason=arranged.reason, again=arranged.again)
            return UnplannedEvent(
                entry, where, mask_text(arranged.reason), event.deletion, list(event_fields(event)), again, exact
            )
        if len(arranged.jobs) <= CHUNK:
            self._plans.extend(plan_rows(event, entry, arranged, why))
            self._plans_ready.set()
        else:
            answer = await self._shard.plan_whole(event, entry, arranged, why)
            self._counters.planned += answer.state == "planned"
            log.info("planned", deletion=event.deletion, jobs=len(arranged.jobs), state=answer.state)
            await self._open()
            self._done(entry)
        return None

    def _wait(self, hold: Hold) -> tuple[int, bool]:
        """Milliseconds until it is planned again, and whether that time is exact."""
        if not hold.again:
            return 0, False
        return (ms(self._settings.retry.base), False) if hold.after is None else (max(1, ms(hold.after)), True)

    async def _make_plan(self, event: Event) -> tuple[PlanLayout | Hold, str]:
        """The plan and the reason from policy. Whatever a planner raises holds the event, visibly."""
        try:
            async with asyncio.timeout(self._settings.worker.plan_timeout.total_seconds()):
                plan = await self._registry.plan(event)
            if isinstance(plan, Hold):
                return plan, ""
            return lay_out_plan(event, plan.targets, self._settings.retry.best_effort_deadline), mask_text(plan.why)
        except InvalidPlan as error:
            return Hold(str(error)), ""
        except Exception as error:
            # It may be temporary: the janitor has it planned again, less often each time.
            log.exception("planning failed")
            return Hold(f"planning failed with {type(error).__name__}: {error}", again=True), ""

    def _done(self, entry: str) -> None:
        self._running.discard(entry)
        self._free.set()

    # ---- writing

    async def write(self) -> None:
        """Writes plans of many deletions in one call; while it is in flight, the next batch gathers."""
        while True:
            await self._plans_ready.wait()
            self._plans_ready.clear()
            while self._plans:
                part, jobs = list[PlanRow](), 0
                while self._plans and (not part or jobs + len(self._plans[0].jobs) <= CHUNK):
                    row = self._plans.pop(0)
                    part.append(row)
                    jobs += len(row.jobs)
                answers = await self._shard.plan(part)
                stale = sum(answer.state == "stale" for answer in answers)
                self._counters.planned += len(answers) - stale
                log.debug("planned", deletions=len(part), jobs=jobs, stale=stale)
                for row in part:
                    self._done(row.entry)

    async def _open(self) -> None:
        while (await self._shard.open_stages())[1]:
            pass

    # ---- entries of dead planners

    async def keep_alive(self) -> None:
        """Resets the idle time of this worker's entries, however long their plans take."""
        while True:
            await asyncio.sleep(self._settings.worker.plan_claim.total_seconds() / 4)
            ids = [*self._running, *self._unstarted]
            if ids and self._keeps_alive:
                try:
                    await self._caller.command(
                        "XCLAIM", self._events, GROUP, self._worker, 0, *ids, "JUSTID", parse_justid=True
                    )
                except Exception as error:
                    if "NOGROUP" not in str(error):
                        raise
                    await self.make_group()

    async def claim(self) -> None:
        """Claims entries of dead workers, one at a time, with pauses in which suspect jobs may run alone."""
        while not self._slots.stopping:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.dead_worker.wait(), self._settings.worker.plan_claim.total_seconds() / 4)
            self.dead_worker.clear()
            until = time.monotonic() + ALONE_PERIOD
            while await self._claim_one():
                if self._is_stopping():
                    return
                if time.monotonic() >= until:
                    await asyncio.sleep(ALONE_PERIOD / 2)
                    until = time.monotonic() + ALONE_PERIOD

    def _is_stopping(self) -> bool:
        return self._slots.stopping

    async def _claim_one(self) -> bool:
        """Whether there was one."""
        try:
            if not await self._has_idle_entry():
                return False
            async with self._slots.suspects, self._claiming:
                try:
                    return await self._plan_suspect()
                finally:
                    self._free.set()
        except Exception as error:
            if "NOGROUP" not in str(error):
                raise
            await self.make_group()
            return False

    async def _has_idle_entry(self) -> bool:
        """Checked first, because claiming waits until all running plans are done."""
        limit = ms(self._settings.worker.plan_claim)
        first = ("IDLE", limit, "-", "+", 1)
        return bool(await self._caller.command("XPENDING", self._events, GROUP, *first, parse_detail=True))

    async def _plan_suspect(self) -> bool:
        await self._wait_idle()
        if self._is_stopping():
            return False
        worker = self._settings.worker
        claimed = await self._shard.claim(
            self._worker, silent=worker.plan_claim, deaths=worker.deaths, silence=worker.lease / 2
        )
        entry = claimed.entry
        if not entry:
            return False
        self._suspect = entry
        self._running.add(entry)
        log.warning("entry of a silent planner claimed", entry=entry, died_alone=claimed.fallen)
        found = await self._caller.command("XRANGE", self._events, entry, entry)
        if not found:
            self._done(entry)
        elif claimed.wait:
            self._counters.held += await self._shard.hold([_waiting(claimed, _fields(found[0][1]))])
            self._done(entry)
        else:
            await self._plan_one(entry, _fields(found[0][1]))
            await self._wait_idle()
        await self._caller.command("HDEL", self._suspects, entry)
        self._suspect = ""
        return True

    async def _wait_idle(self) -> None:
        while self._running:
            self._free.clear()
            await self._free.wait()

    async def finish(self) -> None:
        """Stops reading and waits for running plans."""
        if self._reader is not None:
            self._reader.cancel()
        await self._wait_idle()

    async def hand_back(self) -> None:
        """Makes unplanned entries claimable at once, without counting the end of this worker as a death."""
        # From here on `keep_alive` does nothing: it would make the entries look as if they were still being planned.
        self._keeps_alive = False
        mine = ("-", "+", 1000, self._worker)
        pending = await self._caller.command("XPENDING", self._events, GROUP, *mine, parse_detail=True)
        if pending:
            await self._make_claimable([entry["message_id"] for entry in pending])
        if self._suspect:
            # A dash instead of a worker's name at the end: a regular stop is no death.
            known = await self._caller.command("HGET", self._suspects, self._suspect)
            if known is not None:
                await self._caller.command("HSET", self._suspects, self._suspect, known + b" -")


def _decoded(entry: str, raw: dict[bytes, bytes]) -> Event | UnplannedEvent:
    """The event, or how an undecodable entry is stored."""
    try:
        return decode_event({name: value for name, value in raw.items() if name != ALONE})
    except NewerVersion as error:
        log.warning("event of a newer version parked", entry=entry, reason=str(error))
        return UnplannedEvent(entry, "newer", str(error))
    except Exception as error:  # noqa: BLE001  # whatever is wrong with it, the stream goes on
        log.error("event can't be read and is held", entry=entry, reason=str(error))
        return UnplannedEvent(entry, "held", mask_text(str(error)))


def _waiting(claimed: Claimed, raw: dict[bytes, bytes]) -> UnplannedEvent:
    """The held event of a deletion whose worker died while planning it alone."""
    event = _decoded(claimed.entry, raw)
    if isinstance(event, UnplannedEvent):
        return event
    times = "once" if claimed.fallen == 1 else f"{claimed.fallen} times"
    why = f"its planner died {times} while it was planned alone"
    log.error("deletion held", deletion=event.deletion, reason=why, again_in_ms=claimed.wait)
    return UnplannedEvent(
        claimed.entry, "held", why, event.deletion, list(event_fields(event)), claimed.wait, exact=True, suspect=True
    )


def _fields(raw: Any) -> dict[bytes, bytes]:
    if isinstance(raw, dict):
        return raw
    return dict(zip(raw[::2], raw[1::2], strict=True))
