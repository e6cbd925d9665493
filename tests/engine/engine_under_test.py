"""Engine installation on a real server, with workers that a test starts, stops and kills, and a clock that it moves.

The contents of Redis are read with plain commands, so that a test sees what an operator would see."""

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from service.contract import Event, Found, Job, Target, Verdict
from service.contract.jobs import decode_job_record
from service.contract.version import VERSION
from service.engine.epoch import EpochTracker
from service.engine.installation import Installation
from service.engine.late_targets import lay_out_late_targets
from service.engine.plan_layout import lay_out_plan
from service.engine.script_arguments import LaneRequest, LateTargets
from service.engine.script_loading import Scripts
from service.engine.script_replies import Taken
from service.engine.shard import Shard
from service.settings import RedisSettings, RetrySettings, Settings, WorkerSettings
from tests.engine.scripted_provider import ScriptedProvider, event
from tests.engine.waiting import PATIENCE, at_once, stays, until
from tests.recorded_release import RecordedRelease
from tests.redis_servers import AnyServer
from workers.handlers.protocol import Handler
from workers.handlers.registry import HandlerRegistry
from workers.runtime.janitor import Janitor
from workers.runtime.retry_policy import outcome_of, settlement
from workers.runtime.worker import Worker

T = TypeVar("T")
LEASE = timedelta(seconds=60)

QUICK = Settings(
    worker=WorkerSettings(concurrency=64, lease=timedelta(seconds=10), attempt_timeout=timedelta(seconds=8)),
    retry=RetrySettings(
        base=timedelta(milliseconds=10),
        cap=timedelta(milliseconds=50),
        blocked_base=timedelta(milliseconds=10),
        blocked_cap=timedelta(milliseconds=50),
    ),
)


@dataclass(slots=True)
class RunningWorker:
    """A worker under way, with connections of its own, as a process of its own would have.

    `moves` and `trips` count what it sent: moves by name, and all round trips but those of blocking reads.
    """

    worker: Worker
    installation: Installation
    task: asyncio.Task[None]
    moves: Counter[str]
    trips: Counter[str]

    @property
    def name(self) -> str:
        return self.worker.name

    async def stop(self, within: timedelta = PATIENCE) -> None:
        """The orderly end, as after a first signal."""
        self.worker.stop()
        async with asyncio.timeout(within.total_seconds()):
            await self.task

    async def crash(self) -> None:
        """The end of a killed process: nothing more is written, nothing is handed back."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self.task
        await self.installation.aclose()


class EngineUnderTest:
    def __init__(self, server: AnyServer, redis: RedisSettings) -> None:
        self.server = server
        self._offset = timedelta(0)
        self._stands_at: timedelta | None = None
        self.settings = msgspec.structs.replace(QUICK, redis=redis)
        self.running: list[RunningWorker] = []
        self._installed: list[Installation] = []
        self._names = itertools.count(1)
        self.installation = self.install()

    # ---- taking part

    def change(self, section: str, **values: Any) -> None:
        """Other settings, for what is started from now on."""
        changed = msgspec.structs.replace(getattr(self.settings, section), **values)
        self.settings = msgspec.structs.replace(self.settings, **{section: changed})

    def install(
        self,
        settings: Settings | None = None,
        scripts: Scripts | None = None,
        patience: timedelta | None = None,
    ) -> Installation:
        installation = Installation(
            settings or self.settings, scripts=scripts, clock_offset=lambda: self.offset, patience=patience
        )
        self._installed.append(installation)
        return installation

    async def arrive(self) -> None:
        """What the first process does: epoch, shard count, group."""
        await EpochTracker(self.installation.shards).check()

    async def start(
        self,
        provider: ScriptedProvider | None = None,
        *,
        release: Handler | None = None,
        others: Iterable[Handler] = (),
        scripts: Scripts | None = None,
        ready: bool = True,
        **worker: Any,
    ) -> RunningWorker:
        """A worker; what is given by name are settings of its `worker` section."""
        provider = provider if provider is not None else ScriptedProvider()
        name = worker.pop("name", None) or f"worker-{next(self._names)}"
        own = msgspec.structs.replace(self.settings.worker, name=name, **worker)
        installation = self.install(msgspec.structs.replace(self.settings, worker=own), scripts=scripts)
        registry = HandlerRegistry([provider, release or RecordedRelease(), *others], {"*": provider})
        moves, trips = _tap(installation)
        made = Worker(installation, registry)
        running = RunningWorker(made, installation, asyncio.create_task(made.run(), name=name), moves, trips)
        self.running.append(running)
        if ready:
            await self.until(f"{name} is ready", lambda: at_once(made.ready))
        return running

    async def close(self) -> None:
        for running in self.running:
            await running.crash()
        for installation in self._installed:
            await installation.aclose()

    # ---- time

    @property
    def offset(self) -> timedelta:
        """What scripts add to the server's time."""
        return self._offset if self._stands_at is None else self._stands_at - _wall_clock()

    @offset.setter
    def offset(self, value: timedelta) -> None:
        self._offset = value
        if self._stands_at is not None:
            self._stands_at = _wall_clock() + value

    def stop_clock(self) -> None:
        """From now on time passes only where a test changes the offset, but for the moment that a call takes."""
        self._stands_at = _wall_clock() + self._offset

    async def silence_entries(self, for_: timedelta) -> None:
        """Delivered entries look as if they had been idle for so long. Idle times are the server's own: no offset
        moves them."""
        for shard in self.installation.shards:
            stream = shard.stem + "events"
            for entry in await self.client.xpending_range(stream, "planners", "-", "+", 1000):
                await self.client.xclaim(
                    stream, "planners", entry["consumer"], 0, [entry["message_id"]],
                    idle=int(for_ / timedelta(milliseconds=1)), justid=True,
                )  # fmt: skip

    # ---- acting

    async def publish(self, *events: Event) -> None:
        answers = await self.installation.publish(events)
        assert {answer.state for answer in answers} <= {"added"}

    def shard(self, one: Event | str) -> Shard:
        """The shard of an event, a deletion id or a job id."""
        deletion = one.deletion if isinstance(one, Event) else one.partition("#")[0]
        return self.installation.shard_of(deletion)

    def beside(self, one: Event, name: str, **fields: object) -> Event:
        """Another event that falls to the same shard."""
        others = (event(f"{name}{number}", **fields) for number in itertools.count())
        return next(other for other in others if self.shard(other) is self.shard(one))

    async def deliver(self, one: Event) -> str:
        """Publish and read as a planner called `hand` would; the answer is the entry."""
        await self.publish(one)
        return await self._read(one)

    async def _read(self, one: Event) -> str:
        shard = self.shard(one)
        ((_, ((entry, _),)),) = await self.client.xreadgroup("planners", "hand", {shard.stem + "events": ">"}, count=1)
        return str(entry.decode())

    async def lay(self, one: Event, targets: Iterable[Target], *, published: bool = False) -> dict[str, str]:
        """Publish, unless it is published, and plan by hand, without a worker: target -> job id."""
        entry = await self._read(one) if published else await self.deliver(one)
        arranged = lay_out_plan(one, targets, self.settings.retry.best_effort_deadline)
        shard = self.shard(one)
        answer = await shard.plan_whole(one, entry, arranged)
        assert answer.state == "planned"
        while (await shard.open_stages())[1]:
            pass
        return {target: job for job, target in await self.targets_of(one)}

    async def take(
        self, one: Event | str, worker: str, lane: str, count: int = 100, *, lease: timedelta = LEASE,
        cap: int = 1000, alone: str = "", version: int = VERSION,
    ) -> Taken:  # fmt: skip
        """Take by hand, without budgets."""
        want = LaneRequest(lane, count, count, cap, 0, alone)
        return await self.shard(one).take(worker, lease, [want], version)

    async def settle(self, taken: Taken, worker: str, verdict: Verdict | Exception) -> list[bool]:
        """Settle by hand everything that was taken; the answer says what was accepted."""
        accepted: list[bool] = []
        for lane in taken.lanes:
            jobs = [
                Job(job, lane.fence, decode_job_record(record))
                for job, record in zip(lane.jobs, lane.records, strict=True)
            ]
            items = [
                settlement(
                    job, lane.lane, outcome_of(job, verdict, self.settings.retry, taken.now), called=True, of=len(jobs)
                )
                for job in jobs
            ]
            answer = await self.shard(jobs[0].id).settle(worker, items)
            accepted += [bool(fence) for fence in answer.accepted]
        return accepted

    def finding(self, taken: Taken, targets: Sequence[Target]) -> LateTargets:
        """What a worker sends for the first job that it took, when that found more targets."""
        lane = taken.lanes[0]
        job = Job(lane.jobs[0], lane.fence, decode_job_record(lane.records[0]))
        outcome = outcome_of(job, Found(tuple(targets), "more", "where to go on"), self.settings.retry, taken.now)
        item = settlement(job, lane.lane, outcome, called=False, of=len(lane.jobs))
        rows = lay_out_late_targets(targets, job.record.urgent, self.settings.retry.best_effort_deadline)
        return LateTargets(item, rows)

    async def reclaim(self, one: Event) -> list[str]:
        """What any worker's reclaimer does, now: the jobs that are given back."""
        return (await self.shard(one).reclaim(silence=LEASE / 2)).given_back

    async def tidy(self) -> None:
        """A whole round of every shard's janitor, now."""
        for shard in self.installation.shards:
            await Janitor(shard, self.settings, "janitor").whole_round()

    async def lose_plan(self, one: Event) -> None:
        """The records of a plan's jobs are lost, and the janitor has the deletion planned anew."""
        plan = (await self.deletion(one))["plan"]
        assert await self.client.delete(f"{self.shard(one).stem}job:{one.deletion}#{plan}") == 1

        async def noticed() -> bool:
            await self.tidy()
            return one.deletion in await self.decisions("planned anew")

        await self.jump(timedelta(minutes=1))
        await self.until(f"{one.deletion} is to be planned anew", noticed)

    async def until_next_plan(self, one: Event) -> None:
        async def planned() -> bool:
            return int((await self.deletion(one)).get("plan", 1)) > 1

        await self.until(f"{one.deletion} is planned anew", planned)

    async def abandon(self, one: Event, target: str) -> str:
        """Abandons the job of a target; returns its id."""
        (job,) = [job for job, name in await self.targets_of(one) if name == target]
        assert await self.shard(one).abandon(job, "somebody") == "abandoned"
        return job

    async def jump(self, by: timedelta) -> None:
        """The clock goes on (or back) at once, and everyone asleep looks at it."""
        self.offset += by
        for shard in self.installation.shards:
            await self.client.xadd(shard.stem + "wake", {"next": 0})

    # ---- waiting

    async def until(self, what: str, look: Callable[[], Awaitable[T]], within: timedelta = PATIENCE) -> T:
        """Waits, and tells at once if a worker died of a fault meanwhile."""

        async def watched() -> T:
            for running in self.running:
                if running.task.done() and not running.task.cancelled():
                    running.task.result()
            return await look()

        return await until(what, watched, within)

    async def until_done(self, *events: Event, within: timedelta = PATIENCE) -> None:
        async def done() -> bool:
            return all([await self.state(one) == "done" for one in events])

        try:
            await self.until(f"{len(events)} deletions are done", done, within)
        except AssertionError as error:
            for one in events:
                if await self.state(one) != "done":
                    error.add_note(await self._story(one))
                    break
            raise

    async def _story(self, one: Event) -> str:
        """For a failure: what is stored of a deletion and its jobs, and what was decided."""
        record = await self.deletion(one)
        jobs = await self.hash(f"{self.shard(one).stem}job:{one.deletion}#{record.get('plan', '')}")
        decisions = [f"{entry['what']} {entry['id']}: {entry['why']}" for entry in await self.audit("decision")]
        return f"{one.deletion}: {record}\njobs: {dict(list(jobs.items())[:5])}\ndecided: {decisions[-10:]}"

    async def stays(self, what: str, look: Callable[[], Awaitable[bool]], during: timedelta) -> None:
        await stays(what, look, during)

    # ---- looking

    @property
    def client(self) -> Any:
        """The library's client; its methods answer in the same shapes for every kind of server."""
        return self.installation.connections.client

    async def hash(self, key: str) -> dict[str, str]:
        answer = await self.client.hgetall(key)
        return {name.decode(): value.decode(errors="replace") for name, value in answer.items()}

    async def deletion(self, one: Event | str) -> dict[str, str]:
        id_ = one.deletion if isinstance(one, Event) else one
        return await self.hash(self.shard(one).stem + "deletion:" + id_)

    async def state(self, one: Event | str) -> str | None:
        return (await self.deletion(one)).get("state")

    async def job(self, job: str) -> dict[str, str]:
        """A job's record as text fields; what goes without saying may be missing."""
        plan, _, number = job.rpartition(".")
        text = await self.client.hget(self.shard(job).stem + "job:" + plan, number)
        return {name: str(value) for name, value in json.loads(text).items()} if text else {}

    async def rewrite(self, job: str, text: str | None = None, **changes: object) -> None:
        """Another hand changes a job's stored record: fields of it, or all."""
        plan, _, number = job.rpartition(".")
        key = self.shard(job).stem + "job:" + plan
        if text is None:
            text = json.dumps(json.loads(await self.client.hget(key, number)) | changes, separators=(",", ":"))
        await self.client.hset(key, number, text)

    async def jobs_of(self, one: Event) -> list[str]:
        """The ids of a planned deletion's jobs; the last one is its release."""
        record = await self.deletion(one)
        release = int(record[f"stage.{record['release']}"].split()[1])
        late = range(release + 1, release + 1 + int(record.get("late", 0)))
        return [f"{one.deletion}#{record['plan']}.{number}" for number in (*range(release), *late, release)]

    async def targets_of(self, one: Event) -> list[tuple[str, str]]:
        """Job and target of everything that a deletion's plan holds."""
        plan = f"{one.deletion}#{(await self.deletion(one))['plan']}"
        records = await self.hash(f"{self.shard(one).stem}job:{plan}")
        return [(f"{plan}.{number}", json.loads(text)["target"]) for number, text in records.items()]

    async def members(self, name: str) -> dict[str, float]:
        """A sorted set, over all shards."""
        found: dict[str, float] = {}
        for shard in self.installation.shards:
            for member, score in await self.client.zrange(shard.stem + name, 0, -1, withscores=True):
                found[member.decode()] = float(score)
        return found

    async def queue(self, lane: str) -> dict[str, float]:
        """Job -> due time in a lane, urgent or not."""
        return await self.members(f"lane:{lane}") | await self.members(f"lane:{lane}:urgent")

    async def leases(self, lane: str) -> dict[str, float]:
        """Job -> fencing token of leased jobs."""
        return await self.members(f"leases:{lane}")

    async def holders(self, lane: str) -> dict[str, str]:
        """Job -> worker of leased jobs. A job that was settled between the two reads is left out."""
        leases = await self.leases(lane)
        batches = [name.split() for name in await self.members("batches")]
        workers = {float(fence): worker for fence, of, worker in batches if of == lane}
        return {job: workers[fence] for job, fence in leases.items() if fence in workers}

    async def stats(self) -> dict[str, float]:
        """The numbers for dashboards, summed over all shards."""
        sums: dict[str, float] = {}
        for shard in self.installation.shards:
            for name, value in (await self.hash(shard.stem + "stats")).items():
                sums[name] = sums.get(name, 0) + float(value)
        return sums

    async def audit(self, kind: str | None = None) -> list[dict[str, str]]:
        found = []
        for shard in self.installation.shards:
            for _, raw in await self.client.xrange(shard.stem + "audit"):
                entry = {name.decode(): value.decode() for name, value in raw.items()}
                if kind is None or entry["entry"] == kind:
                    found.append(entry)
        return found

    async def decisions(self, what: str) -> list[str]:
        """The ids that a kind of decision was about."""
        return [entry["id"] for entry in await self.audit("decision") if entry["what"] == what]

    async def meta(self, shard: int = 0) -> dict[str, str]:
        return await self.hash(self.installation.shards[shard].stem + "meta")

    async def budget(self, place: str = "sim/acct") -> dict[str, str]:
        return await self.hash(self.installation.keys.budget(place))

    async def entries(self) -> list[str]:
        """The entries of the events streams."""
        found = []
        for shard in self.installation.shards:
            found += [entry.decode() for entry, _ in await self.client.xrange(shard.stem + "events")]
        return found

    async def pending(self) -> int:
        """Entries that were delivered to a planner and are not yet planned."""
        total = 0
        for shard in self.installation.shards:
            total += int((await self.client.xpending(shard.stem + "events", "planners"))["pending"])
        return total

    async def now(self) -> int:
        """The server's time in milliseconds, as scripts see it."""
        seconds, micros = await self._time()
        return int(seconds) * 1000 + int(micros) // 1000 + int(self.offset / timedelta(milliseconds=1))

    async def _time(self) -> tuple[int, int]:
        options = {}
        if hasattr(self.client, "get_node_from_key"):
            await self.client.initialize()
            options["target_nodes"] = self.client.get_node_from_key(self.installation.shards[0].stem + "meta")
        answer: tuple[int, int] = await self.client.time(**options)
        return answer


def _tap(installation: Installation) -> tuple[Counter[str], Counter[str]]:
    """Counts what passes through a process's ordinary client, and changes nothing about it."""
    moves, trips = Counter[str](), Counter[str]()
    move, execute = installation.caller.move, installation.connections.client.execute_command

    async def counted_move(name: str, *args: Any, **options: Any) -> bytes:
        moves[name] += 1
        return await move(name, *args, **options)

    async def counted_command(*words: Any, **options: Any) -> Any:
        trips[str(words[0])] += 1
        return await execute(*words, **options)

    installation.caller.move = counted_move  # type: ignore[method-assign]
    installation.connections.client.execute_command = counted_command  # type: ignore[method-assign]
    return moves, trips


def _wall_clock() -> timedelta:
    return timedelta(seconds=time.time())
