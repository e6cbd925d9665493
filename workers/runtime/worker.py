"""One worker process: all its loops under one root task group, from arrival to an orderly end.

A loop that fails stops the process; Kubernetes starts it again. A first signal takes nothing new and finishes what
is in hand, a second one ends at once.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

import structlog

from service.engine.attendance import Attendance, before_stop
from service.engine.engine import Shard
from service.engine.installation import Installation
from service.engine.rows import Settlement
from service.engine.wakeups import WakeUps
from service.settings import Settings
from workers.handlers.registry import Registry
from workers.runtime.attempts import Bench, Pilot
from workers.runtime.caps import Caps
from workers.runtime.clock import ServerClock
from workers.runtime.crew import Crew
from workers.runtime.feedback import Reports
from workers.runtime.flight import Flights
from workers.runtime.gate import Gate
from workers.runtime.janitor import Janitor
from workers.runtime.keeper import Keeper
from workers.runtime.pace import Pace
from workers.runtime.planning import Planning
from workers.runtime.reclaimer import Reclaimer
from workers.runtime.settler import Settler
from workers.runtime.tally import Tally

log = structlog.get_logger(__name__)
PILOTS = 4
ATTENDANCE = 5.0
"""Seconds between two looks at the epoch, when nothing gives reason for one."""


class Stopped(Exception):
    """Raised inside the root group to end the loops that go on for ever."""


class Worker:
    def __init__(self, installation: Installation, registry: Registry, *, pilots: int = PILOTS) -> None:
        self.installation, self.registry = installation, registry
        self.settings: Settings = installation.settings
        self.name = self.settings.worker.name
        self.crew = Crew(self.settings.worker.concurrency)
        self.attendance = Attendance(installation.shards)
        self.tally = Tally()
        self.on_settled: Callable[[list[Settlement], list[int]], None] | None = None
        self.ready = False
        self._pilots = pilots
        self._stop = asyncio.Event()
        self._doubt = asyncio.Event()
        self._benches: list[Bench] = []
        self._plannings: list[Planning] = []
        self._settlers: list[Settler] = []

    def stop(self) -> None:
        """Take nothing new, finish, and go."""
        if not self._stop.is_set():
            log.info("stopping", worker=self.name, in_hand=self.crew.busy)
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop; the second one ends at once."""
        loop = asyncio.get_running_loop()

        def heard(number: signal.Signals) -> None:
            if self._stop.is_set():
                log.warning("second signal, ending at once", signal=number.name)
                # Not by cancelling: what waits for a server that is away would go on waiting. Leases run out.
                os._exit(128 + number)
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, heard, number)

    async def run(self) -> None:
        """Work until stopped."""
        if not await before_stop(self._stop, self.attendance.attend()):
            return
        where = self.settings.redis
        log.info("working", worker=self.name, redis=where.described(), shards=where.shards)
        with contextlib.suppress(Stopped):
            try:
                async with asyncio.TaskGroup() as root:
                    for shard in self.installation.shards:
                        await self._begin(root, shard)
                    if self.registry.listener is not None:
                        root.create_task(self.registry.listener.run())
                    for errand in self.registry.errands:
                        root.create_task(errand())
                    root.create_task(self._watch_server())
                    root.create_task(self._end(root))
                    self.ready = True
            except* Stopped:
                pass
            finally:
                for bench in self._benches:
                    await bench.gate.aclose()
                await self.registry.aclose()
        self.ready = False
        log.info("stopped", worker=self.name)

    async def _begin(self, root: asyncio.TaskGroup, shard: Shard) -> None:
        installation, settings = self.installation, self.settings
        clock = ServerClock()
        wakeups = WakeUps(installation.connections.blocking(), installation.keys, shard.number)
        reports = Reports(installation.budgets, self._wake)
        reports.attach(root)
        flights = Flights()
        pace = Pace(self.crew)
        settler = Settler(shard, self.name, pace, self._settled)
        gate = Gate(installation.caller, installation.keys, shard.number, self.name, clock, self.registry.consent)
        bench = Bench(
            shard, installation.budgets, self.registry, settings, self.name, self.crew, Caps(settings.worker), clock,
            gate, reports, settler, flights, wakeups, root, self.tally, pace,
        )  # fmt: skip
        planning = Planning(
            shard, installation.connections.blocking(), self.registry, settings, self.name, self.crew,
            self.tally,
        )  # fmt: skip
        wakeups.breathe = pace.more
        wakeups.on_loss = planning.on_loss = self._doubt.set
        self._benches.append(bench)
        self._plannings.append(planning)
        self._settlers.append(settler)
        keeper = Keeper(shard, settings.worker, self.name, flights)
        # A heartbeat before anything is taken: who dies with it has to be known.
        await keeper.renew()
        for loop in (
            wakeups.run(), settler.run(), planning.run(root), planning.write(), planning.claim(), planning.keep(),
            keeper.run(), Reclaimer(shard, settings.worker, clock, planning.silent.set).run(),
            Janitor(shard, settings, self.name).run(),
            *(Pilot(bench).run() for _ in range(self._pilots)),
        ):  # fmt: skip
            root.create_task(loop)

    def _settled(self, items: list[Settlement], accepted: list[int]) -> None:
        listener = self.registry.listener
        late: list[str] = []
        kinds: dict[str, int] = {}
        outcomes: dict[str, list[str]] = {}
        for item, fence in zip(items, accepted, strict=True):
            if fence:
                kinds[item.kind] = kinds.get(item.kind, 0) + 1
                outcomes.setdefault(item.note, []).append(item.job)
                if listener is not None and (item.shown or item.was):
                    listener.heard(item.job)
            else:
                late.append(item.job)
        self.tally.late += len(late)
        self.tally.settled.update(kinds)
        for note, jobs in outcomes.items():
            log.info("outcome", outcome=note, count=len(jobs), jobs=" ".join(jobs))
        if late:
            log.warning("settled too late, changed nothing", jobs=late)
        if self.on_settled is not None:
            self.on_settled(items, accepted)

    async def _wake(self, place: str) -> None:
        for shard in self.installation.shards:
            await shard.wake(place)

    async def _watch_server(self) -> None:
        """Look whether the server is still the one we knew: when there is reason to doubt it, and now and then, because
        one that was emptied or quickly restarted need not show itself by a lost connection."""
        self.installation.caller.on_return.append(self._doubt.set)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ATTENDANCE):
                    await self._doubt.wait()
            doubted = self._doubt.is_set()
            self._doubt.clear()
            if await self.attendance.attend() or doubted:
                for bench in self._benches:
                    bench.wakeups.poke()

    async def _end(self, root: asyncio.TaskGroup) -> None:
        await self._stop.wait()
        self.ready = False
        self.crew.stop()
        for bench in self._benches:
            bench.wakeups.poke()
        grace = self.settings.worker.grace.total_seconds()
        try:
            async with asyncio.timeout(grace):
                for planning in self._plannings:
                    await planning.finish()
                await self.crew.empty()
        except TimeoutError:
            log.warning("grace period over, handing back", in_hand=self.crew.busy)
            for bench in self._benches:
                bench.flights.cancel_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5 + grace / 5):
                await self.crew.empty()
                for settler in self._settlers:
                    await settler.drained()
                for planning in self._plannings:
                    await planning.hand_back()
                for shard in self.installation.shards:
                    await self.installation.caller.command("ZREM", shard.stem + "workers", self.name)
                if self.registry.listener is not None:
                    await self.registry.listener.drained()
        raise Stopped
