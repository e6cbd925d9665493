"""The stand-in for AWS as a child process, with what tests and figures need of its control address.
It is a process of its own, so that moto's work is not done on the event loop of who measures."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from service.local.aws.behaviour import Behaviour, Fault
from service.local.aws.journal import Entry
from service.local.process import launch

_READY_WITHIN: Final = timedelta(seconds=40)
_STEP: Final = 0.02
_decode_entries = msgspec.json.Decoder(list[Entry]).decode


class LocalAwsFailed(Exception):
    """The process ended, or did not say its address in time."""


def detached(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what somebody has set up for the real AWS: a process that has this finds no account there."""
    rest = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**rest, **nothing, "AWS_EC2_METADATA_DISABLED": "true"}


class LocalAws:
    """`async with LocalAws() as aws:`; then clients go to `aws.address`, in any region, with an access key that has the
    twelve digits of an account in it (see `world.credentials`)."""

    def __init__(self, behaviour: Behaviour | None = None, *, rate: float = 1.0, port: int = 0) -> None:
        self.behaviour = behaviour or Behaviour()
        self._rate, self._port = rate, port
        self._directory = tempfile.TemporaryDirectory(prefix="knell-aws-")
        self._output = Path(self._directory.name) / "out"
        self.address = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def launch(self) -> None:
        """Starts the process and returns at once."""
        words = ["--port", str(self._port), "--rate", str(self._rate)]
        words += ["--behaviour", msgspec.json.encode(self.behaviour).decode()]
        command = [sys.executable, "-m", "service.local.aws", *words]
        self._process = launch(command, directory=Path.cwd(), output=self._output, environment=detached(os.environ))

    def start(self) -> Self:
        """For who has no event loop: returns when it is ready."""
        self.launch()
        deadline = time.monotonic() + _READY_WITHIN.total_seconds()
        while not self._ready():
            if time.monotonic() > deadline:
                self.stop()
                raise LocalAwsFailed("the stand-in for AWS did not say its address in time")
            time.sleep(_STEP)
        return self

    async def wait_until_ready(self) -> Self:
        try:
            async with asyncio.timeout(_READY_WITHIN.total_seconds()):
                while not self._ready():  # noqa: ASYNC110 - a file of another process rings no bell
                    await asyncio.sleep(_STEP)
        except TimeoutError:
            raise LocalAwsFailed("the stand-in for AWS did not say its address in time") from None
        return self

    def _ready(self) -> bool:
        text = self._output.read_text(errors="replace")
        for line in text.splitlines(keepends=True):
            if line.startswith('{"address"') and line.endswith("\n"):
                self.address = msgspec.json.decode(line, type=dict[str, str])["address"]
                return True
        if self._process.poll() is not None:
            raise LocalAwsFailed(f"the stand-in for AWS ended at once:\n{text}")
        return False

    def stop(self) -> None:
        """At once: it has nothing to keep, and an orderly end would take moto seconds."""
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

    async def trouble(self, *faults: Fault) -> None:
        """These faults from now on, and no others."""
        await self.behave(faults=faults)

    async def advance(self, seconds: float) -> None:
        await self._ask("POST", "clock", {"advance": seconds})

    async def set_rate(self, rate: float) -> None:
        """How many of its seconds pass in one of ours; 0 stops its clock, and with it the buckets' refill."""
        await self._ask("POST", "clock", {"rate": rate})

    async def now(self) -> float:
        return float(msgspec.json.decode(await self._ask("GET", "clock"), type=dict[str, float])["now"])

    async def delayed(self) -> list[str]:
        """The actions of requests that have come, and that a fault has waiting at this moment."""
        return msgspec.json.decode(await self._ask("GET", "delayed"), type=list[str])

    async def journal(self, since: int = 0) -> list[Entry]:
        """Everything that happened, from an entry's number on; also what the world's builder did."""
        return _decode_entries(await self._ask("GET", f"journal?since={since}"))

    async def requests(self, action: str = "", since: int = 0) -> Sequence[Entry]:
        """What was asked by others than the world's builder, all or one action (`ec2.DeleteSecurityGroup`)."""
        entries = await self.journal(since)
        return [one for one in entries if one.what == "request" and not one.setup and action in ("", one.action)]

    async def _ask(self, method: str, path: str, document: Any = None) -> bytes:
        body = msgspec.json.encode(document) if document is not None else None
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.address}/_knell/{path}", data=body) as response,
        ):
            text = await response.read()
            if response.status != 200:
                raise LocalAwsFailed(f"{response.status}: {text.decode(errors='replace')}")
            return text
