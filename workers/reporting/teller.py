"""Tells what happens as Events beside the object and as a condition on it, each only as often as the settings allow.
Notes wait in a short queue; when it is full they are counted and dropped, so that no job waits for them.

What is in the way of a deletion is read from its records whenever it may have changed, so that the condition names what
is in the way now, whichever worker came upon it.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from weakref import WeakValueDictionary

import structlog
from msgspec.structs import replace

from service.contract.names import CONDITION
from service.engine.engine import Shard
from service.engine.installation import Installation
from service.engine.keys import deletion_of
from service.engine.telling import first_to_tell, told_key
from service.engine.views.overview import pauses
from service.engine.views.progress import Progress, ending, progress
from service.engine.views.reading import chunks, members, text
from service.kubernetes import Seen
from service.kubernetes.conditions import ConditionStatus, set_condition
from service.kubernetes.events import EventType, post
from service.masking import mask_text
from service.settings import FeedbackSettings
from workers.handlers.notes import DONE, WARNINGS, Note
from workers.handlers.objects import About
from workers.handlers.places import Places
from workers.judging.records import Records
from workers.reporting.words import GOING_ON, done, in_the_way, paused

log = structlog.get_logger(__name__)

MOST = 2_000
"""Notes that may wait, and deletions that are to be looked at."""

GATHERED = 1.0
"""Seconds for which news of a deletion are gathered before it is looked at."""

AT_ONCE = 100
"""Deletions that are read together."""

REST = 2_000
"""Milliseconds for which a deletion that was looked at is not looked at again, by any worker."""

PAUSES = 1.5
"""Seconds between two looks whether everything is paused."""

TELLERS = 8
CONDITION_EVERY = 60_000
"""Milliseconds for which a condition that would say the same is not written again."""


class Teller:
    """Implements `Listener` for the worker; `tell` is what planners and handlers call."""

    def __init__(
        self,
        installation: Installation,
        settings: FeedbackSettings,
        places: Places,
        records: Records,
        *,
        most: int = MOST,
    ) -> None:
        self._installation, self._settings, self._places, self._records = installation, settings, places, records
        self._most = most
        self._notes: asyncio.Queue[Note] = asyncio.Queue(most)
        self._stale: set[str] = set()
        # By shard, what is said of a pause of everything; without one nothing.
        self._paused: dict[int, str] = {}
        # Of one object things are told in their order: the last word must be the latest.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self.dropped = 0

    # ---- hearing

    def tell(self, note: Note) -> None:
        """Only a note that is short enough to wait: the whole object is not kept for it. An orphan has no object beside
        which it could be told."""
        if note.about.orphan:
            return
        live = note.live.without_raw() if note.live is not None else None
        try:
            self._notes.put_nowait(replace(note, live=live))
        except asyncio.QueueFull:
            self._drop()

    def heard(self, job: str) -> None:
        self._look_at(deletion_of(job))

    def _look_at(self, deletion: str) -> None:
        if deletion in self._stale:
            return
        if len(self._stale) >= self._most:
            self._drop()
            return
        self._stale.add(deletion)
        self._news.set()

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:
            log.warning("more to tell than can be told", dropped=self.dropped)

    # ---- looking

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gather())
            if self._settings.conditions:
                group.create_task(self._watch_pauses())
            for _ in range(TELLERS):
                group.create_task(self._work())

    async def drained(self) -> None:
        await self._notes.join()

    async def _gather(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHERED)
            self._news.clear()
            stale, self._stale = self._stale, set()
            self._room.set()
            for part in chunks(stale, AT_ONCE):
                try:
                    await self._look(part)
                except Exception as error:  # noqa: BLE001  # as below
                    log.warning("not told", deletions=len(part), error=str(error))

    async def _look(self, deletions: Iterable[str]) -> None:
        known = await self._records.about(deletions)
        turns = await asyncio.gather(*map(self._is_turn, known.values()))
        mine = {one: about for (one, about), turn in zip(known.items(), turns, strict=True) if turn}
        for one in known.keys() - mine.keys():
            # Another look was made a moment ago, perhaps before what is news.
            self._look_at(one)
        found = await progress(self._installation, mine)
        for one, about in mine.items():
            if one in found and (note := _note(about, found[one])) is not None:
                self.tell(replace(note, looked=True))

    async def _is_turn(self, about: About) -> bool:
        key = told_key(self._installation, about.deletion, about.uid, "look")
        return bool(await self._installation.caller.command("SET", key, "1", "NX", "PX", REST))

    async def _watch_pauses(self) -> None:
        """A pause of everything, and its end, concern every open deletion; no job says so."""
        while True:
            for shard in self._installation.shards:
                try:
                    await self._look_for_pause(shard)
                except Exception as error:  # noqa: BLE001  # as below
                    log.warning("pauses not seen", shard=shard.number, error=str(error))
            await asyncio.sleep(PAUSES)

    async def _look_for_pause(self, shard: Shard) -> None:
        words = next((paused(one) for one in await pauses(shard) if one.lane == "*"), "")
        key, known = f"{shard.stem}told:pause:all", self._paused.get(shard.number)
        if known is None:
            # What the processes before this one told.
            known = text(await shard.caller.command("GET", key) or b"")
        self._paused[shard.number] = words
        if words == known:
            return
        if words:
            await shard.caller.command("SET", key, words)
        async for page in members(shard, "open"):
            for member in page:
                if len(self._stale) >= self._most:
                    self._room.clear()
                    await self._room.wait()
                self._look_at(member.name)
        if not words:
            await shard.caller.command("DEL", key)

    # ---- telling

    async def _work(self) -> None:
        while True:
            note = await self._notes.get()
            turn = self._turns.setdefault(note.about.uid, asyncio.Lock())
            try:
                async with turn:
                    await self._tell(note)
            except Exception as error:  # noqa: BLE001  # a courtesy: what it fails of must not reach the engine
                log.warning("not told", deletion=note.about.deletion, reason=note.reason, error=str(error))
            finally:
                self._notes.task_done()

    async def _tell(self, note: Note) -> None:
        place = self._places.of(note.about.source)
        if place is None:
            return
        about, every = note.about, self._settings.every
        if note.looked:
            # As it is by now: others may have told what came later while this one waited.
            found = await progress(self._installation, [about.deletion])
            now_known = _note(about, found[about.deletion]) if about.deletion in found else None
            if now_known is None:
                return
            note = now_known
        if note.reason == DONE:
            note = replace(note, message=done(await ending(self._installation, about.deletion)))
        event = (
            self._settings.events
            and note.event
            and await first_to_tell(self._installation, about.deletion, about.uid, note.reason, every)
        )
        now = self._with_pause(note)
        condition = self._settings.conditions and await self._is_new_condition(now)
        if not (event or condition):
            return
        seen = note.live or _named(about)
        served = await place.served(about.resource)
        if condition:
            status: ConditionStatus = "True" if now.reason == DONE else "False"
            message = mask_text(now.message)
            written = await set_condition(place.cluster, served, seen, CONDITION, status, now.reason, message)
            if written is None:
                await self._installation.caller.command("DEL", self._condition_key(about))
                self._look_at(about.deletion)
        if event:
            kind: EventType = "Warning" if note.reason in WARNINGS else "Normal"
            await post(place.cluster, served, seen, note.reason, mask_text(note.message), kind)

    def _with_pause(self, note: Note) -> Note:
        """As the condition has it: while everything is paused, it says so before anything else."""
        words = self._paused.get(self._installation.keys.shard_of(note.about.deletion), "")
        match note.reason if words else "":
            case "CleanupStarted":
                return replace(note, reason="CleanupPaused", message=words, same="")
            case "CleanupWaiting" | "CleanupHeld":
                same = f"{words}; {note.same or note.message}"
                reason = note.reason if note.reason == "CleanupHeld" else "CleanupPaused"
                return replace(note, reason=reason, message=f"{words}; {note.message}", same=same)
            case _:
                return note

    def _condition_key(self, about: About) -> str:
        round_ = about.deletion.rpartition("/")[2]
        return told_key(self._installation, about.deletion, about.uid, f"condition:{round_}")

    async def _is_new_condition(self, note: Note) -> bool:
        """Whether no replica has written this lately. An Event is written once per reason; a condition whenever its
        text changes, and nothing more after the end."""
        key = self._condition_key(note.about)
        said = hashlib.sha256((note.same or note.message).encode()).hexdigest()[:32]
        text = f"{note.reason} {said}".encode()
        before = await self._installation.caller.command("GET", key)
        if before == text or (before or b"").startswith(DONE.encode()):
            return False
        before = await self._installation.caller.command("SET", key, text, "PX", CONDITION_EVERY, "GET", get=True)
        return bool(before != text)


def _note(about: About, found: Progress) -> Note | None:
    """What the records say; None where there is nothing to tell, as of a deletion that is just planned or has ended."""
    match found.state:
        case "held":
            return Note(about, "CleanupHeld", found.why)
        case "waiting":
            return Note(about, "CleanupWaiting", found.why)
        case "running" | "releasing" if found.obstacles:
            held = any(one.held for one in found.obstacles)
            words, same = in_the_way(found.obstacles), in_the_way(found.obstacles, times=False)
            return Note(about, "CleanupHeld" if held else "CleanupWaiting", words, same=same)
        case "running" | "releasing":
            return Note(about, "CleanupStarted", GOING_ON, event=False)
        case _:
            return None


def _named(about: About) -> Seen:
    """As much of an object as is known without reading it; conditions read it themselves."""
    return Seen(uid=about.uid, name=about.name, namespace=about.namespace)
