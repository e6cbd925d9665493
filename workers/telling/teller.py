"""Tells what happens as Events beside the object and as a condition on it, each only as often as the settings allow.
What is to be told waits in a short queue; when it is full, it is counted and dropped, for nobody waits for it here."""

import asyncio
import time
from weakref import WeakValueDictionary

import structlog
from msgspec.structs import replace

from service.cluster import Seen
from service.cluster.conditions import ConditionStatus, set_condition
from service.cluster.events import EventType, post
from service.contract.names import CONDITION
from service.settings import FeedbackSettings
from service.stream.installation import Installation
from service.stream.keys import deletion_of
from service.stream.telling import first_to_tell, told_key
from service.stream.views.deletions import one_deletion
from workers.handlers.notes import DONE, WARNINGS, Note, Reason
from workers.handlers.objects import About
from workers.handlers.places import Places
from workers.judging.records import Records
from workers.telling.words import Waiting, done, waited_for, waiting_of

log = structlog.get_logger(__name__)

MOST = 2_000
"""Notes that may wait, and deletions whose waiting jobs are gathered."""

NAMES = 1_000
"""Waiting jobs remembered of one deletion between two tellings."""

GATHERED = 1.0
"""Seconds for which waiting jobs are gathered, so that one sentence names them all."""

TELLERS = 8
CONDITION_EVERY = 60_000
"""Milliseconds for which a condition with the same reason is not written again."""


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
        self._heard: dict[str, dict[str, Waiting]] = {}
        # Of one object things are told in their order: the last word must be the latest.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._news = asyncio.Event()
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

    def heard(self, job: str, kind: str, record: str, delay: int) -> None:
        deletion = deletion_of(job)
        jobs = self._heard.get(deletion)
        if jobs is None:
            if len(self._heard) >= self._most:
                self._drop()
                return
            jobs = self._heard[deletion] = {}
            self._news.set()
        if len(jobs) < NAMES:
            waiting = waiting_of(kind, record, int(time.time() * 1000) + delay)
            if waiting is not None:
                jobs[job] = waiting

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:
            log.warning("more to tell than can be told", dropped=self.dropped)

    # ---- telling

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gather())
            for _ in range(TELLERS):
                group.create_task(self._work())

    async def drained(self) -> None:
        await self._notes.join()

    async def _gather(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHERED)
            self._news.clear()
            heard, self._heard = self._heard, {}
            try:
                known = await self._records.about(heard)
            except Exception as error:  # noqa: BLE001  # as below
                log.warning("not told", deletions=len(heard), error=str(error))
                continue
            for deletion, about in known.items():
                for note in _notes(about, list(heard[deletion].values())):
                    self.tell(note)

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
        event = self._settings.events and await first_to_tell(
            self._installation, about.deletion, about.uid, note.reason, every
        )
        condition = self._settings.conditions and await self._is_new_condition(note)
        if not (event or condition):
            return
        message = note.message
        if note.reason == DONE:
            message = done(await one_deletion(self._installation, note.about.deletion))
        seen = note.live or _named(about)
        served = await place.served(about.resource)
        if condition:
            status: ConditionStatus = "True" if note.reason == DONE else "False"
            await set_condition(place.cluster, served, seen, CONDITION, status, note.reason, message)
        if event:
            kind: EventType = "Warning" if note.reason in WARNINGS else "Normal"
            await post(place.cluster, served, seen, note.reason, message, kind)

    async def _is_new_condition(self, note: Note) -> bool:
        """Whether nobody, in any replica, told this lately. An Event is told once per reason; a condition whenever its
        reason changes."""
        key = told_key(self._installation, note.about.deletion, note.about.uid, "condition")
        before = await self._installation.caller.command(
            "SET", key, note.reason, "PX", CONDITION_EVERY, "GET", get=True
        )  # fmt: skip
        return bool(before != note.reason.encode())


def _notes(about: About, waiting: list[Waiting]) -> list[Note]:
    """What is held, by a person's or a policy's word or after too many failures, is told apart from what is in use."""
    parts: dict[Reason, list[Waiting]] = {}
    for one in waiting:
        parts.setdefault("CleanupWaiting" if one.kind == "blocked" else "CleanupHeld", []).append(one)
    return [Note(about, reason, waited_for(found)) for reason, found in parts.items()]


def _named(about: About) -> Seen:
    """As much of an object as is known without reading it; conditions read it themselves."""
    return Seen(uid=about.uid, name=about.name, namespace=about.namespace)
