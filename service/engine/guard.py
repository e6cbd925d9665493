"""The guard's count: how many deletions of each source were let through lately, and which sources have tripped.

It is kept in the first shard and asked by one script, so all planners share one count, and an event that was forged or
comes twice meets it like any other.
"""

import asyncio
from collections.abc import Sequence
from contextvars import Context
from datetime import datetime
from typing import NamedTuple

import msgspec
import structlog

from service.engine.engine import Shard
from service.engine.installation import Installation
from service.engine.rows import ms
from service.engine.views.deletions import event_of
from service.engine.views.held import names
from service.engine.views.reading import batch, chunks, moment, number, server_ms, text, texts
from service.policy.guard import PREFIX, Peak, held_reason, limit_of, parted, peak_of
from service.settings import GuardSettings

log = structlog.get_logger(__name__)

_STEP = 500
_PEAK = "guard_owned"
_AT_ONCE = 50
_answered = msgspec.msgpack.Decoder(type=tuple[list[int], str, int, int], strict=False).decode
_released = msgspec.msgpack.Decoder(type=tuple[int], strict=False).decode


class Going(NamedTuple):
    """An object that is going. `at` is its deletionTimestamp in milliseconds, 0 where there is none."""

    uid: str
    at: int


class Admission(NamedTuple):
    """`reason` says why it is held; empty for what is let through."""

    admitted: bool
    reason: str = ""


class GuardView(msgspec.Struct, frozen=True, kw_only=True):
    """One source's guard. `counted` is of the window that tripped it, else of the one that ends now. `limit` is None
    for a source that the settings don't know, or whose guard is off."""

    source: str
    tripped: datetime | None
    why: str
    counted: int
    limit: int | None
    owned: int | None
    held: int
    released: datetime | None
    released_by: str


class HeldDeletion(NamedTuple):
    shard: Shard
    deletion: str


class _Asked(NamedTuple):
    """One call that is about to be sent, and what it asks for."""

    task: "asyncio.Task[list[Admission]]"
    items: list[Going]


class Guard:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._shard = installation.shards[0]
        self._asked: dict[tuple[str, GuardSettings], _Asked] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    # ---- letting through

    async def admit(self, source: str, items: Sequence[Going], settings: GuardSettings) -> list[Admission]:
        """Answers in the order of `items`. While one call is on its way, what is asked meanwhile gathers."""
        if not settings.enabled:
            return [Admission(True)] * len(items)
        key = (source, settings)
        asked = self._asked.get(key)
        if asked is None:
            gathered: list[Going] = []
            # It speaks for many deletions: what the first of them has bound to its log lines is not for it.
            task = asyncio.get_running_loop().create_task(self._ask(source, settings, gathered), context=Context())
            asked = _Asked(task, gathered)
            self._asked[key] = asked
        first = len(asked.items)
        asked.items.extend(items)
        # Whoever gives up waiting must not take the others' answer with him.
        answers = await asyncio.shield(asked.task)
        return answers[first : first + len(items)]

    async def _ask(self, source: str, settings: GuardSettings, items: list[Going]) -> list[Admission]:
        answers: list[Admission] = []
        async with self._locks.setdefault(source, asyncio.Lock()):
            try:
                await asyncio.sleep(0)
            finally:
                # Whoever asks from now on may not rely on an answer that is already on its way.
                del self._asked[source, settings]
            owned = await self._owned(source, settings)
            for part in chunks(items, _STEP):
                answers += await self._send(source, settings, part, owned)
        return answers

    async def _send(
        self, source: str, settings: GuardSettings, part: Sequence[Going], owned: int | None
    ) -> list[Admission]:
        limit, why = limit_of(settings, owned), held_reason(source, settings, owned)
        args = [source, part, limit, ms(settings.window), why]
        passed, reason, newly, counted = _answered(await self._move("guard", args))
        if newly:
            log.warning("guard tripped", source=source, reason=reason, counted=counted, limit=limit, owned=owned)
        return [Admission(True) if one else Admission(False, reason) for one in passed]

    async def _owned(self, source: str, settings: GuardSettings) -> int | None:
        """At its most lately. Of two processes that note it at once one may be lost: the next one notes it again."""
        record = texts(await self._shard.caller.command("HGETALL", self._record(source)))
        owned = owned_by(record)
        if owned is None:
            return None
        known = peak_in(record)
        peak = peak_of(known, owned, await server_ms(self._shard), ms(settings.window))
        if peak != known:
            await self._shard.caller.command("HSET", self._record(source), _PEAK, " ".join(map(str, peak)))
        return peak.owned

    # ---- releasing

    async def release(self, source: str, who: str) -> bool:
        """Whether it had tripped. What it holds is planned again by `replay`."""
        had_tripped = bool(_released(await self._move("guard_release", [source, who]))[0])
        if had_tripped:
            log.warning("guard released", source=source, who=who)
        return had_tripped

    async def held(self, source: str) -> list[HeldDeletion]:
        """The deletions of a source that wait because its guard held them, in all shards."""
        found: list[HeldDeletion] = []
        named, orphans = self._meant(source)
        for shard in self._installation.shards:
            async for page in names(shard, "deletion"):
                ids = [member.name.partition(":")[2] for member in page]
                reads = [("HMGET", f"{shard.stem}deletion:{one}", "source", "held", "reason") for one in ids]
                for one, (of, why, reason) in zip(ids, await batch(shard.caller, reads), strict=True):
                    told = text(of or b""), text(reason or b"") == "orphan"
                    if told == (named, orphans) and text(why or b"").startswith(PREFIX):
                        found.append(HeldDeletion(shard, one))
        return found

    async def replay(self, found: Sequence[HeldDeletion], who: str) -> int:
        """Puts them on the stream again, a few at a time; the answer is how many. One that is no longer held stays."""
        replayed = 0
        for part in chunks(found, _AT_ONCE):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._replay(one, who)) for one in part]
            replayed += sum(task.result() for task in tasks)
        return replayed

    async def _replay(self, one: HeldDeletion, who: str) -> bool:
        event = await event_of(self._installation, one.deletion)
        if not event:
            return False
        word = await one.shard.unhold(f"deletion:{one.deletion}", replay=True, who=who, event=list(event))
        return word == "replayed"

    # ---- looking

    async def status(self) -> list[GuardView]:
        """Every source that the settings know or that was ever asked for, by name."""
        asked, cursor = set[str](), 0
        while True:
            command = ("HSCAN", self._shard.stem + "stats", cursor, "MATCH", "guard/*/tripped", "COUNT", _STEP)
            ((cursor, page),) = await batch(self._shard.caller, [command])
            asked |= {name.split("/")[1] for name in texts(page)}
            if not cursor:
                break
        now = await server_ms(self._shard)
        return [await self._view(source, now) for source in sorted({*asked, *self._installation.settings.sources})]

    async def _view(self, source: str, now: int) -> GuardView:
        stem = self._shard.stem
        (raw,) = await batch(self._shard.caller, [("HGETALL", self._record(source))])
        record = texts(raw)
        settings = self._installation.settings.sources.get(self._meant(source)[0])
        guard = settings.guard if settings is not None and settings.guard.enabled else None
        since = number(record.get("guard_from"))
        window = ms((guard or GuardSettings()).window)
        counted, held = await batch(
            self._shard.caller,
            [("ZCOUNT", f"{stem}guard:{source}", f"({now - window}", "+inf"),
             ("ZCOUNT", f"{stem}guarded:{source}", f"({since:.0f}", "+inf")],
        )  # fmt: skip
        owned = owned_by(record)
        if owned is not None and guard is not None:
            owned = peak_of(peak_in(record), owned, now, ms(guard.window)).owned
        return GuardView(
            source=source,
            tripped=moment(record.get("guard_tripped")),
            why=record.get("guard_why", ""),
            # What tripped it may have been deleted long before the window that ends now.
            counted=max(counted, int(number(record.get("guard_counted")))),
            limit=None if guard is None else limit_of(guard, owned),
            owned=owned,
            held=held,
            released=moment(record.get("guard_released")),
            released_by=record.get("guard_released_by", ""),
        )

    def _meant(self, name: str) -> tuple[str, bool]:
        """Which source is counted under a name, and whether its orphans are."""
        return (name, False) if name in self._installation.settings.sources else parted(name)

    def _record(self, source: str) -> str:
        return f"{self._shard.stem}source:{source}"

    async def _move(self, name: str, args: object) -> bytes:
        return await self._shard.caller.move(name, self._shard.stem + "meta", self._shard.stem, args)


def owned_by(record: dict[str, str]) -> int | None:
    """A source that is watched in shares has a number for each, `owned.N`."""
    counts = [number(value) for name, value in record.items() if name == "owned" or name.startswith("owned.")]
    return int(sum(counts)) if counts else None


def peak_in(record: dict[str, str]) -> Peak | None:
    words = record.get(_PEAK, "").split()
    return Peak(*map(int, words)) if len(words) == 3 and all(word.isdecimal() for word in words) else None
