"""The last look before a destructive call: does the object still consent, is anything paused, is the lease still ours?

The jobs of one deletion wait for the consent of its object only. Those that have it at the same moment share one read
of pauses and leases, so a batch costs a few round trips and not one for each job.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple

from service.contract import Draw, Job, place_of
from service.contract.targets import RELEASE
from service.engine.calls import Caller
from service.engine.keys import Keys
from workers.handlers.protocol import Consent, NotCleared
from workers.runtime.clock import ServerClock


class _Seen(NamedTuple):
    """`held` are the tokens of batches that this worker holds, `whole` those of batches that are held as they were
    taken, `fences` the tokens of the other jobs."""

    stop: NotCleared | None
    held: set[int]
    whole: set[int]
    fences: dict[str, float | None]


class _Reading(NamedTuple):
    """One read that is about to be sent, the tokens and the jobs whose leases it asks for, and whole batches by their
    token."""

    task: asyncio.Task[_Seen]
    tokens: set[int]
    jobs: list[str]
    batches: dict[int, list[str]]


class Gate:
    """Pauses and leases of one shard, and the consent of live objects, read fresh."""

    def __init__(
        self, caller: Caller, keys: Keys, shard: int, worker: str, clock: ServerClock, consent: Consent | None = None
    ) -> None:
        self._caller, self._keys, self._clock, self._consent = caller, keys, clock, consent
        self._worker = worker
        self._stem = keys.stem(shard)
        # By lane: the next read, and the one that is on its way.
        self._next: dict[str, _Reading] = {}
        self._now: dict[str, asyncio.Task[_Seen]] = {}
        self._reads: set[asyncio.Task[_Seen]] = set()
        self._local: dict[tuple[str, str], float] = {}

    def paused_here(self, lane: str, limit: str, until: float) -> None:
        """An answer in this process named a pause: it holds at once, before the budget has been told."""
        # A limit has the same name in every account: only that of this place is paused.
        key = place_of(lane), limit
        self._local[key] = max(self._local.get(key, 0.0), until)

    async def check(self, lane: str, draws: tuple[Draw, ...], jobs: Sequence[Job], of: int) -> None:
        """Jobs under one token, of so many that were taken under it; raises NotCleared, or what the object's owner has
        against it."""
        for draw in draws:
            rest = self._local.get((place_of(lane), draw.limit.name), 0.0) - time.monotonic()
            if rest > 0:
                raise NotCleared(f"{draw.limit.name} is paused", int(rest * 1000) + 1)
        # An API server may take its time: what can change in a moment, pauses and leases, is read after it.
        objection = await self._objection(jobs)
        seen = await asyncio.shield(self._reading(lane, draws, jobs, of))
        if seen.stop is not None:
            raise NotCleared(str(seen.stop), seen.stop.wait_ms)
        fence = jobs[0].fence
        if fence not in seen.held:
            raise NotCleared("the job was taken back")
        if fence not in seen.whole and any(seen.fences[job.id] != fence for job in jobs):
            raise NotCleared("the job was taken back")
        if objection is not None:
            raise objection.with_traceback(None)

    async def _objection(self, jobs: Sequence[Job]) -> Exception | None:
        """The first that there is. What can't even be asked raises here, and concerns these jobs alone."""
        # The handler of releases reads the object by itself.
        deletions = dict.fromkeys(job.deletion for job in jobs if job.kind != RELEASE)
        if self._consent is None or not deletions:
            return None
        found = await asyncio.gather(*map(self._consent.objection, deletions))
        return next((one for one in found if one is not None), None)

    def _reading(self, lane: str, draws: tuple[Draw, ...], jobs: Sequence[Job], of: int) -> "asyncio.Task[_Seen]":
        """The next read of this lane, which asks for these jobs as well."""
        reading = self._next.get(lane)
        if reading is None:
            tokens, asked, batches = set[int](), list[str](), dict[int, list[str]]()
            task = asyncio.ensure_future(self._read_next(lane, draws, tokens, asked, batches))
            self._reads.add(task)
            task.add_done_callback(self._over)
            reading = self._next[lane] = _Reading(task, tokens, asked, batches)
        reading.tokens.add(jobs[0].fence)
        ids = [job.id for job in jobs]
        if len(set(ids)) == of:
            reading.batches[jobs[0].fence] = ids
        else:
            reading.jobs.extend(ids)
        return reading.task

    def _over(self, task: "asyncio.Task[_Seen]") -> None:
        self._reads.discard(task)
        if not task.cancelled():
            # Whoever asked may have been called back meanwhile: then its failure is nobody's.
            task.exception()

    async def aclose(self) -> None:
        """Nobody waits any more for what is being read."""
        reads = list(self._reads)
        for task in reads:
            task.cancel()
        await asyncio.gather(*reads, return_exceptions=True)

    async def _read_next(
        self, lane: str, draws: tuple[Draw, ...], tokens: set[int], jobs: list[str], batches: dict[int, list[str]]
    ) -> _Seen:
        """One read of a lane at a time: consents arrive one by one, and all that arrive during a read share the next.
        Whoever asks while it is on its way may not rely on its answer."""
        try:
            if (before := self._now.get(lane)) is not None:
                await asyncio.wait([before])
            else:
                await asyncio.sleep(0)
        finally:
            task = self._next.pop(lane).task
        self._now[lane] = task
        try:
            return await self._read(lane, draws, tokens, jobs, batches)
        finally:
            if self._now.get(lane) is task:
                del self._now[lane]

    async def _read(
        self, lane: str, draws: tuple[Draw, ...], tokens: set[int], jobs: list[str], batches: dict[int, list[str]]
    ) -> _Seen:
        reads: list[Awaitable[Any]] = [
            self._caller.command("HMGET", self._stem + "paused", "*", lane),
            self._leases(lane, jobs, batches),
            self._held(lane, tokens),
        ]
        if draws:
            fields = [f"{draw.limit.name}|pause" for draw in draws]
            reads.append(self._caller.command("HMGET", self._keys.budget(place_of(lane)), *fields))
        by_hand, (whole, fences), held, *budget = await asyncio.gather(*reads)
        if any(by_hand):
            return _Seen(NotCleared("paused by hand"), held, whole, fences)
        if budget:
            rest = max((float(until) for until in budget[0] if until), default=0.0) - self._clock.now_ms()
            if rest > 0:
                return _Seen(NotCleared("the budget is paused", int(rest) + 1), held, whole, fences)
        return _Seen(None, held, whole, fences)

    async def _held(self, lane: str, tokens: set[int]) -> set[int]:
        """Those under which this worker holds a batch: a server that was set back may have given one to another."""
        asked = sorted(tokens)
        names = [f"{token} {lane} {self._worker}" for token in asked]
        ends = await self._caller.command("ZMSCORE", f"{self._stem}batches", *names)
        return {token for token, end in zip(asked, ends, strict=True) if end is not None}

    async def _leases(
        self, lane: str, jobs: list[str], batches: dict[int, list[str]]
    ) -> tuple[set[int], dict[str, float | None]]:
        """Which batches are held whole, and under which token each of the others is. Of a whole batch the number tells
        it, for nothing is ever added to one, and its first job that the token was not given again for others."""
        key, whole, asked = f"{self._stem}leases:{lane}", set[int](), list(jobs)
        firsts = [ids[0] for ids in batches.values()]
        reads = [self._caller.command("ZCOUNT", key, fence, fence) for fence in batches]
        if firsts or asked:
            reads.append(self._caller.command("ZMSCORE", key, *firsts, *asked))
        *counts, scores = await asyncio.gather(*reads)
        fences = dict[str, float | None](zip((*firsts, *asked), scores, strict=True))
        rest = list[str]()
        for (fence, ids), count in zip(batches.items(), counts, strict=True):
            if count == len(ids) and fences[ids[0]] == fence:
                whole.add(fence)
            else:
                rest += ids
        if rest:
            fences |= zip(rest, await self._caller.command("ZMSCORE", key, *rest), strict=True)
        return whole, fences
