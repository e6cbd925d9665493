"""One child process of the control plane: started, waited for, frozen, ended, with a log of its own.
The log is kept over restarts, so that it also shows what happened before one."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from standins.child_process import launch
from standins.controlplane.programs import NoControlPlane

_STEP: Final = 0.02


class ControlPlaneProcess:
    """Methods block. Call `launch` from a long-lived thread: the kernel kills the process when that thread ends."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NoControlPlane(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, command: Sequence[str]) -> None:
        self._began_at = self.log.stat().st_size if self.log.exists() else 0
        self._process = launch(command, directory=self._folder, output=self.log)

    def wait_until(self, ready: Callable[[], bool], within: timedelta) -> None:
        """Raises NoControlPlane if the process ends or is not ready in time."""
        deadline = time.monotonic() + within.total_seconds()
        while not ready():
            if not self.running:
                raise NoControlPlane(f"{self.name} ended at once; the last lines of its log:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise NoControlPlane(
                    f"{self.name} is not ready after {within.total_seconds():g} s; "
                    f"the last lines of its log:\n{self.log_tail()}"
                )
            time.sleep(_STEP)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered, as with a hung host."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def end(self, grace_period: timedelta = timedelta(0)) -> None:
        """SIGTERM, and SIGKILL if it has not ended within the grace period. It has exited on return."""
        if self._process is None:
            return
        if grace_period and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_period.total_seconds())
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log_tail(self, lines: int = 15) -> str:
        """The last lines since the latest start."""
        return "\n".join(self._since_start().splitlines()[-lines:])

    def port_was_taken(self) -> bool:
        return "address already in use" in self._since_start()

    def _since_start(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(self._began_at)
                return log.read().decode(errors="replace")
        except OSError:
            return ""
