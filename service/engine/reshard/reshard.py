"""The steps of a reshard: mark, copy, change the stored count, remove the originals, clean up.

Every shard is marked first, so that no worker starts meanwhile, and an original is removed only after its copy was
verified. Nothing else changes the data while the marks are set, so every step can be repeated: a run after a crash at
any point finishes the job.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from service.engine.batch_reads import server_ms
from service.engine.installation import Installation
from service.engine.keys import Keys
from service.engine.reshard.placement import EVENT, INDEXES, is_queue
from service.engine.reshard.scan import ShardScan
from service.engine.reshard.units import STEP, MovableUnit, import_units, key_of
from service.engine.script_arguments import ms
from service.engine.shard import Shard

# Statistics that `refresh_stats` recomputes. All others in `stats` are counters, which are added up.
_RECOMPUTED: Final = frozenset(
    b"surveyed_at due queued leased oldest held waiting aside newer open alone events paused seen".split()
)
_HELD_EVENTS: Final = (b"kept:", b"why:")
_MONOTONIC: Final = ("fence", "highest_plan", "retired_plan")
"""Numbers in `meta` that only grow: the highest one of all shards counts."""
_MOST_ROUNDS: Final = 20
# What stays in a removed shard until it expires: the audit, and answers to repeated calls.
_NOT_REMOVED: Final = (b"audit", b"answer:", b"meta")


class CannotReshard(Exception):
    """The message says what prevents the reshard and what to do about it."""


class Resharded(NamedTuple):
    """`moved` counts the keys, members and entries that this run removed from their old shards."""

    before: int
    after: int
    moved: int


class Reshard:
    """`progress` is called with the name of every step and its size; an exception raised by it ends the run."""

    def __init__(
        self, installation: Installation, to: int, *, progress: Callable[[str, int], None] | None = None
    ) -> None:
        self._installation, self._to = installation, to
        self._caller = installation.caller
        self._keys = Keys(installation.keys.prefix, to)
        self._progress = progress or (lambda _step, _size: None)
        self._before = 0
        self._scan = ShardScan(self._caller, self._keys, to)

    async def run(self, who: str) -> Resharded:
        """Raises CannotReshard, with nothing changed."""
        self._before, under_way = await self.stored()
        if self._before == self._to and not under_way:
            raise CannotReshard(f"the data is kept in {self._to} shards already")
        self._scan = ShardScan(self._caller, self._keys, max(self._before, self._to))
        await self._refuse_while_working()
        await self._clear_leases()
        await self._mark()
        try:
            # A worker may have started between the first check and the marks.
            await self._refuse_while_working()
            await self._clear_leases()
        except CannotReshard:
            if not under_way:
                await self._unmark()
            raise
        await self._copy()
        await self._change_count()
        moved = await self._remove_originals()
        await self._drop_shards()
        await self._finish(who)
        return Resharded(self._before, self._to, moved)

    async def stored(self) -> tuple[int, bool]:
        """The stored shard count, and whether a reshard from that count is under way."""
        meta = self._scan.shard(0).stem + "meta"
        count, target, before = await self._caller.command("HMGET", meta, "shards", "resharding", "resharding_from")
        if target is None:
            # Before the first worker has started, the settings say to which shards events were published.
            return int(count or self._installation.keys.shards), False
        if int(target) != self._to:
            raise CannotReshard(
                f"a move to {int(target)} shards was begun and not finished; "
                f"run `knell reshard --to {int(target)}` first"
            )
        return int(before), True

    # ---- preconditions

    async def _refuse_while_working(self) -> None:
        silence = self._installation.settings.worker.lease
        for shard in self._scan.shards():
            now = await server_ms(shard)
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
        """Reclaims expired leases. A valid lease prevents the reshard."""
        settings = self._installation.settings.worker
        for shard in self._scan.shards():
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
        """In ascending order: a starting process reads the first shard first."""
        for shard in self._scan.shards():
            marks = ("resharding", self._to, "resharding_from", self._before)
            await self._caller.command("HSET", shard.stem + "meta", *marks)
            self._progress("marked", 1)

    async def _unmark(self) -> None:
        for shard in reversed(self._scan.shards()):
            await self._caller.command("HDEL", shard.stem + "meta", "resharding", "resharding_from")

    async def _change_count(self) -> None:
        for number in range(self._to):
            await self._caller.command("HSET", self._scan.shard(number).stem + "meta", "shards", self._to)
            self._progress("flipped", 1)

    async def _finish(self, who: str) -> None:
        for number in reversed(range(self._to)):
            shard = self._scan.shard(number)
            args = [self._to, self._before, who]
            await self._caller.move("finish_reshard", shard.stem + "meta", shard.stem, args)
            self._progress("finished", 1)

    # ---- copies and originals

    async def _copy(self) -> None:
        await self._copy_shard_state()
        async for shard, names in self._scan.keys():
            async for unit in self._scan.misplaced(shard, names):
                await unit.copy()
                self._progress("copied", unit.size)
            self._progress("scanned", len(names))
        async for entries in self._scan.misplaced_entries():
            await entries.copy()
            self._progress("copied", entries.size)

    async def _remove_originals(self) -> int:
        """Repeats until a round finds nothing: a failover may have hidden keys from the round before."""
        moved = 0
        for _ in range(_MOST_ROUNDS):
            removed = await self._remove_round()
            moved += removed
            if not removed:
                return moved
        raise CannotReshard("there is always more to move: something still writes; stop it, and run it again")

    async def _remove_round(self) -> int:
        removed = 0
        async for shard, names in self._scan.keys():
            async for unit in self._scan.misplaced(shard, names):
                removed += await self._remove(unit)
            self._progress("scanned", len(names))
        async for entries in self._scan.misplaced_entries():
            removed += await self._remove(entries)
        return removed

    async def _remove(self, unit: MovableUnit) -> int:
        if not await unit.is_copied():
            await unit.copy()
        await unit.remove()
        self._progress("removed", unit.size)
        return unit.size

    # ---- state of a whole shard

    async def _copy_shard_state(self) -> None:
        """Pauses apply to every shard, fencing tokens and plan numbers never go back, and the counters and the relist
        request of a removed shard go to a remaining one."""
        sources = [self._scan.shard(number) for number in range(self._before)]
        paused: dict[bytes, bytes] = {}
        numbers = dict.fromkeys(_MONOTONIC, 0)
        for shard in sources:
            paused |= await self._caller.command("HGETALL", shard.stem + "paused")
            for name in numbers:
                numbers[name] = max(numbers[name], await self._number(shard, name))
        for number in range(self._to):
            stem = self._scan.shard(number).stem
            for lane, words in paused.items():
                await self._caller.command("HSETNX", stem + "paused", lane, words)
            for name, highest in numbers.items():
                if highest > await self._number(self._scan.shard(number), name):
                    await self._caller.command("HSET", stem + "meta", name, highest)
        for shard in sources[self._to :]:
            await self._copy_counters(shard, self._scan.shard(shard.number % self._to))
            self._progress("settings", 1)

    async def _number(self, shard: Shard, name: str) -> int:
        return int(await self._caller.command("HGET", shard.stem + "meta", name) or 0)

    async def _copy_counters(self, shard: Shard, target: Shard) -> None:
        cursor = 0
        while True:
            cursor, page = await self._caller.command("HSCAN", shard.stem + "stats", cursor, "COUNT", STEP)
            sums = [
                (name, int(value))
                for name, value in page.items()
                if name.rpartition(b"/")[2] not in _RECOMPUTED and value.isdigit()
            ]
            await import_units(target, sums=sums, origin=shard.number)
            if not cursor:
                break
        relist = await self._caller.command("HMGET", shard.stem + "meta", "relist", "relist_why")
        if relist[0] is not None:
            fields = ("relist", relist[0], "relist_why", relist[1] or b"")
            await self._caller.command("HSET", target.stem + "meta", *fields)

    async def _drop_shards(self) -> None:
        """Removes the shards beyond the new count, which hold nothing to move any more. Their audit expires later."""
        async for shard, names in self._scan.keys():
            if shard.number >= self._to:
                removed = [name for name in names if not name.startswith(_NOT_REMOVED)]
            else:
                # A held event is moved together with its index entry; one without an entry is left from a lost write.
                held = [name for name in names if name.startswith(_HELD_EVENTS)]
                removed = [name for name in held if not await self._is_indexed(shard, name)]
            for name in removed:
                if self._scan.placement.of_hash(name) is not None or name in INDEXES or is_queue(name):
                    raise CannotReshard(f"{name.decode()} turned up late in shard {shard.number}; run it again")
                await self._caller.command("UNLINK", key_of(shard, name))
        for number in range(self._to, self._before):
            stem = self._scan.shard(number).stem
            await self._caller.command("PEXPIRE", stem + "audit", ms(self._installation.settings.retention.audit))
            await self._caller.command("DEL", stem + "meta")
            self._progress("dropped", 1)

    async def _is_indexed(self, shard: Shard, name: bytes) -> bool:
        member = EVENT + name.partition(b":")[2]
        for index in (b"held", b"newer"):
            if await self._caller.command("ZSCORE", key_of(shard, index), member) is not None:
                return True
        return False
