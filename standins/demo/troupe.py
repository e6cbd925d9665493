"""The processes of the demo: Valkey, an API server, the simulated provider, stand-ins for AWS and Azure, replicas of
Knell to be killed, and somebody else who draws on the same quota. All of them end with the demo, however it ends."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from service.settings import Settings, load
from standins import aws, azure
from standins.demo import amazon, subscription
from standins.demo.amazon import ACCOUNT
from standins.demo.apis import Chosen
from standins.demo.hand import HOME, SOURCES
from standins.demo.invention import Invented
from standins.demo.karpenter import NODECLAIMS
from standins.process import launch
from standins.provider import ProviderProcess
from standins.servers import Server

CLUSTER: Final = "demo"
# What a real installation sets in minutes is set in seconds here, so that a demo of half a minute shows it.
_PACE: Final[Mapping[str, Any]] = {
    "redis": {"call_timeout": "2s"},
    "worker": {
        "lease": "4s",
        "attempt_timeout": "3s",
        "plan_claim": "4s",
        "grace": "3s",
        "concurrency": 48,
    },
    "retry": {
        "base": "200ms",
        "cap": "2s",
        "blocked_base": "400ms",
        "blocked_cap": "1500ms",
        "best_effort_deadline": "8s",
    },
    "watch": {"namespace": HOME, "lease": "5s", "retry": "300ms"},
    "features": {"ExternalResourceGC": True},
    "aws": {"account": ACCOUNT, "settle": "2s", "check_after": "500ms", "drain_check": "1s"},
    "azure": {
        "grace": "1s",
        # What no event told is another story.
        "sweep": {"enabled": False},
        "nodes": {NODECLAIMS.plural: [subscription.PLACE]},
    },
}
_GREED: Final = 3
"""Tokens that the other user takes at a time."""


class State(msgspec.Struct, frozen=True):
    """What the provider says of itself."""

    there: int
    deleting: int
    gone: int


class Troupe:
    """A context; nothing runs before `start`, nothing after it."""

    def __init__(self, invented: Invented, api: Chosen) -> None:
        self._stack = ExitStack()
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="knell-demo-")))
        self._server = Server(directory=self.directory / "valkey")
        self.provider = ProviderProcess(invented.behaviour, invented.seed, self.directory / "provider")
        self.api = api
        # It may have a folder already.
        self._stack.callback(api.server.stop)
        self.aws: aws.LocalAws
        self.azure: azure.LocalAzure
        self._config = self.directory / "knell.yaml"
        self._replicas: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self) -> None:
        """Everything but Knell. What the others do not need is started first: the provider is waited for last, and the
        stand-ins for AWS and Azure not here at all, for their addresses are known. Children end with the thread that
        started them, so this is for the main one."""
        self.aws = aws.LocalAws(amazon.BEHAVIOUR)
        self.azure = azure.LocalAzure(subscription.BEHAVIOUR, rate=subscription.RATE)
        for cloud in (self.aws, self.azure):
            cloud.launch()
            self._stack.callback(cloud.stop)
        self.provider.launch()
        self._stack.callback(self.provider.stop)
        self._stack.callback(self._server.stop)
        self._server.start()
        self.api.server.start()
        self.provider.wait_until_ready()
        self._stack.callback(self._stop_replicas)
        kubeconfig = self.api.server.kubeconfig(self.directory / "kubeconfig")
        sections = {
            **_PACE,
            "aws": {**_PACE["aws"], "endpoint": self.aws.address},
            "azure": {**_PACE["azure"], "endpoint": self.azure.address},
            "clusters": {CLUSTER: {"kubeconfig": str(kubeconfig), "context": "local"}},
            "sources": {kind.plural: kind.source() for kind in SOURCES},
        }
        self._config.write_bytes(msgspec.yaml.encode(sections))

    def settings(self) -> Settings:
        return load(self._config, self._variables("demo"))

    # ---- Knell

    def add_replica(self) -> str:
        """Both sides in one process: `knell run`."""
        name = f"replica-{len(self._replicas) + 1}"
        command = [sys.executable, "-c", "from service.cli.main import main; main()", "run",
                   "--config", str(self._config), "--simulate", self.provider.address]  # fmt: skip
        # Nothing of the caller's own configuration may reach it: it could name a real server, or a real account.
        kept = azure.detached(aws.detached(os.environ))
        clean = {key: value for key, value in kept.items() if not key.startswith("KNELL_")}
        process = launch(
            command,
            directory=self.directory,
            output=self.directory / f"{name}.log",
            environment={**clean, **self._variables(name)},
        )
        self._replicas.append((name, process))
        return name

    def kill_replica(self, wanted: str = "") -> str:
        """kill -9 of that one, or else of the first that is alive."""
        alive = {name: process for name, process in self._replicas if process.poll() is None}
        name = wanted if wanted in alive else next(iter(alive))
        alive[name].kill()
        alive[name].wait()
        return name

    def fallen(self) -> list[str]:
        """Replicas that ended by themselves, which none should."""
        return [name for name, process in self._replicas if process.poll() not in (None, -9)]

    def last_words(self, name: str) -> str:
        """The end of a replica's log."""
        try:
            return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-5:])
        except OSError:
            return ""

    def _stop_replicas(self) -> None:
        for _, process in self._replicas:
            if process.poll() is None:
                process.terminate()
        for _, process in self._replicas:
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _variables(self, name: str) -> Mapping[str, str]:
        return {
            "KNELL_REDIS_URL": f"redis://{self._server.host}:{self._server.port}/0",
            "KNELL_WORKER_NAME": name,
            "KNELL_SURFACE_HOST": "127.0.0.1",
            "KNELL_SURFACE_PORT": "0",
            "KNELL_LOG_FORMAT": "json",
            # The stand-in knows the account by the key, and takes any secret.
            "AWS_ACCESS_KEY_ID": f"AKIA{ACCOUNT}",
            "AWS_SECRET_ACCESS_KEY": "any",
            **self.azure.identity(),
        }

    # ---- the provider

    async def compete(self, account: str) -> None:
        """Somebody else uses the same quota and tells nobody."""
        async with aiohttp.ClientSession(headers={"x-caller": "somebody-else"}) as session:
            url = f"{self.provider.address}/accounts/{account}/spend"
            while True:
                await asyncio.sleep(1.0)
                async with session.post(url, json={"tokens": _GREED}) as answer:
                    await answer.read()

    async def settle(self) -> State:
        """Have the provider write down what has ended meanwhile, and say what there is."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.provider.address}/state") as answer,
        ):
            return msgspec.json.decode(await answer.read(), type=State)
