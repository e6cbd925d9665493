"""Batch of leased jobs that a handler works on, and the set of all such batches in this process.

Leases are watched on the local clock: a batch whose lease could not be renewed is cancelled before the lease ends, so
that two workers never act on the same job.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from service.contract import Draw, Feedback, Found, Job, Pause, place_of
from service.engine.script_arguments import JobSettlement
from workers.handlers.lane_meter import LaneMeter
from workers.handlers.protocol import NotCleared
from workers.runtime.budget_feedback import UNNAMED_PAUSE, BudgetFeedback
from workers.runtime.clearance import Clearance


class LateFind(NamedTuple):
    """A job that found late targets, and its settlement once they are added."""

    job: Job
    found: Found
    settlement: JobSettlement


class LeasedBatch:
    """Implements `Batch` for handlers. `of` is the number of jobs, of any kind, taken under the same fencing token.
    `found` has the jobs that found late targets: they stay open until these are added."""

    def __init__(
        self,
        lane: str,
        jobs: Sequence[Job],
        draws: tuple[Draw, ...],
        lease_end: float,
        clearance: Clearance,
        budget_feedback: BudgetFeedback,
        of: int,
    ) -> None:
        self.lane, self.jobs, self.draws, self.of = lane, jobs, draws, of
        self.fence = jobs[0].fence
        self.lease_end = lease_end
        self._clearance, self._feedback = clearance, budget_feedback
        self.open = {job.id: job for job in jobs}
        self.lost: set[str] = set()
        self.called: set[str] = set()
        self._meter: LaneMeter | None = None
        self._unused: dict[str, float] = {}
        self.found: dict[str, LateFind] = {}
        self.reported_pause = False
        self.corrections = 0

    async def clear(self, *jobs: Job) -> None:
        if not jobs:
            return
        if time.monotonic() >= self.lease_end:
            raise NotCleared("the lease is over")
        if self.lost and any(job.id in self.lost for job in jobs):
            raise NotCleared("the job was taken back")
        await self._clearance.check(self.lane, self.draws, jobs, self.of)
        if time.monotonic() >= self.lease_end:
            raise NotCleared("the lease is over")
        self.called.update(job.id for job in jobs)

    def report_quota(self, feedback: Feedback) -> None:
        for draw in self.draws:
            if draw.limit.name == feedback.limit:
                if isinstance(feedback, Pause):
                    wait = feedback.wait.total_seconds() if feedback.wait is not None else UNNAMED_PAUSE
                    self._clearance.paused_here(self.lane, feedback.limit, time.monotonic() + wait)
                    self.reported_pause = True
                cost = draw.cost if feedback.tokens is None else feedback.tokens
                self._feedback.add(place_of(self.lane), draw.limit, feedback, cost, self.corrections)
                if isinstance(feedback, Pause):
                    self._add_suspected(feedback.others)
                return
        raise ValueError(f"lane {self.lane} does not draw on a limit named {feedback.limit!r}")

    def _add_suspected(self, others: Sequence[str]) -> None:
        for draw in self.draws:
            if draw.limit.name in others:
                self._feedback.add_suspected(place_of(self.lane), draw.limit, self.corrections)

    @property
    def meter(self) -> LaneMeter:
        if self._meter is None:
            self._meter = LaneMeter(self.draws, len(self.jobs), self.report_quota)
        return self._meter

    def unused(self, limit: str, tokens: float = 1.0) -> None:
        self._unused[limit] = self._unused.get(limit, 0.0) + tokens

    def hand_back(self, job: Job) -> None:
        """Returns the tokens of a job that is handed back; a call that may have been made has used them."""
        if job.id not in self.called:
            for draw in self.draws:
                self.unused(draw.limit.name, draw.cost)

    def returned(self) -> dict[str, float]:
        """The tokens to return when the batch has ended, by limit."""
        return self._unused if self._meter is None else self._meter.close()


class LeasedBatches:
    """All running batches of one shard in this process, with a timer for each lease."""

    def __init__(self) -> None:
        self._batches: set[LeasedBatch] = set()
        self._timers: dict[LeasedBatch, asyncio.TimerHandle] = {}
        self._tasks: dict[LeasedBatch, asyncio.Task[None]] = {}

    def begin(self, batch: LeasedBatch, task: asyncio.Task[None]) -> None:
        self._batches.add(batch)
        self._tasks[batch] = task
        self._watch(batch)

    def end(self, batch: LeasedBatch) -> None:
        self._batches.discard(batch)
        self._tasks.pop(batch, None)
        timer = self._timers.pop(batch, None)
        if timer is not None:
            timer.cancel()

    def _watch(self, batch: LeasedBatch) -> None:
        timer = self._timers.pop(batch, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        delay = max(0.0, batch.lease_end - time.monotonic())
        self._timers[batch] = loop.call_later(delay, self._stop, batch)

    def _stop(self, batch: LeasedBatch) -> None:
        task = self._tasks.get(batch)
        if task is not None:
            batch.lost.update(batch.open)
            task.cancel("the lease could not be kept")

    def wanting_renewal(self, before: float) -> list[LeasedBatch]:
        return [batch for batch in self._batches if batch.lease_end <= before and batch.open]

    def renewed(self, batch: LeasedBatch, lease_end: float, strangers: set[int]) -> None:
        if batch in self._batches:
            if batch.fence in strangers:
                self._stop(batch)
                return
            batch.lease_end = lease_end
            self._watch(batch)

    def cancel_all(self) -> None:
        """The grace period is over: running batches are cancelled and their jobs handed back."""
        for task in list(self._tasks.values()):
            task.cancel("the worker stops")
