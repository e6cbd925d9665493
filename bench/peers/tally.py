"""Counter of finished no-op jobs inside a worker process; it prints the one line of JSON that the harness waits for.

The same clock for every Python peer: from the end of the first job to the end of the last, start-up not
included."""

from __future__ import annotations

import itertools
import json
import resource
import sys
import time

from bench.order import Order


def answer(**figures: object) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Tally:
    """Told of each job as it runs; safe to be told from several threads."""

    def __init__(self, order: Order) -> None:
        self._jobs = order.jobs
        self._wants_lateness = order.task == "lateness"
        self._late: list[float] = []
        self._numbers = itertools.count(1)  # next() is atomic, a lock per job would be charged to the peer
        self._first_seconds = 0.0
        self._first_cpu = 0.0

    def ran(self, due: float | None = None) -> None:
        if due is not None:
            self._late.append(time.time() - due)
        number = next(self._numbers)
        if number == 1:
            self._first_cpu = _cpu_seconds()
            self._first_seconds = time.perf_counter()
        if number == self._jobs:
            self._finish()

    def _finish(self) -> None:
        seconds = time.perf_counter() - self._first_seconds
        cpu_seconds = _cpu_seconds() - self._first_cpu
        if self._wants_lateness:
            answer(lateness=self._late)
        else:
            answer(seconds=seconds, cpu_seconds=cpu_seconds)
