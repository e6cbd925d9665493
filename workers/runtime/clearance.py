"""Clearance check right before a destructive call: consent of the live object, pauses, and the worker's lease.

Jobs wait only for the consent of their own deletion's object. Jobs whose consent arrives at the same time share one
read of pauses and leases, so a batch costs a few round trips instead of one per job.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple

from service.coalesced_reads import CoalescedReads
from service.contract import Draw, Job, place_of
from service.contract.targets import RELEASE
from service.engine.calls import RedisCaller
from service.engine.keys import Keys
from workers.handlers.protocol import Consent, NotCleared
from workers.runtime.server_clock import ServerClock


class _Seen(NamedTuple):
    """`held` are the fencing tokens of batches that this worker holds, `whole` those of batches that still have all
    their jobs, `fences` the tokens of all other jobs."""

    stop: NotCleared | None
    held: set[int]
    whole: set[int]
    fences: dict[str, float | None]


class _LeaseCheck(NamedTuple):
    """Jobs of one fencing token whose lease is to be read; `whole` if these are all jobs of their batch."""

    draws: tuple[Draw, ...]
    fence: int
    jobs: list[str]
    whole: bool


class Clearance:
    """Reads pauses and leases of one shard, and the consent of live objects, anew for every check."""

    def __init__(
        self,
        caller: RedisCaller,
        keys: Keys,
        shard: int,
        worker: str,
        clock: ServerClock,
        consent: Consent | None = None,
    ) -> None:
        self._caller, self._keys, self._clock, self._consent = caller, keys, clock, consent
        self._worker = worker
        self._stem = keys.stem(shard)
        # By lane.
        self._reads = CoalescedReads[str, _LeaseCheck, _Seen](self._read)
        self._local: dict[tuple[str, str], float] = {}

    def paused_here(self, lane: str, limit: str, until: float) -> None:
        """A response in this process named a pause: it applies at once, before the budget is updated."""
        # A limit has the same name in every account; only this account's is paused.
        key = place_of(lane), limit
        self._local[key] = max(self._local.get(key, 0.0), until)

    async def check(self, lane: str, draws: tuple[Draw, ...], jobs: Sequence[Job], of: int) -> None:
        """Checks jobs of one fencing token; `of` is the number of jobs taken under it. Raises NotCleared, or the error
        that kept consent from being read."""
        for draw in draws:
            rest = self._local.get((place_of(lane), draw.limit.name), 0.0) - time.monotonic()
            if rest > 0:
                raise NotCleared(f"{draw.limit.name} is paused", int(rest * 1000) + 1)
        # Consent first: the API server may be slow, and pauses and leases can change at any moment.
        objection = await self._objection(jobs)
        fence, ids = jobs[0].fence, [job.id for job in jobs]
        seen = await self._reads.read(lane, [_LeaseCheck(draws, fence, ids, whole=len(set(ids)) == of)])
        if seen.stop is not None:
            raise NotCleared(str(seen.stop), seen.stop.wait_ms)
        if fence not in seen.held:
            raise NotCleared("the job was taken back")
        if fence not in seen.whole and any(seen.fences[job] != fence for job in ids):
            raise NotCleared("the job was taken back")
        if objection is not None:
            raise objection.with_traceback(None)

    async def _objection(self, jobs: Sequence[Job]) -> Exception | None:
        """The first objection of any of the jobs' deletions."""
        # The release handler reads the object by itself.
        deletions = dict.fromkeys(job.deletion for job in jobs if job.kind != RELEASE)
        if self._consent is None or not deletions:
            return None
        found = await asyncio.gather(*map(self._consent.objection, deletions))
        return next((one for one in found if one is not None), None)

    async def aclose(self) -> None:
        """Cancels all reads."""
        await self._reads.aclose()

    async def _read(self, lane: str, checks: list[_LeaseCheck]) -> _Seen:
        draws = checks[0].draws
        batches = {check.fence: check.jobs for check in checks if check.whole}
        jobs = [job for check in checks if not check.whole for job in check.jobs]
        reads: list[Awaitable[Any]] = [
            self._caller.command("HMGET", self._stem + "paused", "*", lane),
            self._leases(lane, jobs, batches),
            self._held(lane, {check.fence for check in checks}),
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
        """Tokens under which this worker holds a batch: a Redis server restored to an older state may have given the
        same token to another worker."""
        asked = sorted(tokens)
        names = [f"{token} {lane} {self._worker}" for token in asked]
        ends = await self._caller.command("ZMSCORE", f"{self._stem}batches", *names)
        return {token for token, end in zip(asked, ends, strict=True) if end is not None}

    async def _leases(
        self, lane: str, jobs: list[str], batches: dict[int, list[str]]
    ) -> tuple[set[int], dict[str, float | None]]:
        """Which batches still have all their jobs, and the tokens of all other jobs. A batch is complete if the number
        of its jobs is unchanged, because jobs are never added to one, and if its first job still has the token, because
        then the token was not given out again."""
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
