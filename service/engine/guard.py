"""The guard: counts the deletions of each source in a window and holds new ones once the limit is exceeded.

The count is kept in the first shard and checked by one script, so that all planners share it.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
import structlog

from service.coalesced_reads import CoalescedReads
from service.engine.batch_reads import batch, chunks, number, server_ms, text, texts, to_datetime
from service.engine.installation import Installation
from service.engine.script_arguments import ms
from service.engine.shard import Shard
from service.engine.views.deletions import event_of
from service.engine.views.held import held_members
from service.policy.guard import PREFIX, Peak, guard_limit, held_reason, next_peak, split_guard_name
from service.settings import GuardSettings

log = structlog.get_logger(__name__)

_STEP = 500
_PEAK = "guard_owned"
_AT_ONCE = 50
_answered = msgspec.msgpack.Decoder(type=tuple[list[int], str, int, int], strict=False).decode
_released = msgspec.msgpack.Decoder(type=tuple[int], strict=False).decode


class DeletedObject(NamedTuple):
    """An object that is being deleted. `at` is its deletionTimestamp in milliseconds, 0 where there is none."""

    uid: str
    at: int


class GuardAnswer(NamedTuple):
    """`reason` says why the deletion is held; empty where it is admitted."""

    admitted: bool
    reason: str = ""


class GuardView(msgspec.Struct, frozen=True, kw_only=True):
    """The guard of one source. `counted` is the count of the window that tripped it, else of the current window.
    `limit` is None for a source that is not in the settings or whose guard is off."""

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


class Guard:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._shard = installation.shards[0]
        self._checks = CoalescedReads[tuple[str, GuardSettings], DeletedObject, dict[DeletedObject, GuardAnswer]](
            self._check
        )

    # ---- admitting

    async def admit(self, source: str, items: Sequence[DeletedObject], settings: GuardSettings) -> list[GuardAnswer]:
        """Answers in the order of `items`. Requests that arrive while a call is in flight share the next call."""
        if not settings.enabled:
            return [GuardAnswer(True)] * len(items)
        answers = await self._checks.read((source, settings), items)
        return [answers[one] for one in items]

    async def _check(
        self, key: tuple[str, GuardSettings], items: list[DeletedObject]
    ) -> dict[DeletedObject, GuardAnswer]:
        # The call serves many deletions, so it must not carry the log context of the first one.
        structlog.contextvars.clear_contextvars()
        (source, settings), asked = key, list(dict.fromkeys(items))
        owned, answers = await self._owned(source, settings), list[GuardAnswer]()
        for part in chunks(asked, _STEP):
            answers += await self._send(source, settings, part, owned)
        return dict(zip(asked, answers, strict=True))

    async def _send(
        self, source: str, settings: GuardSettings, part: Sequence[DeletedObject], owned: int | None
    ) -> list[GuardAnswer]:
        limit, why = guard_limit(settings, owned), held_reason(source, settings, owned)
        args = [source, part, limit, ms(settings.window), why]
        passed, reason, newly, counted = _answered(await self._move("guard", args))
        if newly:
            log.warning("guard tripped", source=source, reason=reason, counted=counted, limit=limit, owned=owned)
        return [GuardAnswer(True) if one else GuardAnswer(False, reason) for one in passed]

    async def _owned(self, source: str, settings: GuardSettings) -> int | None:
        """The recent peak of owned objects. If two processes write it at once, one write is lost and repeated later."""
        record = texts(await self._shard.caller.command("HGETALL", self._record(source)))
        owned = owned_by(record)
        if owned is None:
            return None
        known = peak_in(record)
        peak = next_peak(known, owned, await server_ms(self._shard), ms(settings.window))
        if peak != known:
            await self._shard.caller.command("HSET", self._record(source), _PEAK, " ".join(map(str, peak)))
        return peak.owned

    # ---- releasing

    async def release(self, source: str, who: str) -> bool:
        """Whether the guard had tripped. The held deletions are planned again by `replay`."""
        had_tripped = bool(_released(await self._move("guard_release", [source, who]))[0])
        if had_tripped:
            log.warning("guard released", source=source, who=who)
        return had_tripped

    async def held(self, source: str) -> list[HeldDeletion]:
        """The deletions of a source that its guard holds, in all shards."""
        found: list[HeldDeletion] = []
        named, orphans = self._meant(source)
        for shard in self._installation.shards:
            async for page in held_members(shard, "deletion"):
                ids = [member.name.partition(":")[2] for member in page]
                reads = [("HMGET", f"{shard.stem}deletion:{one}", "source", "held", "reason") for one in ids]
                for one, (of, why, reason) in zip(ids, await batch(shard.caller, reads), strict=True):
                    told = text(of or b""), text(reason or b"") == "orphan"
                    if told == (named, orphans) and text(why or b"").startswith(PREFIX):
                        found.append(HeldDeletion(shard, one))
        return found

    async def replay(self, found: Sequence[HeldDeletion], who: str) -> int:
        """Puts held deletions back on the stream, a few at a time; returns their number. Others are left unchanged."""
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

    # ---- status

    async def status(self) -> list[GuardView]:
        """Every source that is in the settings or was ever checked, by name."""
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
            owned = next_peak(peak_in(record), owned, now, ms(guard.window)).owned
        return GuardView(
            source=source,
            tripped=to_datetime(record.get("guard_tripped")),
            why=record.get("guard_why", ""),
            # The window that tripped the guard may be long past.
            counted=max(counted, int(number(record.get("guard_counted")))),
            limit=None if guard is None else guard_limit(guard, owned),
            owned=owned,
            held=held,
            released=to_datetime(record.get("guard_released")),
            released_by=record.get("guard_released_by", ""),
        )

    def _meant(self, name: str) -> tuple[str, bool]:
        """The source that is counted under a name, and whether the name is for its orphans."""
        return (name, False) if name in self._installation.settings.sources else split_guard_name(name)

    def _record(self, source: str) -> str:
        return f"{self._shard.stem}source:{source}"

    async def _move(self, name: str, args: object) -> bytes:
        return await self._shard.caller.move(name, self._shard.stem + "meta", self._shard.stem, args)


def owned_by(record: dict[str, str]) -> int | None:
    """The number of owned objects; a source that is watched in shares has one number for each, `owned.N`."""
    counts = [number(value) for name, value in record.items() if name == "owned" or name.startswith("owned.")]
    return int(sum(counts)) if counts else None


def peak_in(record: dict[str, str]) -> Peak | None:
    words = record.get(_PEAK, "").split()
    return Peak(*map(int, words)) if len(words) == 3 and all(word.isdecimal() for word in words) else None
