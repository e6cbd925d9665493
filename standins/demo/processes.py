"""Processes of the demo: Valkey, an API server, the stand-ins for AWS and Azure, and replicas of Knell.
All of them end with the demo, however it ends."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from service.settings import Settings, load
from standins import aws, azure
from standins.api_servers import Chosen
from standins.child_process import launch
from standins.demo import aws_account, azure_subscription
from standins.demo.objects import KNELL_NAMESPACE, NODECLAIMS, SOURCES
from standins.ports import free_ports
from standins.redis_servers import LocalRedis

CLUSTER: Final = "demo"
_MOST_REPLICAS: Final = 3
# Durations that are minutes in a real installation are seconds here.
_SETTINGS: Final[Mapping[str, Any]] = {
    "redis": {"call_timeout": "2s"},
    "worker": {"lease": "4s", "attempt_timeout": "3s", "plan_claim": "4s", "grace": "3s", "concurrency": 48},
    "retry": {"base": "200ms", "cap": "2s", "blocked_base": "400ms", "blocked_cap": "1500ms"},
    "watch": {"namespace": KNELL_NAMESPACE, "lease": "5s", "retry": "300ms"},
    "features": {"ExternalResourceGC": True},
    "aws": {"account": aws_account.ACCOUNT, "settle": "2s", "check_after": "500ms", "drain_check": "1s"},
    # None of ACK's controllers runs.
    "ack": {"grace": "1s"},
    "policy": {"services": {"s3": "delete", "sqs": "delete"}},
    "azure": {
        "grace": "1s",
        # Only deletions that an event reported are shown.
        "sweep": {"enabled": False},
        "nodes": {NODECLAIMS.plural: [azure_subscription.LOCATION]},
    },
}


class DemoProcesses:
    """Context manager; nothing runs before `start`, nothing after its end."""

    def __init__(self, api: Chosen) -> None:
        self._stack = ExitStack()
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="knell-demo-")))
        self._server = LocalRedis(directory=self.directory / "valkey")
        self.api = api
        # It may have a folder already.
        self._stack.callback(api.server.stop)
        self.aws: aws.LocalAws
        self.azure: azure.LocalAzure
        self._config = self.directory / "knell.yaml"
        self._replicas: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._review_ports: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self) -> None:
        """Starts everything but Knell; the stand-ins for AWS and Azure are not ready yet when it returns. Children end
        with the thread that started them, so this is for the main thread."""
        self.aws = aws.LocalAws(aws_account.BEHAVIOUR)
        self.azure = azure.LocalAzure(azure_subscription.BEHAVIOUR, rate=azure_subscription.RATE)
        for cloud in (self.aws, self.azure):
            cloud.launch()
            self._stack.callback(cloud.stop)
        self._stack.callback(self._server.stop)
        self._server.start()
        self.api.server.start()
        self._stack.callback(self._stop_replicas)
        kubeconfig = self.api.server.kubeconfig(self.directory / "kubeconfig")
        # Each replica has a port of its own for reviews of deletions; the API server asks the first.
        self._review_ports = free_ports(_MOST_REPLICAS)
        address = f"https://127.0.0.1:{self._review_ports[0]}"
        sections = {
            **_SETTINGS,
            "protection": {"webhook": {"enabled": True, "objects": True, "host": "127.0.0.1", "url": address}},
            "aws": {**_SETTINGS["aws"], "endpoint": self.aws.address},
            "azure": {**_SETTINGS["azure"], "endpoint": self.azure.address},
            "clusters": {CLUSTER: {"kubeconfig": str(kubeconfig), "context": "local"}},
            "sources": {kind.plural: kind.source() for kind in SOURCES},
        }
        self._config.write_bytes(msgspec.yaml.encode(sections))

    def settings(self) -> Settings:
        return load(self._config, self._variables("demo"))

    # ---- replicas of Knell

    def add_replica(self) -> str:
        """Starts one more `knell run`: watch side and workers in one process."""
        name, port = f"replica-{len(self._replicas) + 1}", self._review_ports[len(self._replicas)]
        command = [sys.executable, "-c", "from service.cli.main import main; main()", "run",
                   "--config", str(self._config)]  # fmt: skip
        # Nothing of the caller's own configuration may reach it: it could name a real server, or a real account.
        kept = azure.detached(aws.detached(os.environ))
        clean = {key: value for key, value in kept.items() if not key.startswith("KNELL_")}
        process = launch(
            command,
            directory=self.directory,
            output=self.directory / f"{name}.log",
            environment={**clean, **self._variables(name), "KNELL_PROTECTION_WEBHOOK_PORT": str(port)},
        )
        self._replicas.append((name, process))
        return name

    def kill_replica(self, wanted: str) -> str:
        """Sends SIGKILL to that replica, or to the first one that runs; returns its name."""
        running = {name: process for name, process in self._replicas if process.poll() is None}
        name = wanted if wanted in running else next(iter(running))
        running[name].kill()
        running[name].wait()
        return name

    def exited(self) -> list[str]:
        """Replicas that ended by themselves, which none should."""
        return [name for name, process in self._replicas if process.poll() not in (None, -9)]

    def log_tail(self, name: str) -> str:
        try:
            return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-5:])
        except OSError:
            return ""

    def _stop_replicas(self) -> None:
        # They have nothing left to do, and an orderly end takes seconds.
        for _, process in self._replicas:
            process.kill()
            process.wait()

    def _variables(self, name: str) -> Mapping[str, str]:
        return {
            "KNELL_REDIS_URL": f"redis://{self._server.host}:{self._server.port}/0",
            "KNELL_WORKER_NAME": name,
            "KNELL_SURFACE_HOST": "127.0.0.1",
            "KNELL_SURFACE_PORT": "0",
            "KNELL_LOG_FORMAT": "json",
            # The stand-in reads the account from the key, and accepts any secret.
            "AWS_ACCESS_KEY_ID": f"AKIA{aws_account.ACCOUNT}",
            "AWS_SECRET_ACCESS_KEY": "any",
            **self.azure.identity(),
        }
