"""Common settings of a Knell that is measured on a cloud, and its process of `knell run`.

They are the defaults, with every duration divided and every limit's rate multiplied by how much faster the cloud's time
runs."""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.bench_server import BenchServer
from bench.contenders.program import Program, running
from service.contract import Limit
from service.engine.installation import Installation
from service.engine.views.deletions import list_deletions
from service.settings import RedisSettings, Settings
from service.settings.redis import RedisUrl
from service.settings.sections import RetrySettings

SOURCE: Final = "bench"
COMMAND: Final = (sys.executable, "-c", "from service.cli.main import main; main()", "run", "--config")


def common(server: BenchServer, namespace: str, source: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """What would stand in the file of settings, but for the cloud's own part and its limits."""
    retry = RetrySettings()
    return {
        "redis": {"url": url(server)},
        "surface": {"host": "127.0.0.1", "port": 0},
        "log": {"format": "json"},
        "clusters": {SOURCE: {"kubeconfig": str(server.cluster.kubeconfig)}},
        "sources": {SOURCE: {**source, "guard": {"enabled": False}}},
        "watch": {"namespace": namespace},
        "retry": {
            "base": shorter(retry.base, scale),
            "cap": shorter(retry.cap, scale),
            "blocked_base": shorter(retry.blocked_base, scale),
            "blocked_cap": shorter(retry.blocked_cap, scale),
            "unseen_cap": shorter(retry.unseen_cap, scale),
        },
    }


def url(server: BenchServer) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


def shorter(span: timedelta, scale: float) -> float:
    return span.total_seconds() / scale


def scaled(limit: Limit, scale: float, late: float) -> dict[str, float]:
    """As it would be declared for a cloud whose time is faster. What is left for calls that are on their way (`late`
    seconds) grows with the rate, for those don't get faster; settings have no name for it, so it is taken off the
    capacity."""
    rate = limit.capacity / limit.per.total_seconds() * scale
    more = max(0.0, min(limit.capacity / 4, rate * late) - limit.spare)
    return {"rate": rate, "capacity": math.floor(limit.capacity - more)}


@contextmanager
def launched(document: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[Program]:
    with tempfile.TemporaryDirectory(prefix="knell-bench-") as folder:
        file = Path(folder) / "knell.yaml"
        file.write_bytes(msgspec.yaml.encode(document))
        with running("knell", [*COMMAND, str(file)], environment) as program:
            yield program


def settings_of(server: BenchServer) -> Settings:
    """With which the harness reads Knell's records."""
    return Settings(redis=RedisSettings(url=RedisUrl.parse(url(server))))


class KnellCloudProcess:
    def __init__(self, server: BenchServer, program: Program) -> None:
        self._settings, self._program = settings_of(server), program

    def check(self) -> None:
        self._program.check()

    def over(self) -> bool:
        """When no deletion is open, every absence is proven."""
        return asyncio.run(self._none_open())

    async def _none_open(self) -> bool:
        installation = Installation(self._settings)
        try:
            return not (await list_deletions(installation, limit=1)).deletions
        finally:
            await installation.aclose()
