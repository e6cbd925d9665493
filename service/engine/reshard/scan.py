"""Scan for data that is stored in one shard and belongs to another.

It walks the keys of all shards, those of the old count and those of the new one, and yields bounded units to move.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from service.engine.calls import RedisCaller
from service.engine.keys import Keys
from service.engine.reshard.placement import EVENT, INDEXES, ShardPlacement, is_queue
from service.engine.reshard.units import STEP, Hashes, HeldEvent, MovableUnit, SetMembers, StreamEntries, key_of
from service.engine.shard import Shard

_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]^-"})


class ShardScan:
    """`keys` are those of the new count, `shard_count` is the larger one of the two counts."""

    def __init__(self, caller: RedisCaller, keys: Keys, shard_count: int) -> None:
        self._caller, self._keys, self._shard_count = caller, keys, shard_count
        self.placement = ShardPlacement(keys)

    def shard(self, number: int) -> Shard:
        return Shard(self._caller, self._keys, number)

    def shards(self) -> list[Shard]:
        return [self.shard(number) for number in range(self._shard_count)]

    async def keys(self) -> AsyncIterator[tuple[Shard, list[bytes]]]:
        """Every key of every shard, in pages, without its prefix. A key that is added meanwhile may be missed."""
        pattern = f"{self._keys.prefix.translate(_GLOB)}:{{*}}:*"
        stub = f"{self._keys.prefix}:{{".encode()
        for options in await self._nodes():
            cursor = 0
            while True:
                cursor, found = await self._step(cursor, pattern, options)
                pages: dict[int, list[bytes]] = {}
                for key in found:
                    number, brace, name = key.removeprefix(stub).partition(b"}:")
                    if brace and number.isdigit() and int(number) < self._shard_count:
                        pages.setdefault(int(number), []).append(name)
                for shard, names in sorted(pages.items()):
                    yield self.shard(shard), names
                if not cursor:
                    break

    async def misplaced(self, shard: Shard, names: Sequence[bytes]) -> AsyncIterator[MovableUnit]:
        """What is stored in this shard under these names and belongs to another one."""
        hashes: dict[int, list[bytes]] = {}
        for name in names:
            home = self.placement.of_hash(name)
            if home is not None:
                hashes.setdefault(home, []).append(name)
        for home, moving in hashes.items():
            if home != shard.number:
                yield Hashes(shard, self.shard(home), moving)
        for name in names:
            if name in INDEXES or is_queue(name):
                async for unit in self._members(shard, name):
                    yield unit

    async def misplaced_entries(self) -> AsyncIterator[MovableUnit]:
        """Stream entries. They are moved last: an entry is noted in its deletion's record, which must be there."""
        for shard in self.shards():
            async for entries in self._entries(shard):
                yield entries

    async def _members(self, shard: Shard, name: bytes) -> AsyncIterator[MovableUnit]:
        cursor = 0
        while True:
            cursor, page = await self._caller.command("ZSCAN", key_of(shard, name), cursor, "COUNT", STEP)
            homes: dict[int, list[tuple[bytes, float]]] = {}
            for member, score in page:
                if name in (b"held", b"newer") and member.startswith(EVENT):
                    held = await self._held_event(shard, name, member, score)
                    if held is not None:
                        yield held
                else:
                    homes.setdefault(self.placement.of_member(name, member), []).append((member, score))
            for home, moving in homes.items():
                if home != shard.number:
                    for first in range(0, len(moving), STEP):
                        yield SetMembers(shard, self.shard(home), name, moving[first : first + STEP])
            if not cursor:
                return

    async def _held_event(self, shard: Shard, index: bytes, member: bytes, score: float) -> MovableUnit | None:
        fields = await self._caller.command("HGETALL", key_of(shard, b"kept:" + member.removeprefix(EVENT)))
        home, _ = self.placement.of_event(fields, shard.number)
        return None if home == shard.number else HeldEvent(shard, self.shard(home), index, member, score)

    async def _entries(self, shard: Shard) -> AsyncIterator[MovableUnit]:
        after = b"-"
        while True:
            page = await self._caller.command("XRANGE", key_of(shard, b"events"), after, "+", "COUNT", STEP)
            homes: dict[int, list[tuple[bytes, bytes, dict[bytes, bytes]]]] = {}
            for entry, fields in page:
                home, deletion = self.placement.of_event(fields, shard.number)
                homes.setdefault(home, []).append((entry, deletion, fields))
            for home, moving in homes.items():
                if home != shard.number:
                    yield StreamEntries(shard, self.shard(home), moving)
            if len(page) < STEP:
                return
            after = b"(" + page[-1][0]

    async def _step(self, cursor: int, pattern: str, options: dict[str, Any]) -> tuple[int, list[bytes]]:
        cursors, keys = await self._caller.command("SCAN", cursor, "MATCH", pattern, "COUNT", 2 * STEP, **options)
        # The Cluster client returns a cursor for each node that was asked.
        return (next(iter(cursors.values())) if isinstance(cursors, dict) else int(cursors)), list(keys)

    async def _nodes(self) -> list[dict[str, Any]]:
        client: Any = self._caller.client
        if not hasattr(client, "get_primaries"):
            return [{}]
        await client.initialize()
        return [{"target_nodes": node} for node in client.get_primaries()]
