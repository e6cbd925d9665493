"""The processes of the demo: an embedded server, the simulated provider, workers to be killed, and somebody
else who draws on the same quota. All of them end with the demo, however it ends."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp

from service.local.demo.invention import Invented
from service.local.provider import ProviderProcess
from service.local.servers import Server
from service.local.servers.process import launch
from service.settings import Settings, load

# What a real installation sets in minutes is set in seconds here, so that a demo of half a minute shows it.
_PACE: Final = {
    "KNELL_REDIS_CALL_TIMEOUT": "2s",
    "KNELL_WORKER_LEASE": "4s",
    "KNELL_WORKER_ATTEMPT_TIMEOUT": "3s",
    "KNELL_WORKER_PLAN_CLAIM": "4s",
    "KNELL_WORKER_GRACE": "3s",
    "KNELL_WORKER_CONCURRENCY": "48",
    "KNELL_RETRY_BASE": "200ms",
    "KNELL_RETRY_CAP": "2s",
    "KNELL_RETRY_BLOCKED_BASE": "400ms",
    "KNELL_RETRY_BLOCKED_CAP": "1500ms",
    "KNELL_RETRY_BEST_EFFORT_DEADLINE": "8s",
}
_GREED: Final = 3
"""Tokens that the other user takes at a time."""


class Troupe:
    def __init__(self, invented: Invented) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="knell-demo-")
        self.directory = Path(self._directory.name)
        self._server = Server(directory=self.directory / "server")
        self.provider = ProviderProcess(invented.behaviour, invented.seed, self.directory / "provider")
        self._workers: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._number = 0

    def start(self) -> None:
        """The provider's process is started first and waited for last: it takes longest."""
        self.provider.launch()
        self._server.start()
        self.provider.wait_until_ready()

    def settings(self) -> Settings:
        return load(None, self._variables("demo"))

    def add_worker(self) -> str:
        self._number += 1
        name = f"worker-{self._number}"
        command = [sys.executable, "-c", "from service.cli.main import main; main()", "work",
                   "--simulate", self.provider.address]  # fmt: skip
        # Nothing of the caller's own configuration may reach a worker: it could name a real server.
        clean = {key: value for key, value in os.environ.items() if not key.startswith("KNELL_")}
        process = launch(
            command,
            directory=self.directory,
            output=self.directory / f"{name}.log",
            environment={**clean, **self._variables(name)},
        )
        self._workers.append((name, process))
        return name

    def kill_worker(self) -> str:
        """kill -9 of the first worker that is alive."""
        for name, process in self._workers:
            if process.poll() is None:
                process.kill()
                process.wait()
                return name
        raise RuntimeError("no worker is alive")

    def fallen(self) -> list[str]:
        """Workers that ended by themselves, which none should."""
        return [name for name, process in self._workers if process.poll() not in (None, -9)]

    def last_words(self, name: str) -> str:
        """The end of a worker's log."""
        try:
            return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-5:])
        except OSError:
            return ""

    async def compete(self, account: str) -> None:
        """Somebody else uses the same quota and tells nobody."""
        async with aiohttp.ClientSession(headers={"x-caller": "somebody-else"}) as session:
            url = f"{self.provider.address}/accounts/{account}/spend"
            while True:
                await asyncio.sleep(1.0)
                async with session.post(url, json={"tokens": _GREED}) as answer:
                    await answer.read()

    async def settle(self) -> None:
        """Have the provider write down what has ended meanwhile."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.provider.address}/state") as answer,
        ):
            await answer.read()

    def stop(self) -> None:
        for _, process in self._workers:
            if process.poll() is None:
                process.terminate()
        for _, process in self._workers:
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.provider.stop()
        self._server.stop()
        self._directory.cleanup()

    def _variables(self, name: str) -> Mapping[str, str]:
        return {
            **_PACE,
            "KNELL_REDIS_URL": f"redis://{self._server.host}:{self._server.port}/0",
            "KNELL_WORKER_NAME": name,
            "KNELL_SURFACE_HOST": "127.0.0.1",
            "KNELL_SURFACE_PORT": "0",
            "KNELL_LOG_FORMAT": "json",
        }
