"""The last look before a destructive call: is anything paused, is the lease still ours, does the object still consent?

Checks that come at the same moment share one read, so a batch costs one round trip and not one for each job.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from service.contract import Draw, Job, place_of
from service.contract.targets import RELEASE
from service.stream.calls import Caller
from service.stream.keys import Keys
from workers.handlers.protocol import Consent, NotCleared
from workers.runtime.clock import ServerClock


class _Seen(NamedTuple):
    """`held` are the tokens of batches that this worker holds, `whole` those of batches that are held as they were
    taken, `fences` the tokens of the other jobs."""

    stop: NotCleared | None
    held: set[int]
    whole: set[int]
    fences: dict[str, float | None]
    objections: Mapping[str, Exception]


class _Reading(NamedTuple):
    """One read that is about to be sent, the tokens and the jobs whose leases it asks for, whole batches by their
    token, and the deletions whose consent."""

    task: asyncio.Task[_Seen]
    tokens: set[int]
    jobs: list[str]
    batches: dict[int, list[str]]
    deletions: set[str]


class Gate:
    """Pauses and leases of one shard, and the consent of live objects, read fresh."""

    def __init__(
        self, caller: Caller, keys: Keys, shard: int, worker: str, clock: ServerClock, consent: Consent | None = None
    ) -> None:
        self._caller, self._keys, self._clock, self._consent = caller, keys, clock, consent
        self._worker = worker
        self._stem = keys.stem(shard)
        self._waiting: dict[str, _Reading] = {}
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
        reading = self._waiting.get(lane)
        if reading is None:
            tokens, asked, batches, about = set[int](), list[str](), dict[int, list[str]](), set[str]()
            task = asyncio.ensure_future(self._read(lane, draws, tokens, asked, batches, about))
            self._reads.add(task)
            task.add_done_callback(self._over)
            reading = self._waiting[lane] = _Reading(task, tokens, asked, batches, about)
        reading.tokens.add(jobs[0].fence)
        ids = [job.id for job in jobs]
        if len(set(ids)) == of:
            reading.batches[jobs[0].fence] = ids
        else:
            reading.jobs.extend(ids)
        if self._consent is not None:
            # The release itself looks at the object that it lets go.
            reading.deletions.update(job.deletion for job in jobs if job.kind != RELEASE)
        seen = await asyncio.shield(reading.task)
        if seen.stop is not None:
            raise NotCleared(str(seen.stop), seen.stop.wait_ms)
        fence = jobs[0].fence
        if fence not in seen.held:
            raise NotCleared("the job was taken back")
        if fence not in seen.whole and any(seen.fences[job.id] != fence for job in jobs):
            raise NotCleared("the job was taken back")
        for job in jobs if seen.objections else ():
            if (objection := seen.objections.get(job.deletion)) is not None:
                raise objection.with_traceback(None)

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

    async def _read(
        self,
        lane: str,
        draws: tuple[Draw, ...],
        tokens: set[int],
        jobs: list[str],
        batches: dict[int, list[str]],
        deletions: set[str],
    ) -> _Seen:
        # Whoever asks from now on may not rely on an answer that is already on its way.
        await asyncio.sleep(0)
        self._waiting.pop(lane, None)
        # An API server may take its time: what can change in a moment, pauses and leases, is read after it.
        objections = await self._consent.objections(deletions) if self._consent is not None and deletions else {}
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
            return _Seen(NotCleared("paused by hand"), held, whole, fences, {})
        if budget:
            rest = max((float(until) for until in budget[0] if until), default=0.0) - self._clock.now_ms()
            if rest > 0:
                return _Seen(NotCleared("the budget is paused", int(rest) + 1), held, whole, fences, {})
        return _Seen(None, held, whole, fences, objections)

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
