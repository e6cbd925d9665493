"""Pieces of a shard that belong to another one, when the number of shards changes.

Each kind knows how it is written in its new place, how it is seen to be there, and how it leaves the old one.
All of that may be done again, and none of it takes more than a bounded step of the server's time.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec

from service.engine.belonging import EVENT, is_queue, lane_of
from service.engine.engine import Shard

T = TypeVar("T")

STEP: Final = 500
"""Keys, members, fields or entries in one call."""

_AT_ONCE: Final = 32


class Piece(Protocol):
    """`size` is how many things it is made of."""

    @property
    def size(self) -> int: ...

    async def write(self) -> None: ...

    async def is_there(self) -> bool: ...

    async def leave(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Hashes:
    """Records of deletions, and the jobs of their plans, as whole keys."""

    here: Shard
    there: Shard
    names: Sequence[bytes]

    @property
    def size(self) -> int:
        return len(self.names)

    async def write(self) -> None:
        sizes = await _sizes(self.here, self.names)
        small = [name for name, size in zip(self.names, sizes, strict=True) if 0 < size <= STEP]
        for part in _chunks(small):
            found = await gather(self.here.caller.command("HGETALL", key_of(self.here, name)) for name in part)
            await adopt(self.there, hashes=[(n, flat(pairs)) for n, pairs in zip(part, found, strict=True)])
        for name in set(self.names) - set(small):
            async for page in fields_of(self.here, name):
                await adopt(self.there, hashes=[(name, page)])

    async def is_there(self) -> bool:
        ours, theirs = await _sizes(self.here, self.names), await _sizes(self.there, self.names)
        return all(copy >= size for copy, size in zip(theirs, ours, strict=True))

    async def leave(self) -> None:
        for part in _chunks(self.names):
            await leave(self.here, keys=part)


@dataclass(frozen=True, slots=True)
class Members:
    """Members of one sorted set: an index, or one side of a lane's queue."""

    here: Shard
    there: Shard
    name: bytes
    scores: Sequence[tuple[bytes, float]]

    @property
    def size(self) -> int:
        return len(self.scores)

    async def write(self) -> None:
        flat_scores = [part for member, score in self.scores for part in (score, raw(member))]
        await adopt(self.there, members=[(self.name, flat_scores)], lanes=self._lanes)

    async def is_there(self) -> bool:
        names = [member for member, _ in self.scores]
        found = await self.there.caller.command("ZMSCORE", key_of(self.there, self.name), *names)
        return None not in found

    async def leave(self) -> None:
        await leave(self.here, members=[(self.name, [member for member, _ in self.scores])], lanes=self._lanes)

    @property
    def _lanes(self) -> list[bytes]:
        return [lane_of(self.name)] if is_queue(self.name) else []


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event that was never planned, kept whole with the reason. Its name is the id of its entry, which
    another shard may have given out as well: so it gets the number of the shard that it leaves."""

    here: Shard
    there: Shard
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
        return b"%s@%d" % (self._entry, self.here.number)

    async def write(self) -> None:
        hashes = []
        for prefix in (b"kept:", b"why:"):
            found = await self.here.caller.command("HGETALL", key_of(self.here, prefix + self._entry))
            if found:
                hashes.append((prefix + self._new_entry, flat(found)))
        place = [(self.index, [self.score, raw(EVENT + self._new_entry)])]
        await adopt(self.there, hashes=hashes, members=place)

    async def is_there(self) -> bool:
        found = await self.there.caller.command("ZSCORE", key_of(self.there, self.index), EVENT + self._new_entry)
        return found is not None

    async def leave(self) -> None:
        keys = [b"kept:" + self._entry, b"why:" + self._entry]
        await leave(self.here, keys=keys, members=[(self.index, [self.member])])


@dataclass(frozen=True, slots=True)
class Entries:
    """Events on the stream that are not planned yet, delivered or not: (entry, deletion or empty, fields)."""

    here: Shard
    there: Shard
    entries: Sequence[tuple[bytes, bytes, dict[bytes, bytes]]]

    @property
    def size(self) -> int:
        return len(self.entries)

    def _origin(self, entry: bytes) -> bytes:
        return b"%d:%s" % (self.here.number, entry)

    async def write(self) -> None:
        events = [(self._origin(entry), deletion, flat(fields)) for entry, deletion, fields in self.entries]
        await adopt(self.there, events=events)

    async def is_there(self) -> bool:
        """On the stream, and noted in its deletion's record, which came with the old entry's id."""
        origins = [self._origin(entry) for entry, _, _ in self.entries]
        moved = await self.there.caller.command("HMGET", key_of(self.there, b"moved"), *origins)
        noted = await gather(
            self.there.caller.command("HGET", key_of(self.there, b"deletion:" + deletion), "entry")
            for _, deletion, _ in self.entries
        )
        return all(entry is not None and note in (None, entry) for entry, note in zip(moved, noted, strict=True))

    async def leave(self) -> None:
        await leave(self.here, entries=[entry for entry, _, _ in self.entries])


# ---- the two moves, and how their arguments travel


async def adopt(
    there: Shard,
    *,
    hashes: Sequence[tuple[bytes, list[msgspec.Raw]]] = (),
    members: Sequence[tuple[bytes, list[Any]]] = (),
    lanes: Sequence[bytes] = (),
    events: Sequence[tuple[bytes, bytes, list[msgspec.Raw]]] = (),
    sums: Sequence[tuple[bytes, int]] = (),
    origin: int = 0,
) -> None:
    """`sums` are counts of the shard `origin`, by name."""
    args = [
        [[raw(name), fields] for name, fields in hashes],
        [[raw(name), scores] for name, scores in members],
        [raw(lane) for lane in lanes],
        [[raw(source), raw(deletion), fields] for source, deletion, fields in events],
        [[raw(b"%d:%s" % (origin, name)), [raw(name), number]] for name, number in sums],
    ]
    await there.caller.move("adopt", there.stem + "meta", there.stem, args)


async def leave(
    here: Shard,
    *,
    keys: Sequence[bytes] = (),
    members: Sequence[tuple[bytes, list[bytes]]] = (),
    lanes: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
) -> None:
    args = [
        [raw(key) for key in keys],
        [[raw(name), [raw(member) for member in gone]] for name, gone in members],
        [raw(lane) for lane in lanes],
        [raw(entry) for entry in entries],
    ]
    await here.caller.move("leave", here.stem + "meta", here.stem, args)


def raw(text: bytes) -> msgspec.Raw:
    """Any bytes as a text of msgpack: the server's decoder knows no other kind, and does not look inside."""
    return msgspec.Raw(b"\xdb" + len(text).to_bytes(4, "big") + text)


def flat(pairs: dict[bytes, bytes]) -> list[msgspec.Raw]:
    return [raw(part) for pair in pairs.items() for part in pair]


def key_of(shard: Shard, name: bytes) -> bytes:
    return shard.stem.encode() + name


async def fields_of(shard: Shard, name: bytes) -> AsyncIterator[list[msgspec.Raw]]:
    """A hash of any size, page by page."""
    cursor = 0
    while True:
        cursor, page = await shard.caller.command("HSCAN", key_of(shard, name), cursor, "COUNT", STEP)
        if page:
            yield flat(page)
        if not cursor:
            return


async def gather(calls: Iterator[Coroutine[Any, Any, T]] | Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """A bounded number at a time: connections are shared with nobody here, but they are not endless."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Coroutine[Any, Any, T]) -> T:
        async with gate:
            return await call

    return list(await asyncio.gather(*(one(call) for call in calls)))


async def _sizes(shard: Shard, names: Sequence[bytes]) -> list[int]:
    return await gather(shard.caller.command("HLEN", key_of(shard, name)) for name in names)


def _chunks(names: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(names), STEP):
        yield names[first : first + STEP]
