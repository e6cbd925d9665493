"""Runner of the quota scenario: four worker processes, a provider with a quota, and a second client unknown to them.

The tests judge the run by its calls and their times; the bench reports the shares of the same run."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp
import redis.asyncio

from service.contract import Event
from service.engine.installation import Installation
from service.settings import load
from tests.scenarios.log_tail import LogTail
from tests.scenarios.quota_evidence import QuotaEvidence
from tests.scenarios.workers import WorkerProcesses
from tests.simulated import Behaviour, ProviderProcess, Quota, Seed, SeededObject, SeededResource, TargetOf
from tests.simulated.handler import SOURCE

WORKERS = 4
ACCOUNT = "shared"
REGIONS = 5
PER_DELETION = 10
STEP = 0.02
SIP = 0.05
"""Seconds between two draws of the second client."""


@dataclass(frozen=True, slots=True)
class QuotaRunSize:
    """Times are the provider's: `scale` of its seconds pass in one of ours."""

    jobs: int
    quota: Quota
    headers: bool
    patience: timedelta
    scale: float = 30.0
    drawn_share: float = 0.2
    """The part of the refill that the second client takes."""
    bursts: int = 0
    """How often, besides, it takes all tokens, until a worker was refused."""
    pause: timedelta = timedelta(seconds=15)
    """What a refusal names, at least; nothing: it names no time."""
    spare: float = 0.01
    """The part of the capacity that is left alone, for those who draw unseen."""
    limits: str = ""
    """What the setting `limits` says of the quota, where it is not taken as the provider declares it."""
    seed: int = 1


FULL = QuotaRunSize(
    jobs=5000,
    quota=Quota(capacity=1000, per=timedelta(seconds=300)),
    headers=True,
    patience=timedelta(minutes=5),
)


class QuotaRunNotDrained(Exception):
    """Work was left when the patience was over."""


def variables(port: int) -> dict[str, str]:
    return {
        "KNELL_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        "KNELL_WORKER_CONCURRENCY": "64",
        "KNELL_LOG_FORMAT": "json",
        "KNELL_LOG_LEVEL": "warning",
    }


async def run(size: QuotaRunSize, port: int, directory: Path) -> QuotaEvidence:
    """On the empty server at that port, with files in that directory."""
    behaviour = Behaviour(
        latency=(timedelta(milliseconds=20), timedelta(milliseconds=60)),
        quota=size.quota,
        remaining_header=size.headers,
        pause=size.pause,
        retry_after_header=bool(size.pause),
        scale=size.scale,
        seed=size.seed,
    )
    environment = variables(port) | ({"KNELL_LIMITS": size.limits} if size.limits else {})
    with ProviderProcess(behaviour, _seed(size), directory / "provider") as provider, LogTail(provider.log) as tail:
        spare = size.spare * size.quota.capacity
        workers = WorkerProcesses(directory, provider.address, environment, spare=spare)
        other = SecondClient(size, provider.address)
        try:
            await _publish(environment, size)
            for _ in range(WORKERS):
                workers.start()
            await _until(lambda: _heard(tail, workers), tail, size)
            drawing = asyncio.create_task(other.draw(tail, size.jobs))
            try:
                await _until(lambda: _drained(tail, workers, size, port), tail, size)
            finally:
                drawing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await drawing
            await asyncio.to_thread(workers.stop)
        finally:
            workers.end()
        deletes = sorted((line for line in provider.lines() if line.method == "DELETE"), key=lambda line: line.arrived)
    return QuotaEvidence(size.quota, size.scale, deletes, other.taken, size.headers)


def _seed(size: QuotaRunSize) -> Seed:
    targets = [(n // PER_DELETION, f"res-{n}", f"r{n % REGIONS}") for n in range(size.jobs)]
    objects: Mapping[int, list[TargetOf]] = {n: [] for n in range(-(-size.jobs // PER_DELETION))}
    for owner, name, region in targets:
        objects[owner].append(TargetOf(account=ACCOUNT, id=name, region=region))
    return Seed(
        resources=tuple(SeededResource(account=ACCOUNT, id=name, owner=f"owner-{n}") for n, name, _ in targets),
        objects=tuple(SeededObject(uid=f"u{n}", owner=f"owner-{n}", targets=tuple(own)) for n, own in objects.items()),
    )


async def _publish(environment: Mapping[str, str], size: QuotaRunSize) -> None:
    installation = Installation(load(None, environment))
    try:
        await installation.publish(
            [
                Event(cluster="c", resource="things", uid=f"u{n}", name=f"thing-{n}", source=SOURCE)
                for n in range(-(-size.jobs // PER_DELETION))
            ]
        )
    finally:
        await installation.aclose()


async def _until(look: Callable[[], Awaitable[bool]], tail: LogTail, size: QuotaRunSize) -> None:
    deadline = time.monotonic() + size.patience.total_seconds()
    while True:
        if await look():
            return
        if time.monotonic() > deadline:
            raise QuotaRunNotDrained(f"{tail.gone} of {size.jobs} are gone after {size.patience}")
        await asyncio.sleep(STEP)


async def _heard(tail: LogTail, workers: WorkerProcesses) -> bool:
    workers.look()
    return any(line.method == "DELETE" for line in tail.look())


async def _drained(tail: LogTail, workers: WorkerProcesses, size: QuotaRunSize, port: int) -> bool:
    workers.look()
    tail.look()
    if tail.gone < size.jobs:
        return False
    async with redis.asyncio.Redis(port=port) as client:
        return bool(await client.zcard("knell:{0}:open") == 0)


class SecondClient:
    """Takes tokens in small amounts at uneven times, unknown to the workers."""

    def __init__(self, size: QuotaRunSize, address: str) -> None:
        self._url = f"{address}/accounts/{ACCOUNT}/spend"
        self._rate = size.drawn_share * size.quota.capacity / size.quota.per.total_seconds() * size.scale
        self._size, self._random = size, random.Random(size.seed)
        self.taken: list[tuple[float, float]] = []

    async def draw(self, tail: LogTail, jobs: int) -> None:
        thirst, last, until = 0.0, time.monotonic(), 0
        bursts = [jobs * (number + 1) // (self._size.bursts + 1) for number in range(self._size.bursts)]
        async with aiohttp.ClientSession(headers={"x-caller": "somebody-else"}) as session:
            while True:
                await asyncio.sleep(SIP * self._random.uniform(0.5, 1.5))
                now = time.monotonic()
                thirst += (now - last) * self._rate * self._random.uniform(0.7, 1.3)
                last = now
                sip = int(thirst)
                thirst -= sip
                if bursts and tail.gone >= bursts[0]:
                    del bursts[0]
                    until = tail.throttled + 1
                if tail.throttled < until:
                    sip = int(self._size.quota.capacity)
                if sip:
                    await self._take(session, sip)

    async def _take(self, session: aiohttp.ClientSession, tokens: int) -> None:
        async with session.post(self._url, json={"tokens": tokens}) as answer:
            taken: Mapping[str, float] = await answer.json()
        self.taken.append((time.time(), taken["taken"]))
