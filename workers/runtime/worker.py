"""Worker process: starts all loops in one root task group and shuts them down in order.

A loop that fails stops the process, and Kubernetes restarts it. On the first signal the worker takes nothing new and
finishes running jobs; the second signal ends it at once.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

import structlog

from service.engine.epoch import EpochTracker, run_unless_stopped
from service.engine.installation import Installation
from service.engine.script_arguments import JobSettlement
from service.engine.shard import Shard
from service.engine.wakeups import WakeUps
from service.settings import Settings
from workers.handlers.registry import HandlerRegistry
from workers.runtime.attempt_loop import AttemptLoop, WorkerContext
from workers.runtime.batch_delay import BatchDelay
from workers.runtime.budget_feedback import BudgetFeedback
from workers.runtime.clearance import Clearance
from workers.runtime.counters import WorkerCounters
from workers.runtime.janitor import Janitor
from workers.runtime.lease_renewer import LeaseRenewer
from workers.runtime.leased_batch import LeasedBatches
from workers.runtime.planner_loop import PlannerLoop
from workers.runtime.reclaimer import Reclaimer
from workers.runtime.server_clock import ServerClock
from workers.runtime.settlement_writer import SettlementWriter
from workers.runtime.slots import LaneCaps, WorkerSlots

log = structlog.get_logger(__name__)
ATTEMPT_LOOPS = 4
EPOCH_CHECK_EVERY = 5.0
"""Seconds between two checks of the server's epoch when no connection was lost."""


class WorkerStopped(Exception):
    """Raised inside the root group to end the endless loops."""


class Worker:
    def __init__(
        self, installation: Installation, registry: HandlerRegistry, *, attempt_loops: int = ATTEMPT_LOOPS
    ) -> None:
        self.installation, self.registry = installation, registry
        self.settings: Settings = installation.settings
        self.name = self.settings.worker.name
        self.slots = WorkerSlots(self.settings.worker.concurrency)
        self.epochs = EpochTracker(installation.shards)
        self.counters = WorkerCounters()
        self.on_settled: Callable[[list[JobSettlement], list[int]], None] | None = None
        self.ready = False
        self._attempt_loops = attempt_loops
        self._stop = asyncio.Event()
        self._epoch_doubt = asyncio.Event()
        self._contexts: list[WorkerContext] = []
        self._planner_loops: list[PlannerLoop] = []
        self._settlement_writers: list[SettlementWriter] = []

    def stop(self) -> None:
        """Take nothing new, finish running jobs, and end."""
        if not self._stop.is_set():
            log.info("stopping", worker=self.name, in_hand=self.slots.busy)
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
                # Not by cancelling: calls that wait for an unavailable server would go on waiting. Leases expire.
                os._exit(128 + number)
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, heard, number)

    async def run(self) -> None:
        """Work until stopped."""
        if not await run_unless_stopped(self._stop, self.epochs.check()):
            return
        where = self.settings.redis
        log.info("working", worker=self.name, redis=where.described(), shards=where.shards)
        with contextlib.suppress(WorkerStopped):
            try:
                async with asyncio.TaskGroup() as root:
                    for shard in self.installation.shards:
                        await self._begin(root, shard)
                    if self.registry.listener is not None:
                        root.create_task(self.registry.listener.run())
                    for task in self.registry.background_tasks:
                        root.create_task(task())
                    root.create_task(self._watch_server())
                    root.create_task(self._end(root))
                    self.ready = True
            except* WorkerStopped:
                pass
            finally:
                for context in self._contexts:
                    await context.clearance.aclose()
                await self.registry.aclose()
        self.ready = False
        log.info("stopped", worker=self.name)

    async def _begin(self, root: asyncio.TaskGroup, shard: Shard) -> None:
        installation, settings = self.installation, self.settings
        clock = ServerClock()
        wakeups = WakeUps(installation.connections.blocking(), installation.keys, shard.number)
        feedback = BudgetFeedback(installation.budgets, self._wake)
        feedback.attach(root)
        batches = LeasedBatches()
        delay = BatchDelay(self.slots)
        settlements = SettlementWriter(shard, self.name, delay, self._settled)
        clearance = Clearance(
            installation.caller, installation.keys, shard.number, self.name, clock, self.registry.consent
        )
        context = WorkerContext(
            shard, installation.budgets, self.registry, settings, self.name, self.slots, LaneCaps(settings.worker),
            clock, clearance, feedback, settlements, batches, wakeups, root, self.counters, delay,
        )  # fmt: skip
        planner_loop = PlannerLoop(
            shard, installation.connections.blocking(), self.registry, settings, self.name, self.slots,
            self.counters,
        )  # fmt: skip
        wakeups.between_reads = delay.before_batch
        wakeups.on_loss = planner_loop.on_loss = self._epoch_doubt.set
        self._contexts.append(context)
        self._planner_loops.append(planner_loop)
        self._settlement_writers.append(settlements)
        renewer = LeaseRenewer(shard, settings.worker, self.name, batches)
        # A heartbeat before any job is taken, so that this worker's death is noticed.
        await renewer.renew()
        for loop in (
            wakeups.run(), settlements.run(),
            planner_loop.run(root), planner_loop.write(), planner_loop.claim(), planner_loop.keep_alive(),
            renewer.run(), Reclaimer(shard, settings.worker, clock, planner_loop.dead_worker.set).run(),
            Janitor(shard, settings, self.name).run(),
            *(AttemptLoop(context).run() for _ in range(self._attempt_loops)),
        ):  # fmt: skip
            root.create_task(loop)

    def _settled(self, items: list[JobSettlement], accepted: list[int]) -> None:
        listener = self.registry.listener
        late: list[str] = []
        kinds: dict[str, int] = {}
        outcomes: dict[str, list[str]] = {}
        for item, fence in zip(items, accepted, strict=True):
            if fence:
                kinds[item.kind] = kinds.get(item.kind, 0) + 1
                outcomes.setdefault(item.note, []).append(item.job)
                if listener is not None and (item.shown or item.was):
                    listener.status_changed(item.job)
            else:
                late.append(item.job)
        self.counters.late += len(late)
        self.counters.settled.update(kinds)
        for note, jobs in outcomes.items():
            log.info("outcome", outcome=note, count=len(jobs), jobs=" ".join(jobs))
        if late:
            log.warning("settled too late, changed nothing", jobs=late)
        if self.on_settled is not None:
            self.on_settled(items, accepted)

    async def _wake(self, place: str) -> None:
        for shard in self.installation.shards:
            await shard.wake_lanes(place)

    async def _watch_server(self) -> None:
        """Checks that the Redis server still has our data: after a lost connection, and periodically, because a server
        that was emptied or quickly restarted does not always drop connections."""
        self.installation.caller.on_available.append(self._epoch_doubt.set)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EPOCH_CHECK_EVERY):
                    await self._epoch_doubt.wait()
            doubted = self._epoch_doubt.is_set()
            self._epoch_doubt.clear()
            if await self.epochs.check() or doubted:
                for context in self._contexts:
                    context.wakeups.notify()

    async def _end(self, root: asyncio.TaskGroup) -> None:
        await self._stop.wait()
        self.ready = False
        self.slots.stop()
        for context in self._contexts:
            context.wakeups.notify()
        grace = self.settings.worker.grace.total_seconds()
        try:
            async with asyncio.timeout(grace):
                for planner_loop in self._planner_loops:
                    await planner_loop.finish()
                await self.slots.wait_empty()
        except TimeoutError:
            log.warning("grace period over, handing back", in_hand=self.slots.busy)
            for context in self._contexts:
                context.batches.cancel_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5 + grace / 5):
                await self.slots.wait_empty()
                for settlements in self._settlement_writers:
                    await settlements.drained()
                for planner_loop in self._planner_loops:
                    await planner_loop.hand_back()
                for shard in self.installation.shards:
                    await self.installation.caller.command("ZREM", shard.stem + "workers", self.name)
                if self.registry.listener is not None:
                    await self.registry.listener.drained()
        raise WorkerStopped
