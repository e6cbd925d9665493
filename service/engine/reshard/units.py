"""Units of data that a reshard moves from one shard to another.

Each kind can be copied, checked for its copy, and removed from its old shard. All three can be repeated, and none takes
more than a bounded step of the server's time.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec

from service.engine.reshard.placement import EVENT, is_queue, lane_of
from service.engine.shard import Shard

T = TypeVar("T")

STEP: Final = 500
"""Keys, members, fields or entries in one call."""

_AT_ONCE: Final = 32


class MovableUnit(Protocol):
    """`size` is its number of keys, members or entries."""

    @property
    def size(self) -> int: ...

    async def copy(self) -> None: ...

    async def is_copied(self) -> bool: ...

    async def remove(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Hashes:
    """Hashes of deletions and of the jobs of their plans, as whole keys."""

    source: Shard
    target: Shard
    names: Sequence[bytes]

    @property
    def size(self) -> int:
        return len(self.names)

    async def copy(self) -> None:
        sizes = await _sizes(self.source, self.names)
        small = [name for name, size in zip(self.names, sizes, strict=True) if 0 < size <= STEP]
        for part in _chunks(small):
            found = await gather_bounded(
                self.source.caller.command("HGETALL", key_of(self.source, name)) for name in part
            )
            await import_units(
                self.target, hashes=[(n, pack_fields(pairs)) for n, pairs in zip(part, found, strict=True)]
            )
        for name in set(self.names) - set(small):
            async for page in fields_of(self.source, name):
                await import_units(self.target, hashes=[(name, page)])

    async def is_copied(self) -> bool:
        ours, theirs = await _sizes(self.source, self.names), await _sizes(self.target, self.names)
        return all(copy >= size for copy, size in zip(theirs, ours, strict=True))

    async def remove(self) -> None:
        for part in _chunks(self.names):
            await remove_units(self.source, keys=part)


@dataclass(frozen=True, slots=True)
class SetMembers:
    """Members of one sorted set: an index, or one side of a lane's queue."""

    source: Shard
    target: Shard
    name: bytes
    scores: Sequence[tuple[bytes, float]]

    @property
    def size(self) -> int:
        return len(self.scores)

    async def copy(self) -> None:
        flat_scores = [part for member, score in self.scores for part in (score, pack_bytes(member))]
        await import_units(self.target, members=[(self.name, flat_scores)], lanes=self._lanes)

    async def is_copied(self) -> bool:
        names = [member for member, _ in self.scores]
        found = await self.target.caller.command("ZMSCORE", key_of(self.target, self.name), *names)
        return None not in found

    async def remove(self) -> None:
        await remove_units(self.source, members=[(self.name, [member for member, _ in self.scores])], lanes=self._lanes)

    @property
    def _lanes(self) -> list[bytes]:
        return [lane_of(self.name)] if is_queue(self.name) else []


@dataclass(frozen=True, slots=True)
class HeldEvent:
    """An event that was never planned, stored whole with the reason. It is named by its stream entry id, which another
    shard may have assigned as well, so the number of its old shard is appended."""

    source: Shard
    target: Shard
    index: bytes
    member: bytes
    score: float

    @property
    def size(self) -> int:
        return 1

    @property
    def _entry(self) -> bytes:
        return self.member.removeprefix(EVENT)

    @property
    def _new_entry(self) -> bytes:
        return b"%s@%d" % (self._entry, self.source.number)

    async def copy(self) -> None:
        hashes = []
        for prefix in (b"kept:", b"why:"):
            found = await self.source.caller.command("HGETALL", key_of(self.source, prefix + self._entry))
            if found:
                hashes.append((prefix + self._new_entry, pack_fields(found)))
        place = [(self.index, [self.score, pack_bytes(EVENT + self._new_entry)])]
        await import_units(self.target, hashes=hashes, members=place)

    async def is_copied(self) -> bool:
        found = await self.target.caller.command("ZSCORE", key_of(self.target, self.index), EVENT + self._new_entry)
        return found is not None

    async def remove(self) -> None:
        keys = [b"kept:" + self._entry, b"why:" + self._entry]
        await remove_units(self.source, keys=keys, members=[(self.index, [self.member])])


@dataclass(frozen=True, slots=True)
class StreamEntries:
    """Stream entries of events that are not planned yet, delivered or not: (entry, deletion or empty, fields)."""

    source: Shard
    target: Shard
    entries: Sequence[tuple[bytes, bytes, dict[bytes, bytes]]]

    @property
    def size(self) -> int:
        return len(self.entries)

    def _origin(self, entry: bytes) -> bytes:
        return b"%d:%s" % (self.source.number, entry)

    async def copy(self) -> None:
        events = [(self._origin(entry), deletion, pack_fields(fields)) for entry, deletion, fields in self.entries]
        await import_units(self.target, events=events)

    async def is_copied(self) -> bool:
        """Whether it is on the stream and in its deletion's record, which was copied with the id of the old entry."""
        origins = [self._origin(entry) for entry, _, _ in self.entries]
        moved = await self.target.caller.command("HMGET", key_of(self.target, b"moved"), *origins)
        noted = await gather_bounded(
            self.target.caller.command("HGET", key_of(self.target, b"deletion:" + deletion), "entry")
            for _, deletion, _ in self.entries
        )
        return all(entry is not None and note in (None, entry) for entry, note in zip(moved, noted, strict=True))

    async def remove(self) -> None:
        await remove_units(self.source, entries=[entry for entry, _, _ in self.entries])


# ---- the two scripts, and the encoding of their arguments


async def import_units(
    target: Shard,
    *,
    hashes: Sequence[tuple[bytes, list[msgspec.Raw]]] = (),
    members: Sequence[tuple[bytes, list[Any]]] = (),
    lanes: Sequence[bytes] = (),
    events: Sequence[tuple[bytes, bytes, list[msgspec.Raw]]] = (),
    sums: Sequence[tuple[bytes, int]] = (),
    origin: int = 0,
) -> None:
    """`sums` are counters of the shard `origin`, by name."""
    args = [
        [[pack_bytes(name), fields] for name, fields in hashes],
        [[pack_bytes(name), scores] for name, scores in members],
        [pack_bytes(lane) for lane in lanes],
        [[pack_bytes(old_entry), pack_bytes(deletion), fields] for old_entry, deletion, fields in events],
        [[pack_bytes(b"%d:%s" % (origin, name)), [pack_bytes(name), number]] for name, number in sums],
    ]
    await target.caller.move("import_units", target.stem + "meta", target.stem, args)


async def remove_units(
    source: Shard,
    *,
    keys: Sequence[bytes] = (),
    members: Sequence[tuple[bytes, list[bytes]]] = (),
    lanes: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
) -> None:
    args = [
        [pack_bytes(key) for key in keys],
        [[pack_bytes(name), [pack_bytes(member) for member in gone]] for name, gone in members],
        [pack_bytes(lane) for lane in lanes],
        [pack_bytes(entry) for entry in entries],
    ]
    await source.caller.move("remove_units", source.stem + "meta", source.stem, args)


def pack_bytes(text: bytes) -> msgspec.Raw:
    """Any bytes as a msgpack string, the only type that the server's decoder turns into a Lua string unchanged."""
    return msgspec.Raw(b"\xdb" + len(text).to_bytes(4, "big") + text)


def pack_fields(pairs: dict[bytes, bytes]) -> list[msgspec.Raw]:
    return [pack_bytes(part) for pair in pairs.items() for part in pair]


def key_of(shard: Shard, name: bytes) -> bytes:
    return shard.stem.encode() + name


async def fields_of(shard: Shard, name: bytes) -> AsyncIterator[list[msgspec.Raw]]:
    """A hash of any size, page by page."""
    cursor = 0
    while True:
        cursor, page = await shard.caller.command("HSCAN", key_of(shard, name), cursor, "COUNT", STEP)
        if page:
            yield pack_fields(page)
        if not cursor:
            return


async def gather_bounded(calls: Iterator[Coroutine[Any, Any, T]] | Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs a bounded number of calls at a time, since the number of connections is limited."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Coroutine[Any, Any, T]) -> T:
        async with gate:
            return await call

    return list(await asyncio.gather(*(one(call) for call in calls)))


async def _sizes(shard: Shard, names: Sequence[bytes]) -> list[int]:
    return await gather_bounded(shard.caller.command("HLEN", key_of(shard, name)) for name in names)


def _chunks(names: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(names), STEP):
        yield names[first : first + STEP]
