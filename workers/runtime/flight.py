"""A batch in the air: its jobs, their leases, and what the handler may ask of the runtime while it works.

The lease is watched on the local clock: who could not renew it stops before it ends, so that no one acts on a job
that may already be another's.
"""

import asyncio
import time
from collections.abc import Sequence

from service.contract import Draw, Feedback, Job, Pause, place_of
from workers.handlers.protocol import NotCleared
from workers.runtime.feedback import UNNAMED_PAUSE, Reports
from workers.runtime.gate import Gate


class Flight:
    """Implements `Batch` for handlers. `of` says how many jobs were taken under the same token, of whatever kind."""

    def __init__(
        self,
        lane: str,
        jobs: Sequence[Job],
        draws: tuple[Draw, ...],
        lease_end: float,
        gate: Gate,
        reports: Reports,
        of: int,
    ) -> None:
        self.lane, self.jobs, self.draws, self.of = lane, jobs, draws, of
        self.fence = jobs[0].fence
        self.lease_end = lease_end
        self._gate, self._reports = gate, reports
        self.open = {job.id: job for job in jobs}
        self.lost: set[str] = set()
        self.called: set[str] = set()
        self.returned: dict[str, float] = {}
        self.told_pause = False
        self.corrections = 0

    async def clear(self, *jobs: Job) -> None:
        if not jobs:
            return
        if time.monotonic() >= self.lease_end:
            raise NotCleared("the lease is over")
        if self.lost and any(job.id in self.lost for job in jobs):
            raise NotCleared("the job was taken back")
        await self._gate.check(self.lane, self.draws, jobs, self.of)
        if time.monotonic() >= self.lease_end:
            raise NotCleared("the lease is over")
        self.called.update(job.id for job in jobs)

    def tell(self, feedback: Feedback) -> None:
        for draw in self.draws:
            if draw.limit.name == feedback.limit:
                if isinstance(feedback, Pause):
                    wait = feedback.wait.total_seconds() if feedback.wait is not None else UNNAMED_PAUSE
                    self._gate.paused_here(self.lane, feedback.limit, time.monotonic() + wait)
                    self.told_pause = True
                cost = draw.cost if feedback.tokens is None else feedback.tokens
                self._reports.hear(place_of(self.lane), draw.limit, feedback, cost, self.corrections)
                if isinstance(feedback, Pause):
                    self._doubt(feedback.others)
                return
        raise ValueError(f"lane {self.lane} does not draw on a limit named {feedback.limit!r}")

    def _doubt(self, others: Sequence[str]) -> None:
        for draw in self.draws:
            if draw.limit.name in others:
                self._reports.doubt(place_of(self.lane), draw.limit, self.corrections)

    def unused(self, limit: str, tokens: float = 1.0) -> None:
        self.returned[limit] = self.returned.get(limit, 0.0) + tokens


class Flights:
    """All batches of one shard that are in the air in this process."""

    def __init__(self) -> None:
        self._flights: set[Flight] = set()
        self._timers: dict[Flight, asyncio.TimerHandle] = {}
        self._tasks: dict[Flight, asyncio.Task[None]] = {}

    def begin(self, flight: Flight, task: asyncio.Task[None]) -> None:
        self._flights.add(flight)
        self._tasks[flight] = task
        self._watch(flight)

    def end(self, flight: Flight) -> None:
        self._flights.discard(flight)
        self._tasks.pop(flight, None)
        timer = self._timers.pop(flight, None)
        if timer is not None:
            timer.cancel()

    def _watch(self, flight: Flight) -> None:
        timer = self._timers.pop(flight, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        delay = max(0.0, flight.lease_end - time.monotonic())
        self._timers[flight] = loop.call_later(delay, self._stop, flight)

    def _stop(self, flight: Flight) -> None:
        task = self._tasks.get(flight)
        if task is not None:
            flight.lost.update(flight.open)
            task.cancel("the lease could not be kept")

    def wanting_renewal(self, before: float) -> list[Flight]:
        return [flight for flight in self._flights if flight.lease_end <= before and flight.open]

    def renewed(self, flight: Flight, lease_end: float, strangers: set[int]) -> None:
        if flight in self._flights:
            if flight.fence in strangers:
                self._stop(flight)
                return
            flight.lease_end = lease_end
            self._watch(flight)

    def cancel_all(self) -> None:
        """The grace period is over: what is still in the air is called back, to be handed back."""
        for task in list(self._tasks.values()):
            task.cancel("the worker stops")
