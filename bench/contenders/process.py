"""Contender whose producer and worker are processes that take one order and answer with one line of JSON.

The harness starts them, waits for the line with a deadline, reads the worker's memory and stops it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Final

from bench.bench_server import BenchServer
from bench.contenders.program import Program, running
from bench.contenders.protocol import ContenderFailedError, Drain, Kind, NotSupportedError, Schedule
from bench.contenders.unsupported import UnsupportedContender
from bench.order import FIELDS, Order, Task

_PARKED_FOR: Final = timedelta(days=1)
# Time for the worker to come up and for the producer to put everything in before the first job is due.
_AHEAD: Final = 6.0
_ANSWER_WITHIN: Final = 180.0
_PARK_WITHIN: Final = 900.0


class ProcessContender(UnsupportedContender):
    """Subclasses say what to run; see `bench/order.py` for the order and `bench/peers/tally.py` for the
    answer."""

    kind: Kind = "python"
    concurrency: int = 100
    cannot_schedule: str | None = None
    cannot_park: str | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def enqueue(self, server: BenchServer, jobs: int) -> float:
        return float(self._put(server, "enqueue", jobs)["seconds"])

    def fill(self, server: BenchServer, jobs: int) -> None:
        self.enqueue(server, jobs)

    def drain(self, server: BenchServer, jobs: int, before_end: Callable[[], None] | None = None) -> Drain:
        with self._process(self._order(server, "drain", jobs)) as worker:
            figures = worker.answer(_ANSWER_WITHIN)
            if before_end is not None:
                before_end()
            return Drain(
                jobs=jobs,
                seconds=float(figures["seconds"]),
                cpu_seconds=float(figures["cpu_seconds"]),
                peak_memory=worker.peak_memory,
            )

    def lateness(self, server: BenchServer, schedule: Schedule) -> list[float]:
        if self.cannot_schedule is not None:
            raise NotSupportedError(self.cannot_schedule)
        with self._process(self._order(server, "lateness", schedule.jobs)) as worker:
            start = time.time() + _AHEAD
            self._put(server, "schedule", schedule.jobs, start=start, gap=schedule.gap)
            if time.time() > start:
                raise ContenderFailedError(f"{self.name} was still scheduling when the first job was due")
            late = worker.answer(_AHEAD + schedule.seconds + _ANSWER_WITHIN)["lateness"]
        return [float(seconds) for seconds in late]

    def park(self, server: BenchServer, jobs: int) -> None:
        reason = self.cannot_schedule or self.cannot_park
        if reason is not None:
            raise NotSupportedError(reason)
        start = time.time() + _PARKED_FOR.total_seconds()
        self._put(server, "schedule", jobs, start=start, gap=0.001, within=_PARK_WITHIN)

    def _put(
        self,
        server: BenchServer,
        task: Task,
        jobs: int,
        *,
        start: float = 0.0,
        gap: float = 0.0,
        within: float = _ANSWER_WITHIN,
    ) -> dict[str, Any]:
        with self._process(self._order(server, task, jobs, start, gap)) as producer:
            figures = producer.answer(within)
            producer.wait(5)
        return figures

    def _order(self, server: BenchServer, task: Task, jobs: int, start: float = 0.0, gap: float = 0.0) -> Order:
        return Order(
            task=task,
            port=server.port,
            jobs=jobs,
            concurrency=self.concurrency,
            fields=FIELDS,
            start=start,
            gap=gap,
        )

    def _process(self, order: Order) -> AbstractContextManager[Program]:
        return running(self.name, [*self.command(), order.encode()], self.environment())
