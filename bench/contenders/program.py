"""Process of a contender: started with an order, asked for lines of JSON, measured from outside, and stopped.

Its cost is read from /proc, children included; where there is none, memory is not known."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.contenders.protocol import ContenderFailedError

ROOT: Final = Path(__file__).resolve().parents[2]


class Program:
    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self._name, self._process = name, process
        self._lines: list[bytes] = []
        self._rest = b""

    def answer(self, within: float) -> dict[str, Any]:
        """The next line that is a JSON object; whatever else a library prints is passed over."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + within
        while True:
            while self._lines:
                line = self._lines.pop(0)
                if line.startswith(b"{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise ContenderFailedError(f"{self._name} gave no answer within {within:g} s")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise ContenderFailedError(f"{self._name} ended without an answer")
            *self._lines, self._rest = (self._rest + chunk).split(b"\n")

    def check(self) -> None:
        """Raises ContenderFailedError if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise ContenderFailedError(f"{self._name} ended with {code} before its work was done")

    @property
    def done(self) -> bool:
        """Whether it has ended of itself, and well."""
        return self._process.poll() == 0

    def ask_to_tell(self) -> None:
        """Closes its input, which some take as the question how it went."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def end(self, sent: signal.Signals, within: float) -> None:
        """Raises ContenderFailedError if it does not end in time."""
        self._process.send_signal(sent)
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise ContenderFailedError(f"{self._name} did not end within {within:g} s of {sent.name}") from None

    def wait(self, within: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within)

    @property
    def peak_memory(self) -> int | None:
        """Largest resident size so far, in bytes."""
        return _peak_memory(self._process.pid)

    @property
    def cpu_seconds(self) -> float | None:
        """User and system time so far."""
        ticks = _cpu_ticks(self._process.pid)
        return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], environment: Mapping[str, str], *, listens: bool = False
) -> Iterator[Program]:
    """`listens` says that it reads its standard input."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            bufsize=0,
            start_new_session=True,
        )
        try:
            yield Program(name, process)
        except ContenderFailedError as error:
            complaints.seek(0)
            tail = complaints.read()[-2000:].decode(errors="replace").strip()
            raise ContenderFailedError(f"{error}\n{tail}" if tail else str(error)) from error
        finally:
            # Its work is done and counted; how a peer shuts down is not measured, so it gets no time for it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def _peak_memory(pid: int) -> int | None:
    """Of the process and its descendants. Their peaks may lie at different moments, so a sum is an upper bound."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = _children(pid)
    except OSError:
        return None
    own = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    return own + sum(_peak_memory(child) or 0 for child in children)


def _cpu_ticks(pid: int) -> int | None:
    """Of the process, its living descendants, and those that have ended."""
    try:
        # The name stands in brackets and may contain anything; the numbers follow it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = _children(pid)
    except OSError:
        return None
    return sum(int(field) for field in fields[11:15]) + sum(_cpu_ticks(child) or 0 for child in children)


def _children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
