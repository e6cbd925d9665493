"""Moves the data of an installation to another number of shards, with workers stopped.

Every shard is marked first, so that no worker starts meanwhile. Then everything is copied to where it belongs,
the stored count is changed, and what moved away is removed once its copy is seen there. Nothing changes while
the marks stand, so every step may be done again: whoever runs it after a crash at any point finishes it.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple

from service.engine.belonging import EVENT, INDEXES, Belonging, is_queue
from service.engine.engine import Shard
from service.engine.installation import Installation
from service.engine.keys import Keys
from service.engine.pieces import STEP, Entries, Hashes, KeptEvent, Members, Piece, adopt, key_of
from service.engine.rows import ms

# Numbers that a survey works out anew. The others in `stats` only ever grow, and are added up.
_SURVEYED: Final = frozenset(
    b"surveyed_at due queued leased oldest held waiting aside newer open alone events paused seen".split()
)
_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]^-"})
_KEPT: Final = (b"kept:", b"why:")
_NEVER_BACK: Final = ("fence", "highest_plan", "retired_plan")
"""Numbers in `meta` that only grow: of two shards the higher one counts."""
_MOST_ROUNDS: Final = 20
# What a shard that goes leaves behind for as long as it is of use: history, and answers to repeated calls.
_LEFT_BEHIND: Final = (b"audit", b"answer:", b"meta")


class CannotReshard(Exception):
    """Something stands in the way; the message says what, and what to do."""


class Resharded(NamedTuple):
    """`moved` counts keys, members and entries that this run removed from where they had been."""

    before: int
    after: int
    moved: int


class Reshard:
    """`told` hears of every step and of how much it was; an exception that it raises ends the run there."""

    def __init__(self, installation: Installation, to: int, *, told: Callable[[str, int], None] | None = None) -> None:
        self._installation, self._to = installation, to
        self._caller = installation.caller
        self._keys = Keys(installation.keys.prefix, to)
        self._belonging = Belonging(self._keys)
        self._told = told or (lambda _step, _size: None)
        self._before = 0

    async def run(self, who: str) -> Resharded:
        """Raises CannotReshard with everything as it was."""
        self._before, under_way = await self.stored()
        if self._before == self._to and not under_way:
            raise CannotReshard(f"the data is kept in {self._to} shards already")
        await self._refuse_while_working()
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
        await self._copy()
        await self._flip()
        moved = await self._sweep_all()
        await self._drop_shards()
        await self._finish(who)
        return Resharded(self._before, self._to, moved)

    async def stored(self) -> tuple[int, bool]:
        """In how many shards the data is kept, and whether a move from there is under way."""
        meta = self._shard(0).stem + "meta"
        count, target, before = await self._caller.command("HMGET", meta, "shards", "resharding", "resharding_from")
        if target is None:
            # Where nobody has attended yet, the settings say where events were published.
            return int(count or self._installation.keys.shards), False
        if int(target) != self._to:
            raise CannotReshard(
                f"a move to {int(target)} shards was begun and not finished; "
                f"run `knell reshard --to {int(target)}` first"
            )
        return int(before), True

    # ---- what stands in the way

    async def _refuse_while_working(self) -> None:
        silence = self._installation.settings.worker.lease
        for shard in self._shards():
            now = await self._server_ms(shard)
            heard = await self._caller.command(
                "ZRANGEBYSCORE",
                shard.stem + "workers",
                now - ms(silence),
                "+inf",
                "WITHSCORES",
                withscores=True,
            )
            for name, at in heard:
                raise CannotReshard(
                    f"worker {name.decode()} was heard of {max(0, now - int(at)) // 1000} s ago; stop all "
                    f"workers first (a killed one counts as stopped after {silence.total_seconds():.0f} s)"
                )

    async def _clear_leases(self) -> None:
        """Leases that ran out are given back; one that runs is somebody's work."""
        settings = self._installation.settings.worker
        for shard in self._shards():
            while (await shard.reclaim(deaths=settings.deaths, silence=settings.lease)).given_back:
                pass
            batches = await self._caller.command("ZRANGE", shard.stem + "batches", 0, -1)
            for lane in {batch.split(b" ")[1] for batch in batches}:
                held = await self._caller.command("ZCARD", key_of(shard, b"leases:" + lane))
                if held:
                    raise CannotReshard(
                        f"{held} jobs of lane {lane.decode()} are still leased; "
                        f"try again in {settings.lease.total_seconds():.0f} s"
                    )

    # ---- marks

    async def _mark(self) -> None:
        """The first shard first: whoever starts asks there first."""
        for shard in self._shards():
            marks = ("resharding", self._to, "resharding_from", self._before)
            await self._caller.command("HSET", shard.stem + "meta", *marks)
            self._told("marked", 1)

    async def _unmark(self) -> None:
        for shard in reversed(self._shards()):
            await self._caller.command("HDEL", shard.stem + "meta", "resharding", "resharding_from")

    async def _flip(self) -> None:
        for number in range(self._to):
            await self._caller.command("HSET", self._shard(number).stem + "meta", "shards", self._to)
            self._told("flipped", 1)

    async def _finish(self, who: str) -> None:
        for number in reversed(range(self._to)):
            shard = self._shard(number)
            args = [self._to, self._before, who]
            await self._caller.move("resharded", shard.stem + "meta", shard.stem, args)
            self._told("finished", 1)

    # ---- copying and removing

    async def _copy(self) -> None:
        await self._copy_settings()
        async for shard, names in self._scan():
            async for piece in self._pieces(shard, names):
                await piece.write()
                self._told("copied", piece.size)
            self._told("scanned", len(names))
        async for entries in self._all_entries():
            await entries.write()
            self._told("copied", entries.size)

    async def _sweep_all(self) -> int:
        """Round after round, until one finds nothing any more: a failover may have hidden keys from the last one."""
        moved = 0
        for _ in range(_MOST_ROUNDS):
            removed = await self._sweep()
            moved += removed
            if not removed:
                return moved
        raise CannotReshard("there is always more to move: something still writes; stop it, and run it again")

    async def _sweep(self) -> int:
        removed = 0
        async for shard, names in self._scan():
            async for piece in self._pieces(shard, names):
                removed += await self._let_go(piece)
            self._told("scanned", len(names))
        async for entries in self._all_entries():
            removed += await self._let_go(entries)
        return removed

    async def _let_go(self, piece: Piece) -> int:
        if not await piece.is_there():
            await piece.write()
        await piece.leave()
        self._told("removed", piece.size)
        return piece.size

    async def _pieces(self, shard: Shard, names: Sequence[bytes]) -> AsyncIterator[Piece]:
        """What is in this shard, under these names, and belongs to another."""
        hashes: dict[int, list[bytes]] = {}
        for name in names:
            home = self._belonging.of_hash(name)
            if home is not None:
                hashes.setdefault(home, []).append(name)
        for home, moving in hashes.items():
            if home != shard.number:
                yield Hashes(shard, self._shard(home), moving)
        for name in names:
            if name in INDEXES or is_queue(name):
                async for piece in self._members(shard, name):
                    yield piece

    async def _all_entries(self) -> AsyncIterator[Piece]:
        """After everything else: an entry is noted in its deletion's record, which must be there."""
        for shard in self._shards():
            async for entries in self._entries(shard):
                yield entries

    async def _members(self, shard: Shard, name: bytes) -> AsyncIterator[Piece]:
        cursor = 0
        while True:
            cursor, page = await self._caller.command("ZSCAN", key_of(shard, name), cursor, "COUNT", STEP)
            homes: dict[int, list[tuple[bytes, float]]] = {}
            for member, score in page:
                if name in (b"held", b"newer") and member.startswith(EVENT):
                    kept = await self._kept(shard, name, member, score)
                    if kept is not None:
                        yield kept
                else:
                    homes.setdefault(self._belonging.of_member(name, member), []).append((member, score))
            for home, moving in homes.items():
                if home != shard.number:
                    for first in range(0, len(moving), STEP):
                        yield Members(shard, self._shard(home), name, moving[first : first + STEP])
            if not cursor:
                return

    async def _kept(self, shard: Shard, index: bytes, member: bytes, score: float) -> Piece | None:
        fields = await self._caller.command("HGETALL", key_of(shard, b"kept:" + member.removeprefix(EVENT)))
        home, _ = self._belonging.of_event(fields, shard.number)
        return None if home == shard.number else KeptEvent(shard, self._shard(home), index, member, score)

    async def _entries(self, shard: Shard) -> AsyncIterator[Piece]:
        after = b"-"
        while True:
            page = await self._caller.command("XRANGE", key_of(shard, b"events"), after, "+", "COUNT", STEP)
            homes: dict[int, list[tuple[bytes, bytes, dict[bytes, bytes]]]] = {}
            for entry, fields in page:
                home, deletion = self._belonging.of_event(fields, shard.number)
                homes.setdefault(home, []).append((entry, deletion, fields))
            for home, moving in homes.items():
                if home != shard.number:
                    yield Entries(shard, self._shard(home), moving)
            if len(page) < STEP:
                return
            after = b"(" + page[-1][0]

    # ---- what holds for a whole shard

    async def _copy_settings(self) -> None:
        """Pauses hold everywhere, fencing tokens and numbers of plans never go back, and counts and a wish for a relist
        outlive their shard."""
        sources = [self._shard(number) for number in range(self._before)]
        paused: dict[bytes, bytes] = {}
        numbers = dict.fromkeys(_NEVER_BACK, 0)
        for shard in sources:
            paused |= await self._caller.command("HGETALL", shard.stem + "paused")
            for name in numbers:
                numbers[name] = max(numbers[name], await self._number(shard, name))
        for number in range(self._to):
            stem = self._shard(number).stem
            for lane, words in paused.items():
                await self._caller.command("HSETNX", stem + "paused", lane, words)
            for name, highest in numbers.items():
                if highest > await self._number(self._shard(number), name):
                    await self._caller.command("HSET", stem + "meta", name, highest)
        for shard in sources[self._to :]:
            await self._copy_counts(shard, self._shard(shard.number % self._to))
            self._told("settings", 1)

    async def _number(self, shard: Shard, name: str) -> int:
        return int(await self._caller.command("HGET", shard.stem + "meta", name) or 0)

    async def _copy_counts(self, shard: Shard, heir: Shard) -> None:
        cursor = 0
        while True:
            cursor, page = await self._caller.command("HSCAN", shard.stem + "stats", cursor, "COUNT", STEP)
            sums = [
                (name, int(value))
                for name, value in page.items()
                if name.rpartition(b"/")[2] not in _SURVEYED and value.isdigit()
            ]
            await adopt(heir, sums=sums, origin=shard.number)
            if not cursor:
                break
        wish = await self._caller.command("HMGET", shard.stem + "meta", "relist", "relist_why")
        if wish[0] is not None:
            fields = ("relist", wish[0], "relist_why", wish[1] or b"")
            await self._caller.command("HSET", heir.stem + "meta", *fields)

    async def _drop_shards(self) -> None:
        """Shards beyond the new count have nothing left to move. Their audit stays for its retention."""
        async for shard, names in self._scan():
            if shard.number >= self._to:
                doomed = [name for name in names if not name.startswith(_LEFT_BEHIND)]
            else:
                # A kept event is moved with its place in an index; without one it is a stump of a lost write.
                kept = [name for name in names if name.startswith(_KEPT)]
                doomed = [name for name in kept if not await self._is_kept(shard, name)]
            for name in doomed:
                if self._belonging.of_hash(name) is not None or name in INDEXES or is_queue(name):
                    raise CannotReshard(f"{name.decode()} turned up late in shard {shard.number}; run it again")
                await self._caller.command("UNLINK", key_of(shard, name))
        for number in range(self._to, self._before):
            stem = self._shard(number).stem
            await self._caller.command("PEXPIRE", stem + "audit", ms(self._installation.settings.retention.audit))
            await self._caller.command("DEL", stem + "meta")
            self._told("dropped", 1)

    async def _is_kept(self, shard: Shard, name: bytes) -> bool:
        member = EVENT + name.partition(b":")[2]
        for index in (b"held", b"newer"):
            if await self._caller.command("ZSCORE", key_of(shard, index), member) is not None:
                return True
        return False

    # ---- the way around

    def _shard(self, number: int) -> Shard:
        return Shard(self._caller, self._keys, number)

    def _shards(self) -> list[Shard]:
        """All that are, or will be."""
        return [self._shard(number) for number in range(max(self._before, self._to))]

    async def _scan(self) -> AsyncIterator[tuple[Shard, list[bytes]]]:
        """Every key of every shard, in pages; what is added meanwhile may be seen or not."""
        pattern = f"{self._keys.prefix.translate(_GLOB)}:{{*}}:*"
        stub = f"{self._keys.prefix}:{{".encode()
        for options in await self._nodes():
            cursor = 0
            while True:
                cursor, found = await self._scan_step(cursor, pattern, options)
                pages: dict[int, list[bytes]] = {}
                for key in found:
                    number, brace, name = key.removeprefix(stub).partition(b"}:")
                    if brace and number.isdigit() and int(number) < max(self._before, self._to):
                        pages.setdefault(int(number), []).append(name)
                for shard, names in sorted(pages.items()):
                    yield self._shard(shard), names
                if not cursor:
                    break

    async def _scan_step(self, cursor: int, pattern: str, options: dict[str, Any]) -> tuple[int, list[bytes]]:
        cursors, keys = await self._caller.command("SCAN", cursor, "MATCH", pattern, "COUNT", 2 * STEP, **options)
        # A Cluster's client answers with a cursor for each node that was asked.
        return (next(iter(cursors.values())) if isinstance(cursors, dict) else int(cursors)), list(keys)

    async def _nodes(self) -> list[dict[str, Any]]:
        client: Any = self._caller.client
        if not hasattr(client, "get_primaries"):
            return [{}]
        await client.initialize()
        return [{"target_nodes": node} for node in client.get_primaries()]

    async def _server_ms(self, shard: Shard) -> int:
        client: Any = self._caller.client
        options: dict[str, Any] = {}
        if hasattr(client, "get_node_from_key"):
            await client.initialize()
            options["target_nodes"] = client.get_node_from_key(shard.stem + "meta")
        seconds, micros = await self._caller.command("TIME", **options)
        return int(seconds) * 1000 + int(micros) // 1000 + self._caller.offset_ms
