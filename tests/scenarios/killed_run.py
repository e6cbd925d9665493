"""Runner of two worker processes that are killed in the first burst of deletes, and two that take over at once.

The bench reports how much later everything is gone than without the kill."""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from service.contract import Event
from service.engine.installation import Installation
from service.settings import load
from tests.engine.waiting import until
from tests.scenarios.log_tail import LogTail
from tests.scenarios.workers import WorkerProcesses
from tests.simulated import Behaviour, ProviderProcess, Seed, SeededObject, SeededResource, TargetOf
from tests.simulated.handler import SOURCE

WORKERS = 2
ACCOUNT, REGION = "killed", "r1"
PATIENCE = timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Burst:
    deletions: int = 100
    each: int = 10
    latency: tuple[timedelta, timedelta] = (timedelta(milliseconds=200), timedelta(milliseconds=600))

    @property
    def jobs(self) -> int:
        return self.deletions * self.each


async def run(burst: Burst, port: int, directory: Path, *, kill: bool) -> float:
    """Seconds from the first delete until the last resource is gone; AssertionError if they do not go. A server and a
    directory serve for one run of each kind."""
    name = "killed" if kill else "spared"
    environment = {
        "KNELL_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        "KNELL_REDIS_PREFIX": name,
        "KNELL_LOG_FORMAT": "json",
        "KNELL_LOG_LEVEL": "warning",
    }
    with (
        ProviderProcess(Behaviour(latency=burst.latency), _seed(burst), directory / f"{name}-provider") as provider,
        LogTail(provider.log) as tail,
    ):
        workers = WorkerProcesses(directory, provider.address, environment)

        async def called() -> bool:
            return any(line.method == "DELETE" for line in tail.look())

        async def gone() -> bool:
            tail.look()
            return tail.gone >= burst.jobs

        try:
            await _publish(environment, burst)
            first = [workers.start() for _ in range(WORKERS)]
            await until("a delete is sent", called, PATIENCE)
            began = time.monotonic()
            if kill:
                for name in first:
                    workers.kill(name)
                for _ in range(WORKERS):
                    workers.start()
            await until("all are gone", gone, PATIENCE)
            seconds = time.monotonic() - began
            await asyncio.to_thread(workers.stop)
        finally:
            workers.end()
    return seconds


def _seed(burst: Burst) -> Seed:
    names = {n: [f"res-{n}-{m}" for m in range(burst.each)] for n in range(burst.deletions)}
    return Seed(
        resources=tuple(
            SeededResource(account=ACCOUNT, id=name, owner=f"owner-{n}") for n, own in names.items() for name in own
        ),
        objects=tuple(
            SeededObject(
                uid=f"u{n}",
                owner=f"owner-{n}",
                targets=tuple(TargetOf(account=ACCOUNT, id=name, region=REGION) for name in own),
            )
            for n, own in names.items()
        ),
    )


async def _publish(environment: Mapping[str, str], burst: Burst) -> None:
    installation = Installation(load(None, {**os.environ, **environment}))
    try:
        await installation.publish(
            [
                Event(cluster="c", resource="things", uid=f"u{n}", name=f"thing-{n}", source=SOURCE)
                for n in range(burst.deletions)
            ]
        )
    finally:
        await installation.aclose()
