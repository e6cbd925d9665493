"""A stand-in for a cloud as a child process, with the part of its control address that all of them have.
It is a process of its own, so that its work is not done on the event loop of who measures."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import aiohttp
import msgspec

from standins.listening import address_of, bound
from standins.process import launch

_READY_WITHIN: Final = timedelta(seconds=40)
_STEP: Final = 0.02


class StandInFailed(Exception):
    """The process ended, did not say its address in time, does not answer, or refused what it was asked for."""


class StandIn:
    """Started with `async with`, or with `start` and `stop` by who has no event loop."""

    # The module that is the process, what it is called in messages, and what is raised.
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
        """Starts the process and returns at once. Its address is known and answers late until it is ready: the socket
        is bound here and inherited, so that no other process takes the port meanwhile."""
        try:
            listener = bound(self._port)
        except OSError as error:
            raise self.FAILED(f"port {self._port}: {os.strerror(error.errno or 0).lower()}") from None
        with listener:
            self.address = address_of(listener)
            words = ["--socket", str(listener.fileno()), "--rate", str(self._rate)]
            words += ["--behaviour", msgspec.json.encode(self._behaviour).decode()]
            command = [sys.executable, "-m", self.MODULE, *words]
            self._process = launch(
                command,
                directory=Path.cwd(),
                output=self._output,
                environment=self.environment(),
                inherited=[listener.fileno()],
            )

    def start(self) -> Self:
        """For who has no event loop: returns when it is ready."""
        self.launch()
        deadline = time.monotonic() + _READY_WITHIN.total_seconds()
        while not self._ready():
            if time.monotonic() > deadline:
                self.stop()
                raise self.FAILED(f"{self.NAME} did not say its address in time")
            time.sleep(_STEP)
        return self

    async def wait_until_ready(self) -> Self:
        try:
            async with asyncio.timeout(_READY_WITHIN.total_seconds()):
                while not self._ready():  # noqa: ASYNC110 - a file of another process rings no bell
                    await asyncio.sleep(_STEP)
        except TimeoutError:
            raise self.FAILED(f"{self.NAME} did not say its address in time") from None
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
        """At once: it has nothing to keep, and an orderly end can take seconds."""
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

    # ---- the control address

    async def behave(self, **changes: Any) -> None:
        """Changes fields of its behaviour; the others stay. Counted faults are counted anew."""
        await self._ask("POST", "behaviour", changes)

    async def advance(self, seconds: float) -> None:
        await self._ask("POST", "clock", {"advance": seconds})

    async def set_rate(self, rate: float) -> None:
        """How many of its seconds pass in one of ours; 0 stops its clock, and with it the buckets' refill."""
        await self._ask("POST", "clock", {"rate": rate})

    async def now(self) -> float:
        return float(msgspec.json.decode(await self._ask("GET", "clock"), type=dict[str, float])["now"])

    async def delayed(self) -> list[str]:
        """The names of requests that have come, and that a fault has waiting at this moment."""
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
