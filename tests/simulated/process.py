"""Child process that runs the simulated provider, so that killing a worker or a server never loses the provider's log.
It takes the same behaviour and seed as the server inside a process."""

import subprocess
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from standins.child_process import launch_module
from tests.simulated.behaviour import Behaviour
from tests.simulated.journal import JournalLine, read_log
from tests.simulated.provider_state import Seed

_READY_WITHIN = timedelta(seconds=20)
_STEP = 0.01


class ProviderFailed(Exception):
    """The provider's process ended, or did not say its address in time."""


class ProviderProcess:
    """Methods block for as long as they take. The seed is read before the first request."""

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        seed: Seed | None = None,
        directory: Path | None = None,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self._seed = seed
        self._temporary = tempfile.TemporaryDirectory(prefix="knell-") if directory is None else None
        self.directory = Path(self._temporary.name) if self._temporary else Path(directory or ".")
        self.log = self.directory / "provider.jsonl"
        self.address = ""

    def start(self) -> Self:
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Starts the process and returns at once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._seed is not None:
            (self.directory / "seed.json").write_bytes(msgspec.json.encode(self._seed))
        self._output = self.directory / "provider.out"
        self._process = launch_module("tests.simulated.serve", self._arguments(), output=self._output)

    def wait_until_ready(self) -> Self:
        deadline = time.monotonic() + _READY_WITHIN.total_seconds()
        while not self.ready():
            if time.monotonic() > deadline:
                raise ProviderFailed("the simulated provider did not say its address in time")
            time.sleep(_STEP)
        return self

    def ready(self) -> bool:
        """Whether the address is known; raises ProviderFailed if it never will be."""
        text = self._output.read_text(errors="replace")
        line, end, _ = text.partition("\n")
        if end and line.startswith("{"):
            self.address = msgspec.json.decode(line, type=dict[str, str])["address"]
            return True
        if self._process.poll() is not None:
            raise ProviderFailed(f"the simulated provider ended at once:\n{text}")
        return False

    @property
    def pid(self) -> int:
        return self._process.pid

    def lines(self) -> list[JournalLine]:
        """The log so far."""
        return list(read_log(self.log))

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _arguments(self) -> list[str]:
        b = self.behaviour
        low, high = (f"{bound / timedelta(milliseconds=1):g}" for bound in b.latency)
        words = ["--log", str(self.log), "--latency", f"{low}-{high}", "--errors", str(b.errors)]
        words += ["--scale", str(b.scale), "--seed", str(b.seed), "--pause", str(b.pause.total_seconds())]
        if b.quota is not None:
            words += ["--quota", f"{b.quota.kind}:{b.quota.capacity}/{b.quota.per.total_seconds()}"]
        if not b.remaining_header:
            words.append("--no-remaining-header")
        if not b.retry_after_header:
            words.append("--no-retry-after")
        if self._seed is not None:
            words += ["--seed-file", str(self.directory / "seed.json")]
        return words
