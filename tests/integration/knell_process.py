"""Processes of the `knell` command that tests start, query and stop."""

import asyncio
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from service.engine.installation import Installation
from service.settings import RedisSettings, Settings
from standins.child_process import with_clone_path
from standins.ports import free_ports
from tests.simulated.source import ADDRESS

PATIENCE = timedelta(seconds=100)
AT_ONCE = timedelta(seconds=20)
"""Less than the grace period that a worker has by default."""


def until(what: str, look: Callable[[], Any], within: timedelta = PATIENCE) -> Any:
    deadline = time.monotonic() + within.total_seconds()
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
    return seen


class KnellProcess:
    """One process with a web server of its own: `knell`, or with the variable SIMULATED_PROVIDER the same command line
    with the simulated source."""

    def __init__(self, directory: Path, redis: RedisSettings, *words: str, **variables: str) -> None:
        (self.port,) = free_ports(1)
        self.log = directory / f"{self.port}.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("KNELL_")}
        settings = {
            "KNELL_REDIS_URL": str(redis.url),
            "KNELL_REDIS_PREFIX": redis.prefix,
            "KNELL_REDIS_SHARDS": str(redis.shards),
            "KNELL_SURFACE_HOST": "127.0.0.1",
            "KNELL_SURFACE_PORT": str(self.port),
            "KNELL_WORKER_NAME": f"worker-{self.port}",
            "KNELL_LOG_FORMAT": "json",
        }
        program = (
            ("-m", "tests.simulated") if ADDRESS in variables else ("-c", "from service.cli.main import main; main()")
        )
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *program, *words],
                env=with_clone_path({**clean, **settings, **variables}),
                stdout=output,
                stderr=output,
            )

    def get(self, path: str) -> tuple[int, str]:
        """0 while no server listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return 0, ""

    def until_ready(self) -> None:
        until("it is ready", lambda: self.get("/readyz")[0] == 200)

    def number(self, metric: str) -> float:
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(sample.value for family in families for sample in family.samples if sample.name == metric)

    def end(self, within: timedelta = PATIENCE) -> int:
        return self.process.wait(within.total_seconds())

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines() if line[:1] == b"{"]
        return [line for line in lines if line["event"] == event]


def with_installation(redis: RedisSettings, work: Callable[[Installation], Any]) -> Any:
    async def run() -> Any:
        installation = Installation(Settings(redis=redis))
        try:
            return await work(installation)
        finally:
            await installation.aclose()

    return asyncio.run(run())
