"""Worker processes that a scenario starts, kills and starts again, each under a name that is used once.

Kill times are those of the wall clock, which the provider's log and the server's entries use, too."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from standins.child_process import launch

ROOT = Path(__file__).resolve().parents[2]


class WorkerFailed(Exception):
    """A worker ended by itself, or did not end when it was told to."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A process was killed not before `at`, and was dead (a server: back again) not after `over`."""

    name: str
    at: float
    over: float


class WorkerProcesses:
    """All methods block for a moment only."""

    def __init__(self, directory: Path, address: str, variables: Mapping[str, str], spare: float = 0.0) -> None:
        self._directory, self._address, self._spare = directory, address, spare
        # Nothing of the caller's own configuration may reach a worker: it could name a real server.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KNELL_")}
        self._environment = {**clean, **variables}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    @property
    def names(self) -> list[str]:
        return list(self._running)

    def start(self) -> str:
        self._started += 1
        name = f"worker-{self._started}"
        self._running[name] = launch(
            [sys.executable, "-m", "tests.scenarios.worker_process", self._address, str(self._spare)],
            directory=ROOT,
            output=self._log(name),
            environment={**self._environment, "KNELL_WORKER_NAME": name},
        )
        return name

    def kill(self, name: str) -> Kill:
        """kill -9."""
        self._require_life(name)
        process = self._running.pop(name)
        at = time.time()
        process.kill()
        process.wait()
        return Kill(name, at, time.time())

    def look(self) -> None:
        """Raises WorkerFailed if a worker ended by itself."""
        for name in self._running:
            self._require_life(name)

    def stop(self, within: float = 40.0) -> None:
        """SIGTERM to all, and an orderly end of each."""
        self.look()
        deadline = time.monotonic() + within
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._running.items():
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise WorkerFailed(f"{name} did not stop within {within:g} s:\n{self._tail(name)}") from None
            if status != 0:
                raise WorkerFailed(f"{name} stopped with status {status}:\n{self._tail(name)}")
        self._running.clear()

    def end(self) -> None:
        """Leaves no process behind, whatever happened."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    def _require_life(self, name: str) -> None:
        status = self._running[name].poll()
        if status is not None:
            raise WorkerFailed(f"{name} ended by itself with status {status}:\n{self._tail(name)}")

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _tail(self, name: str) -> str:
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-15:])
