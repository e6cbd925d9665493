"""Planning: events from the stream, through the planner of their source, into jobs.

Plans are written before the entry is acked; an entry whose planner died is claimed by another and planned alone. After
a death alone it waits in Redis before it is planned again, for longer and longer.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from service.contract import Event, Hold, NewerVersion, decode_event
from service.engine.arrange import Arranged, UnusablePlan, arrange
from service.engine.calls import Caller
from service.engine.connection import Client, is_away
from service.engine.engine import Shard
from service.engine.replies import Claimed
from service.engine.rows import CHUNK, Kept, PlanRow, flat, ms, rows
from service.masking import mask_text
from service.settings import Settings
from workers.handlers.registry import Registry
from workers.runtime.crew import SOLO_SPELL, Crew
from workers.runtime.tally import Tally

log = structlog.get_logger(__name__)
GROUP = "planners"
ALONE = b"alone"
"""A field of the entry, not of the event, where planners died: it is never planned beside others."""
READ = 100
BLOCK_MS = 5_000


class Planning:
    """The planners of one shard in this process."""

    def __init__(
        self,
        shard: Shard,
        blocking: Client,
        registry: Registry,
        settings: Settings,
        worker: str,
        crew: Crew,
        tally: Tally,
    ) -> None:
        self._shard, self._blocking, self._registry = shard, blocking, registry
        self._settings, self._worker, self._crew, self._tally = settings, worker, crew, tally
        self._caller: Caller = shard.caller
        self._events = shard.stem + "events"
        self._in_hand: set[str] = set()
        self._free = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._ready: list[PlanRow] = []
        self._wanted = asyncio.Event()
        self._unbegun: set[str] = set()
        self._kept = True
        self._reader: asyncio.Task[None] | None = None
        self._suspects, self._suspect = shard.stem + "suspects", ""
        self.on_loss: Callable[[], None] = lambda: None
        # Set when a planner is known to be dead: its entries can be claimed before they are silent for long.
        self.silent = asyncio.Event()

    # ---- reading

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Read and plan until the worker stops."""
        self._reader = asyncio.current_task()
        while not self._crew.stopping:
            room = self._settings.worker.planners - len(self._in_hand)
            if room <= 0 or self._claiming.locked():
                self._free.clear()
                await self._free.wait()
                continue
            entries = await self._read(min(room, READ))
            alone = [entry for entry, raw in entries if ALONE in raw]
            if alone:
                await self._offer(alone)
                entries = [(entry, raw) for entry, raw in entries if ALONE not in raw]
            self._unbegun = {entry for entry, _ in entries}
            # A suspect is planned alone: what a read that was under way brings waits until it is done.
            async with self._claiming:
                for entry, raw in entries:
                    self._begin(group, entry, raw)
                self._unbegun.clear()

    async def _read(self, count: int) -> list[tuple[str, dict[bytes, bytes]]]:
        try:
            answer = await self._blocking.execute_command(
                "XREADGROUP", "GROUP", GROUP, self._worker, "COUNT", count, "BLOCK", BLOCK_MS,
                "STREAMS", self._events, ">",
            )  # fmt: skip
        except Exception as error:
            if "NOGROUP" in str(error):
                await self.make_group()
            elif is_away(error):
                await asyncio.sleep(0.2)
            else:
                raise
            return []
        if not answer:
            return []
        found = next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
        return [(entry.decode(), _fields(raw)) for entry, raw in found]

    async def _offer(self, entries: list[str]) -> None:
        """Entries that we were given look silent at once, so that whoever has empty hands may claim them."""
        silent = ("IDLE", ms(self._settings.worker.plan_claim) + 1, "JUSTID")
        try:
            await self._caller.command(
                "XCLAIM", self._events, GROUP, self._worker, 0, *entries, *silent, parse_justid=True
            )
        except Exception as error:
            if "NOGROUP" not in str(error):
                raise
            await self.make_group()

    async def make_group(self) -> None:
        """The group begins at the first entry: what was added before anyone read is read too."""
        # It was made on arrival: that it is gone may mean that everything is.
        self.on_loss()
        try:
            await self._caller.command("XGROUP", "CREATE", self._events, GROUP, "0", "MKSTREAM")
        except Exception as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _begin(self, group: asyncio.TaskGroup, entry: str, raw: dict[bytes, bytes]) -> None:
        self._in_hand.add(entry)
        group.create_task(self._plan_one(entry, raw))

    # ---- planning

    async def _plan_one(self, entry: str, raw: dict[bytes, bytes]) -> None:
        held = await self._judge(entry, raw)
        if held is not None:
            self._tally.held += await self._shard.hold([held])
            self._done(entry)

    async def _judge(self, entry: str, raw: dict[bytes, bytes]) -> Kept | None:
        """Hand the plan to the writer, or say why the event is kept."""
        event = _decoded(entry, raw)
        if isinstance(event, Kept):
            return event
        with structlog.contextvars.bound_contextvars(deletion=event.deletion, entry=entry):
            arranged, why = await self._arrange(event)
        if isinstance(arranged, Hold):
            again, exact = self._wait(arranged)
            # Without a time at which it is looked at again it could not go on by itself.
            where = "waiting" if arranged.waits and again else "held"
            if where == "waiting":
                log.info("deletion waits", deletion=event.deletion, reason=arranged.reason)
            else:
                log.warning("deletion held", deletion=event.deletion, reason=arranged.reason, again=arranged.again)
            return Kept(entry, where, mask_text(arranged.reason), event.deletion, list(flat(event)), again, exact)
        if len(arranged.jobs) <= CHUNK:
            self._ready.extend(rows(event, entry, arranged, why))
            self._wanted.set()
        else:
            answer = await self._shard.plan_whole(event, entry, arranged, why)
            self._tally.planned += answer.state == "planned"
            log.info("planned", deletion=event.deletion, jobs=len(arranged.jobs), state=answer.state)
            await self._open()
            self._done(entry)
        return None

    def _wait(self, hold: Hold) -> tuple[int, bool]:
        """Milliseconds until it is planned again, and whether they are meant exactly."""
        if not hold.again:
            return 0, False
        return (ms(self._settings.retry.base), False) if hold.after is None else (max(1, ms(hold.after)), True)

    async def _arrange(self, event: Event) -> tuple[Arranged | Hold, str]:
        """The plan and what policy said. Whatever a planner raises is kept, where a person sees it."""
        try:
            async with asyncio.timeout(self._settings.worker.plan_timeout.total_seconds()):
                plan = await self._registry.plan(event)
            if isinstance(plan, Hold):
                return plan, ""
            return arrange(event, plan.targets, self._settings.retry.best_effort_deadline), mask_text(plan.why)
        except UnusablePlan as error:
            return Hold(str(error)), ""
        except Exception as error:
            # It may pass: the janitor has it planned again, later and later.
            log.exception("planning failed")
            return Hold(f"planning failed with {type(error).__name__}: {error}", again=True), ""

    def _done(self, entry: str) -> None:
        self._in_hand.discard(entry)
        self._free.set()

    # ---- writing

    async def write(self) -> None:
        """Plans of many deletions in one call; while it is on its way the next gather."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._ready:
                part, jobs = list[PlanRow](), 0
                while self._ready and (not part or jobs + len(self._ready[0].jobs) <= CHUNK):
                    row = self._ready.pop(0)
                    part.append(row)
                    jobs += len(row.jobs)
                answers = await self._shard.plan(part)
                stale = sum(answer.state == "stale" for answer in answers)
                self._tally.planned += len(answers) - stale
                log.debug("planned", deletions=len(part), jobs=jobs, stale=stale)
                for row in part:
                    self._done(row.entry)

    async def _open(self) -> None:
        while (await self._shard.open())[1]:
            pass

    # ---- entries of dead planners

    async def keep(self) -> None:
        """Show that our own entries are being planned, however long it takes."""
        while True:
            await asyncio.sleep(self._settings.worker.plan_claim.total_seconds() / 4)
            ids = [*self._in_hand, *self._unbegun]
            if ids and self._kept:
                try:
                    await self._caller.command(
                        "XCLAIM", self._events, GROUP, self._worker, 0, *ids, "JUSTID", parse_justid=True
                    )
                except Exception as error:
                    if "NOGROUP" not in str(error):
                        raise
                    await self.make_group()

    async def claim(self) -> None:
        """Take over entries whose planner has gone silent, one at a time, in spells: jobs under suspicion wait, too."""
        while not self._crew.stopping:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.silent.wait(), self._settings.worker.plan_claim.total_seconds() / 4)
            self.silent.clear()
            until = time.monotonic() + SOLO_SPELL
            while await self._claim_one():
                if self._leaving():
                    return
                if time.monotonic() >= until:
                    await asyncio.sleep(SOLO_SPELL / 2)
                    until = time.monotonic() + SOLO_SPELL

    def _leaving(self) -> bool:
        return self._crew.stopping

    async def _claim_one(self) -> bool:
        """Whether there was one."""
        try:
            if not await self._any_silent():
                return False
            async with self._crew.suspects, self._claiming:
                try:
                    return await self._plan_suspect()
                finally:
                    self._free.set()
        except Exception as error:
            if "NOGROUP" not in str(error):
                raise
            await self.make_group()
            return False

    async def _any_silent(self) -> bool:
        """Asked before anybody empties his hands."""
        limit = ms(self._settings.worker.plan_claim)
        first = ("IDLE", limit, "-", "+", 1)
        return bool(await self._caller.command("XPENDING", self._events, GROUP, *first, parse_detail=True))

    async def _plan_suspect(self) -> bool:
        await self._empty_hands()
        if self._leaving():
            return False
        worker = self._settings.worker
        claimed = await self._shard.claim(
            self._worker, silent=worker.plan_claim, deaths=worker.deaths, silence=worker.lease / 2
        )
        entry = claimed.entry
        if not entry:
            return False
        self._suspect = entry
        self._in_hand.add(entry)
        log.warning("entry of a silent planner claimed", entry=entry, died_alone=claimed.fallen)
        found = await self._caller.command("XRANGE", self._events, entry, entry)
        if not found:
            self._done(entry)
        elif claimed.wait:
            self._tally.held += await self._shard.hold([_waiting(claimed, _fields(found[0][1]))])
            self._done(entry)
        else:
            await self._plan_one(entry, _fields(found[0][1]))
            await self._empty_hands()
        await self._caller.command("HDEL", self._suspects, entry)
        self._suspect = ""
        return True

    async def _empty_hands(self) -> None:
        while self._in_hand:
            self._free.clear()
            await self._free.wait()

    async def finish(self) -> None:
        """Nothing more is read; what is in hand is planned before the worker goes."""
        if self._reader is not None:
            self._reader.cancel()
        await self._empty_hands()

    async def hand_back(self) -> None:
        """What was delivered to us and is not planned is made claimable at once, and not charged with our end."""
        # From here on `keep` is silent: it would make them look as if they were still being planned.
        self._kept = False
        mine = ("-", "+", 1000, self._worker)
        pending = await self._caller.command("XPENDING", self._events, GROUP, *mine, parse_detail=True)
        if pending:
            await self._offer([entry["message_id"] for entry in pending])
        if self._suspect:
            # Nobody's name stands last: our end is no death.
            known = await self._caller.command("HGET", self._suspects, self._suspect)
            if known is not None:
                await self._caller.command("HSET", self._suspects, self._suspect, known + b" -")


def _decoded(entry: str, raw: dict[bytes, bytes]) -> Event | Kept:
    """The event, or how an entry is kept that can't be read."""
    try:
        return decode_event({name: value for name, value in raw.items() if name != ALONE})
    except NewerVersion as error:
        log.warning("event of a newer version parked", entry=entry, reason=str(error))
        return Kept(entry, "newer", str(error))
    except Exception as error:  # noqa: BLE001  # whatever is wrong with it, the stream goes on
        log.error("event can't be read and is held", entry=entry, reason=str(error))
        return Kept(entry, "held", mask_text(str(error)))


def _waiting(claimed: Claimed, raw: dict[bytes, bytes]) -> Kept:
    """An event whose planner died alone with it waits, as the deletion that it is about."""
    event = _decoded(claimed.entry, raw)
    if isinstance(event, Kept):
        return event
    times = "once" if claimed.fallen == 1 else f"{claimed.fallen} times"
    why = f"its planner died {times} while it was planned alone"
    log.error("deletion held", deletion=event.deletion, reason=why, again_in_ms=claimed.wait)
    return Kept(claimed.entry, "held", why, event.deletion, list(flat(event)), claimed.wait, exact=True, suspect=True)


def _fields(raw: Any) -> dict[bytes, bytes]:
    if isinstance(raw, dict):
        return raw
    return dict(zip(raw[::2], raw[1::2], strict=True))
