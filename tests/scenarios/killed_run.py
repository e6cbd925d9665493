"""Runs two worker processes that are killed in the first burst of deletes, and two that take over at once.

The bench reports how much later everything is gone than when nobody is killed.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from service.contract import Event
from service.local.provider import Behaviour, Object, ProviderProcess, Resource, Seed, TargetOf
from service.settings import load
from service.stream.installation import Installation
from tests.scenarios.tail import Tail
from tests.scenarios.workers import Workers
from workers.handlers.simulated import SOURCE

WORKERS = 2
ACCOUNT, REGION = "killed", "r1"
STEP = 0.02
PATIENCE = 180.0


@dataclass(frozen=True, slots=True)
class Burst:
    deletions: int = 100
    each: int = 10
    latency: tuple[timedelta, timedelta] = (timedelta(milliseconds=200), timedelta(milliseconds=600))

    @property
    def jobs(self) -> int:
        return self.deletions * self.each


class NotGone(Exception):
    """Resources were left when the patience was over."""


async def run(burst: Burst, port: int, directory: Path, *, kill: bool) -> float:
    """Seconds from the first delete until the last resource is gone. A server and a directory serve for one run of each
    kind."""
    name = "killed" if kill else "spared"
    environment = {
        "KNELL_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        "KNELL_REDIS_PREFIX": name,
        "KNELL_LOG_FORMAT": "json",
        "KNELL_LOG_LEVEL": "warning",
    }
    with (
        ProviderProcess(Behaviour(latency=burst.latency), _seed(burst), directory / f"{name}-provider") as provider,
        Tail(provider.log) as tail,
    ):
        workers = Workers(directory, provider.address, environment)
        try:
            await _publish(environment, burst)
            first = [workers.start() for _ in range(WORKERS)]
            await _until(lambda: _called(tail), tail, burst)
            began = time.monotonic()
            if kill:
                for name in first:
                    workers.kill(name)
                for _ in range(WORKERS):
                    workers.start()
            await _until(lambda: _gone(tail, burst), tail, burst)
            seconds = time.monotonic() - began
            await asyncio.to_thread(workers.stop)
        finally:
            workers.end()
    return seconds


def _seed(burst: Burst) -> Seed:
    names = {n: [f"res-{n}-{m}" for m in range(burst.each)] for n in range(burst.deletions)}
    return Seed(
        resources=tuple(
            Resource(account=ACCOUNT, id=name, owner=f"owner-{n}") for n, own in names.items() for name in own
        ),
        objects=tuple(
            Object(
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


async def _called(tail: Tail) -> bool:
    return any(line.method == "DELETE" for line in tail.look())


async def _gone(tail: Tail, burst: Burst) -> bool:
    tail.look()
    return tail.gone >= burst.jobs


async def _until(look: Callable[[], Awaitable[bool]], tail: Tail, burst: Burst) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await look():
        if time.monotonic() > deadline:
            raise NotGone(f"{tail.gone} of {burst.jobs} are gone after {PATIENCE:g} s")
        await asyncio.sleep(STEP)
