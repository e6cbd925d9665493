"""A contender whose producer and worker are processes that take one order and answer with one line of JSON.

The harness starts them, waits for the line with a deadline, looks at the worker's memory and ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bench.arena import Arena
from bench.contenders.protocol import ContenderFailedError, Drain, Kind, NotSupportedError, Schedule
from bench.order import FIELDS, Order, Task

ROOT: Final = Path(__file__).resolve().parents[2]
_PARKED_FOR: Final = timedelta(days=1)
# Time for the worker to come up and for the producer to put everything in before the first job is due.
_AHEAD: Final = 6.0
_ANSWER_WITHIN: Final = 180.0
_PARK_WITHIN: Final = 900.0


class ProcessContender:
    """Subclasses say what to run; see `bench/order.py` for the order and `bench/peers/tally.py` for the
    answer."""

    name: str
    kind: Kind = "python"
    settings: str
    jobs: int
    enqueue_jobs: int
    most_parked: int = 0
    concurrency: int = 100
    cannot_schedule: str | None = None
    cannot_park: str | None = None

    def left_out(self) -> str | None:
        return None

    def version(self) -> str:
        raise NotImplementedError

    def prepare(self, announce: Callable[[str], None]) -> None:
        pass

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def enqueue(self, arena: Arena, jobs: int) -> float:
        return float(self._put(arena, "enqueue", jobs)["seconds"])

    def fill(self, arena: Arena, jobs: int) -> None:
        self.enqueue(arena, jobs)

    def drain(self, arena: Arena, jobs: int, before_end: Callable[[], None] | None = None) -> Drain:
        with self._process(self._order(arena, "drain", jobs)) as worker:
            figures = self._answer(worker, _ANSWER_WITHIN)
            if before_end is not None:
                before_end()
            return Drain(
                jobs=jobs,
                seconds=float(figures["seconds"]),
                cpu_seconds=float(figures["cpu_seconds"]),
                peak_memory=_peak_memory(worker.pid),
            )

    def lateness(self, arena: Arena, schedule: Schedule) -> list[float]:
        if self.cannot_schedule is not None:
            raise NotSupportedError(self.cannot_schedule)
        with self._process(self._order(arena, "lateness", schedule.jobs)) as worker:
            start = time.time() + _AHEAD
            self._put(arena, "schedule", schedule.jobs, start=start, gap=schedule.gap)
            if time.time() > start:
                raise ContenderFailedError(f"{self.name} was still scheduling when the first job was due")
            late = self._answer(worker, _AHEAD + schedule.seconds + _ANSWER_WITHIN)["lateness"]
        return [float(seconds) for seconds in late]

    def park(self, arena: Arena, jobs: int) -> None:
        reason = self.cannot_schedule or self.cannot_park
        if reason is not None:
            raise NotSupportedError(reason)
        start = time.time() + _PARKED_FOR.total_seconds()
        self._put(arena, "schedule", jobs, start=start, gap=0.001, within=_PARK_WITHIN)

    def _put(
        self,
        arena: Arena,
        task: Task,
        jobs: int,
        *,
        start: float = 0.0,
        gap: float = 0.0,
        within: float = _ANSWER_WITHIN,
    ) -> dict[str, Any]:
        with self._process(self._order(arena, task, jobs, start, gap)) as producer:
            figures = self._answer(producer, within)
            with contextlib.suppress(subprocess.TimeoutExpired):
                producer.wait(5)
        return figures

    def _order(self, arena: Arena, task: Task, jobs: int, start: float = 0.0, gap: float = 0.0) -> Order:
        return Order(
            task=task,
            port=arena.port,
            jobs=jobs,
            concurrency=self.concurrency,
            fields=FIELDS,
            start=start,
            gap=gap,
        )

    @contextlib.contextmanager
    def _process(self, order: Order) -> Iterator[subprocess.Popen[bytes]]:
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                [*self.command(), order.encode()],
                cwd=ROOT,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                bufsize=0,
                start_new_session=True,
            )
            try:
                yield process
            except ContenderFailedError as error:
                complaints.seek(0)
                tail = complaints.read()[-2000:].decode(errors="replace").strip()
                raise ContenderFailedError(f"{error}\n{tail}" if tail else str(error)) from error
            finally:
                # Its work is done and counted; how a peer shuts down is not measured, so it gets no time for
                # it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()

    def _answer(self, process: subprocess.Popen[bytes], within: float) -> dict[str, Any]:
        """The first line that is a JSON object; whatever else a library prints is passed over."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        deadline = time.monotonic() + within
        received = b""
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([descriptor], [], [], left)[0]:
                break
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise ContenderFailedError(f"{self.name} ended without an answer")
            *lines, received = (received + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
        raise ContenderFailedError(f"{self.name} gave no answer within {within:g} s")


def _peak_memory(pid: int) -> int | None:
    """Of the process and its descendants. Their peaks may lie at different moments, so a sum is an upper
    bound."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return None
    own = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    return own + sum(_peak_memory(child) or 0 for child in children)
