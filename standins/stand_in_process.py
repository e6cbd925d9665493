"""A cloud stand-in as a child process, with a client for the part of the control API that all of them have.
It has a process of its own so that it does not run on the event loop that a benchmark measures."""

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import aiohttp
import msgspec

from standins.child_process import launch_module
from standins.http_server import listening_socket, url_of

_READY_WITHIN: Final = timedelta(seconds=40)
_STEP: Final = 0.02


class StandInFailed(Exception):
    """The process ended, did not report its address in time, does not answer, or refused a control request."""


class StandInProcess:
    """Started with `async with`, or with `start` and `stop` without an event loop."""

    # The module to run, the name in messages, and the exception to raise.
    MODULE: ClassVar[str]
    NAME: ClassVar[str]
    FAILED: ClassVar[type[StandInFailed]]

    def __init__(self, behaviour: msgspec.Struct, *, rate: float = 1.0, port: int = 0) -> None:
        self._behaviour = behaviour
        self._rate, self._port = rate, port
        self.address = ""
        self._directory = tempfile.TemporaryDirectory(prefix=f"knell-{self.MODULE.rpartition('.')[2]}-")
        self._output = Path(self._directory.name) / "out"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def launch(self) -> None:
        """Starts the process and returns at once, with its address known. The socket is bound here and inherited, so
        that no other process can take the port; requests wait until the process is ready."""
        try:
            listener = listening_socket(self._port)
        except OSError as error:
            raise self.FAILED(f"port {self._port}: {os.strerror(error.errno or 0).lower()}") from None
        with listener:
            self.address = url_of(listener)
            words = ["--socket", str(listener.fileno()), "--rate", str(self._rate)]
            words += ["--behaviour", msgspec.json.encode(self._behaviour).decode()]
            self._process = launch_module(
                self.MODULE,
                words,
                output=self._output,
                environment=self.environment(),
                inherited=[listener.fileno()],
            )

    def start(self) -> Self:
        """Starts the process and blocks until it is ready."""
        self.launch()
        deadline = time.monotonic() + _READY_WITHIN.total_seconds()
        while not self._ready():
            if time.monotonic() > deadline:
                self.stop()
                raise self.FAILED(f"{self.NAME} did not report its address in time")
            time.sleep(_STEP)
        return self

    async def wait_until_ready(self) -> Self:
        try:
            async with asyncio.timeout(_READY_WITHIN.total_seconds()):
                while not self._ready():  # noqa: ASYNC110 - the file of another process has no event
                    await asyncio.sleep(_STEP)
        except TimeoutError:
            raise self.FAILED(f"{self.NAME} did not report its address in time") from None
        return self

    def _ready(self) -> bool:
        text = self._output.read_text(errors="replace")
        for line in text.splitlines(keepends=True):
            if line.startswith('{"address"') and line.endswith("\n"):
                self.address = msgspec.json.decode(line, type=dict[str, str])["address"]
                return True
        if self._process.poll() is not None:
            raise self.FAILED(f"{self.NAME} ended at once:\n{text}")
        return False

    def stop(self) -> None:
        """Kills the process: it has nothing to save, and an orderly end can take seconds."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    async def __aenter__(self) -> Self:
        self.launch()
        try:
            return await self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- the control API

    async def behave(self, **changes: Any) -> None:
        """Changes fields of its behaviour; the others stay. The counts of faults are reset."""
        await self._ask("POST", "behaviour", changes)

    async def advance(self, seconds: float) -> None:
        await self._ask("POST", "clock", {"advance": seconds})

    async def set_rate(self, rate: float) -> None:
        """Sets the rate of its clock, 1 is real time; 0 stops it, and with it the refill of the buckets."""
        await self._ask("POST", "clock", {"rate": rate})

    async def now(self) -> float:
        return float(msgspec.json.decode(await self._ask("GET", "clock"), type=dict[str, float])["now"])

    async def delayed(self) -> list[str]:
        """Names of the requests that a fault delays now."""
        return msgspec.json.decode(await self._ask("GET", "delayed"), type=list[str])

    async def _ask(self, method: str, path: str, document: Any = None) -> bytes:
        body = msgspec.json.encode(document) if document is not None else None
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, f"{self.address}/_knell/{path}", data=body) as response,
            ):
                text = await response.read()
        except aiohttp.ClientError as error:
            raise self.FAILED(f"{self.NAME} does not answer: {error}") from None
        if response.status != 200:
            raise self.FAILED(f"{response.status}: {text.decode(errors='replace')}")
        return text
