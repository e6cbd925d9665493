"""Moves the data of an installation to another number of shards, with workers stopped.

Every shard is first marked, so that no worker starts meanwhile. Then everything is copied to where it belongs, the
stored count is changed, and what moved away is removed once its copy is proven there. Nothing changes while the
marks stand, so each step may be done again: whoever runs it after a crash at any point finishes it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from service.stream.belonging import EVENT, INDEXES, Belonging, is_queue, lane_of
from service.stream.engine import Shard, ms
from service.stream.installation import Installation
from service.stream.keys import Keys

STEP: Final = 500
"""Keys, members, fields or entries in one step."""

_AT_ONCE: Final = 32
# Numbers that a survey works out anew; all others in `stats` only ever grow, and are added up.
_SURVEYED: Final = frozenset(
    b"surveyed_at due queued leased oldest held aside newer open alone events paused seen".split()
)
_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]^-"})

Told = Callable[[str, int], None]


class CannotReshard(Exception):
    """Something stands in the way; the message says what, and what to do."""


class Resharded(NamedTuple):
    """`moved` are keys, members and entries that changed their shard, as far as this run had to move them."""

    before: int
    after: int
    moved: int


class _Score(NamedTuple):
    member: bytes
    score: float


@dataclass(slots=True)
class _Cargo:
    """What travels to one shard in one call."""

    hashes: list[Any] = field(default_factory=list)
    sorted: list[Any] = field(default_factory=list)
    lanes: set[bytes] = field(default_factory=set)
    events: list[Any] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class _Farewell:
    """What leaves a shard in one call."""

    keys: list[bytes] = field(default_factory=list)
    sorted: list[tuple[bytes, list[bytes]]] = field(default_factory=list)
    lanes: set[bytes] = field(default_factory=set)
    entries: list[bytes] = field(default_factory=list)


class Reshard:
    """`told` hears of every step and of how much was looked at; an exception that it raises ends the run there."""

    def __init__(self, installation: Installation, to: int, *, told: Told | None = None) -> None:
        self._installation, self._to = installation, to
        self._caller = installation.caller
        self._keys = Keys(installation.keys.prefix, to)
        self._belonging = Belonging(self._keys)
        self._told = told or (lambda _step, _count: None)
        self._before = 0
        self._moved = 0

    async def run(self, who: str) -> Resharded:
        """Raises CannotReshard before anything was changed, or after the change was undone."""
        self._before, under_way = await self._stored()
        if self._before == self._to and not under_way:
            raise CannotReshard(f"the data is kept in {self._to} shards already")
        await self._refuse_while_working()
        if not under_way:
            await self._clear_leases()
        await self._mark()
        try:
            # A worker may have come between the first look and the marks.
            await self._refuse_while_working()
            await self._clear_leases()
        except CannotReshard:
            if not under_way:
                await self._unmark()
            raise
        await self._copy_settings()
        await self._copy_all()
        await self._flip()
        while await self._sweep():
            pass
        await self._drop_shards()
        await self._finish(who)
        return Resharded(self._before, self._to, self._moved)

    # ---- what stands in the way

    async def stored(self) -> tuple[int, int]:
        """How many shards there are, and to how many a move is under way (0: none)."""
        before, under_way = await self._stored()
        return before, self._to if under_way else 0

    async def _stored(self) -> tuple[int, bool]:
        meta = self._shard(0).stem + "meta"
        count, target, before = await self._caller.command(
            "HMGET", meta, "shards", "resharding", "resharding_from"
        )
        if target is not None and int(target) != self._to:
            raise CannotReshard(
                f"a move to {int(target)} shards was begun and not finished; "
                f"run `knell reshard --to {int(target)}` first"
            )
        if target is not None:
            return int(before), True
        # Nobody has attended yet: the settings say where events were published.
        return int(count or self._installation.keys.shards), False

    async def _refuse_while_working(self) -> None:
        silence = self._installation.settings.worker.lease
        for shard in self._all():
            now = await self._server_ms(shard)
            heard = await self._caller.command(
                "ZRANGEBYSCORE", shard.stem + "workers", now - ms(silence), "+inf", "WITHSCORES", withscores=True
            )
            for name, at in heard:
                ago = max(0, now - int(at)) // 1000
                raise CannotReshard(
                    f"worker {name.decode()} was heard of {ago} s ago; stop all workers first "
                    f"(a killed one counts as stopped after {silence.total_seconds():.0f} s)"
                )

    async def _clear_leases(self) -> None:
        """Leases that ran out are given back; running ones are somebody's work."""
        settings = self._installation.settings.worker
        for shard in self._all():
            while (await shard.reclaim(deaths=settings.deaths, silence=settings.lease)).given_back:
                pass
            for lane in await self._caller.command("ZRANGE", shard.stem + "leased", 0, -1):
                held = await self._caller.command("ZCARD", shard.stem + "leases:" + lane.decode())
                if held:
                    raise CannotReshard(
                        f"{held} jobs of lane {lane.decode()} are still leased; "
                        f"try again in {settings.lease.total_seconds():.0f} s"
                    )

    # ---- marks

    async def _mark(self) -> None:
        """The first shard first: who starts asks there first."""
        for shard in self._all():
            await self._caller.command(
                "HSET", shard.stem + "meta", "resharding", self._to, "resharding_from", self._before
            )
            self._told("marked", 1)

    async def _unmark(self) -> None:
        for shard in reversed(self._all()):
            await self._caller.command("HDEL", shard.stem + "meta", "resharding", "resharding_from")

    async def _flip(self) -> None:
        for number in range(self._to):
            await self._caller.command("HSET", self._shard(number).stem + "meta", "shards", self._to)
            self._told("flipped", 1)

    async def _finish(self, who: str) -> None:
        for number in reversed(range(self._to)):
            shard = self._shard(number)
            await self._caller.move(
                "resharded", shard.stem + "meta", shard.stem, [self._to, self._before, who]
            )
            self._told("finished", 1)

    # ---- copying

    async def _copy_settings(self) -> None:
        """What holds for whole shards: pauses for all, tokens that never go back, a relist that was asked for."""
        sources = [self._shard(number) for number in range(self._before)]
        paused: dict[bytes, bytes] = {}
        fence = 0
        for shard in sources:
            paused |= await self._caller.command("HGETALL", shard.stem + "paused")
            last = await self._caller.command("HGET", shard.stem + "meta", "fence")
            fence = max(fence, int(float(last or 0)))
        for number in range(self._to):
            stem = self._shard(number).stem
            for lane, words in paused.items():
                await self._caller.command("HSETNX", stem + "paused", lane, words)
            own = await self._caller.command("HGET", stem + "meta", "fence")
            if fence > int(float(own or 0)):
                await self._caller.command("HSET", stem + "meta", "fence", fence)
        for shard in sources[self._to :]:
            await self._copy_sums(shard)
            asked = await self._caller.command("HMGET", shard.stem + "meta", "relist", "relist_why")
            if asked[0] is not None:
                meta = self._shard(shard.number % self._to).stem + "meta"
                await self._caller.command("HSET", meta, "relist", asked[0], "relist_why", asked[1] or b"")
        self._told("settings", len(sources))

    async def _copy_sums(self, shard: Shard) -> None:
        """Counts of a shard that goes are added to one that stays, once."""
        async for page in self._hash(shard, b"stats"):
            flat: list[Any] = []
            for name, value in page:
                if name.rpartition(b"/")[2] not in _SURVEYED and value.lstrip(b"-").isdigit():
                    flat += (_raw(name), int(value))
            if flat:
                # Pages of an unchanged hash may differ from run to run: each field is remembered on its own.
                sums = [[f"sum:{shard.number}:{at}", flat[at : at + 2]] for at in ()]
                sums = [
                    [_raw(b"sum:%d:" % shard.number + name), [_raw(name), int(value)]]
                    for name, value in page
                    if name.rpartition(b"/")[2] not in _SURVEYED and value.lstrip(b"-").isdigit()
                ]
                await self._move(self._shard(shard.number % self._to), "adopt", [[], [], [], [], sums])

    async def _copy_all(self) -> None:
        async for shard, names in self._scan():
            found = await self._misplaced(shard, names, every=True)
            await self._deliver(found)
            self._told("copied", len(names))

    # ---- removing

    async def _sweep(self) -> int:
        """Removes what is not in its shard, having seen its copy there; answers how much that was."""
        removed = 0
        async for shard, names in self._scan():
            removed += await self._sweep_page(shard, names)
            self._told("swept", len(names))
        return removed
