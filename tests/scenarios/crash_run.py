"""Runner of the crash scenario: workers and the server are killed during work, until nothing is left to do.

Progress is read from the provider's log; it decides when kills and new events come."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from service.contract import Event
from service.engine.installation import Installation
from service.settings import load
from standins.redis_servers import LocalRedis
from tests.scenarios.audit import entries, read_audit
from tests.scenarios.crash_evidence import Evidence
from tests.scenarios.crash_seed import CrashSeed, Key, invent
from tests.scenarios.log_tail import LogTail
from tests.scenarios.workers import Kill, WorkerProcesses
from tests.simulated import Behaviour, ProviderProcess

STEM = "knell:{0}:"
STEP = 0.02
WORKERS = 4
WAVES = 10
"""Events come in so many portions, so that planners are met by kills, too."""


@dataclass(frozen=True, slots=True)
class CrashRunSize:
    deletions: int
    worker_kills: int
    server_kills: int
    patience: timedelta
    latency: tuple[timedelta, timedelta] = (timedelta(milliseconds=50), timedelta(milliseconds=500))
    foreign: int = 3
    bystanders: int = 100
    seed: int = 1


class CrashRunNotDrained(Exception):
    """Work was left when the patience was over."""


class CrashRun:
    def __init__(self, size: CrashRunSize, directory: Path) -> None:
        self.size, self.directory = size, directory
        self.seed: CrashSeed = invent(size.deletions, size.foreign, size.bystanders)
        self.worker_kills: list[Kill] = []
        self.server_kills: list[Kill] = []
        self._random = random.Random(size.seed)

    def run(self) -> Evidence:
        behaviour = Behaviour(latency=self.size.latency, seed=self.size.seed)
        self._server = LocalRedis(directory=self.directory / "server", appendfsync="always")
        with self._server, ProviderProcess(behaviour, self.seed.seed, self.directory / "provider") as provider:
            self._variables = variables(self._server)
            self._workers = WorkerProcesses(self.directory, provider.address, self._variables)
            try:
                with LogTail(provider.log) as tail:
                    self._work_off(tail)
                self._workers.stop()
            finally:
                self._workers.end()
            return self._gather(provider)

    # ---- the run

    def _work_off(self, tail: LogTail) -> None:
        for _ in range(WORKERS):
            self._workers.start()
        deadline = time.monotonic() + self.size.patience.total_seconds()
        waves, kills = self._waves(), self._kills()
        wave, kill = next(waves, None), next(kills, None)
        while kill is not None or wave is not None or not self._drained(tail):
            tail.look()
            self._workers.look()
            if wave is not None and tail.gone >= wave[0]:
                asyncio.run(self._publish(wave[1]))
                wave = next(waves, None)
            if kill is not None and tail.gone >= kill[0]:
                self._kill(kill[1], tail)
                kill = next(kills, None)
            if time.monotonic() > deadline:
                raise CrashRunNotDrained(f"{tail.gone} of {len(self.seed.targets)} are gone after {self.size.patience}")
            time.sleep(STEP)

    def _waves(self) -> Iterator[tuple[int, list[Event]]]:
        """The next portion comes when there is work for a while still."""
        events, part = self.seed.events, -(-len(self.seed.events) // WAVES)
        for wave in range(WAVES):
            start = max(0, wave - 3) * len(self.seed.targets) // (WAVES + 1)
            yield start, events[wave * part : (wave + 1) * part]

    def _kills(self) -> Iterator[tuple[int, str]]:
        """Moments are counted in removed resources: each kill comes while there is work."""
        most = len(self.seed.targets)
        workers = self._moments(self.size.worker_kills, most)
        servers = self._moments(self.size.server_kills, most)
        yield from sorted([(moment, "worker") for moment in workers] + [(moment, "server") for moment in servers])

    def _moments(self, count: int, most: int) -> list[int]:
        """One in each of so many equal parts of the first nine tenths of the work."""
        part = 0.9 * most / count
        return [int((number + self._random.random()) * part) for number in range(count)]

    def _kill(self, what: str, tail: LogTail) -> None:
        if what == "worker":
            self._kill_worker(tail)
            return
        at = time.time()
        self._server.kill()
        if len(self.server_kills) % 2 == 0:
            # One that dies while the server is away can't even say what it had done before.
            self._kill_worker(tail)
        self._server.start()
        self._wait_until_loaded()
        self.server_kills.append(Kill("server", at, time.time()))

    def _kill_worker(self, tail: LogTail) -> None:
        # One that has begun to call, if there is any: a kill that meets nobody at work shows nothing.
        names = [name for name in self._workers.names if name in tail.callers] or self._workers.names
        self.worker_kills.append(self._workers.kill(self._random.choice(names)))
        self._workers.start()

    def _drained(self, tail: LogTail) -> bool:
        """Only deletions that claim a stranger's resource are open, nobody holds a job, and nothing but what is a
        stranger's waits: a job whose worker died may be known as gone by the provider alone."""
        if tail.gone < len(self.seed.targets):
            return False
        with self._server.admin() as client:
            if client.zcard(f"{STEM}batches") or client.zcard(f"{STEM}alone") or _waiting(client) != self.size.foreign:
                return False
            return bool(client.zcard(f"{STEM}open") == self.size.foreign)

    def _wait_until_loaded(self) -> None:
        with self._server.admin() as client:
            while client.info("persistence")["loading"]:
                time.sleep(STEP)

    async def _publish(self, events: list[Event]) -> None:
        installation = Installation(load(None, self._variables))
        try:
            answers = await installation.publish(events)
        finally:
            await installation.aclose()
        if {answer.state for answer in answers} != {"added"}:
            raise AssertionError(f"events were not added: {answers}")

    # ---- what it left

    def _gather(self, provider: ProviderProcess) -> Evidence:
        with self._server.admin() as client:
            audit = read_audit(entries(client, f"{STEM}audit"))
            jobs, refused = _jobs(client), len(self.seed.foreign)
            leftovers = list(_leftovers(client, refused, len(self.seed.events) - self.size.foreign))
        return Evidence(
            self.seed.targets, self.seed.foreign, provider.lines(), audit, jobs,
            self.worker_kills, self.server_kills, leftovers,
        )  # fmt: skip


def variables(server: LocalRedis) -> dict[str, str]:
    return {
        "KNELL_REDIS_URL": f"redis://{server.host}:{server.port}/0",
        "KNELL_REDIS_CALL_TIMEOUT": "2s",
        "KNELL_WORKER_LEASE": "5s",
        "KNELL_WORKER_ATTEMPT_TIMEOUT": "4s",
        "KNELL_WORKER_PLAN_CLAIM": "5s",
        "KNELL_WORKER_PLANNERS": "16",
        "KNELL_WORKER_CONCURRENCY": "24",
        "KNELL_LOG_FORMAT": "json",
    }


def _jobs(client: Any) -> dict[Key, str]:
    """The job of each resource, from the jobs' own records."""
    found: dict[Key, str] = {}
    for key in client.scan_iter(f"{STEM}job:*", count=1000):
        plan = key.removeprefix(f"{STEM}job:")
        for number, text in client.hgetall(key).items():
            record = msgspec.json.decode(text)
            if record["kind"] != "release":
                found[record["lane"].split("/")[1], record["target"]] = f"{plan}.{number}"
    return found


def _leftovers(client: Any, refused: int, done: int) -> Iterator[str]:
    """Only refused jobs may wait, each in its lane and marked as held; nothing else is anywhere."""
    for name in ("batches", "alone", "dead", "newer", "opening"):
        if left := client.zrange(STEM + name, 0, 9):
            yield f"left in {name}: {left}"
    for key in client.scan_iter(f"{STEM}leases:*", count=1000):
        yield f"still leased: {key}"
    waiting = _waiting(client)
    if waiting != refused or client.zcard(f"{STEM}held") != refused:
        yield f"{waiting} jobs wait in lanes, {client.zcard(f'{STEM}held')} are held; {refused} should"
    states = [client.hget(key, "state") for key in client.scan_iter(f"{STEM}deletion:*", count=1000)]
    if states.count("done") != done or len(states) != done + refused:
        yield f"{states.count('done')} of {len(states)} deletions are done; {done} should be"
    stats = client.hgetall(f"{STEM}stats")
    for name in ("set_aside", "lost", "dead"):
        if int(stats.get(name, 0)):
            yield f"stats say {name}: {stats[name]}"


def _waiting(client: Any) -> int:
    return sum(client.zcard(key) for key in client.scan_iter(f"{STEM}lane:*", count=1000))
