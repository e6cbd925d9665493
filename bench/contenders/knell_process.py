"""Knell's producer and worker for the bench: real moves, a real worker, and a handler that does nothing.

Deletions of ten jobs of three kinds plus their release in 20 lanes, finite budgets, audit and stats on, log lines
written.
"""

from __future__ import annotations

# First of all, as the command does it: the logs decide how structlog is imported.
from service.logs import configure  # isort: skip

import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta

from bench.order import Order
from bench.peers.loops import fastest_loop
from bench.peers.tally import Tally, answer
from service import python_gc
from service.contract import Draw, Event, Gone, Hold, Job, Limit, Plan, Target, Verdict
from service.engine.epoch import EpochTracker
from service.engine.installation import Installation
from service.engine.plan_layout import lay_out_plan
from service.engine.script_arguments import PlanRow, plan_rows
from service.settings import load
from tests.recorded_release import RecordedRelease
from workers.handlers.protocol import Batch
from workers.handlers.registry import HandlerRegistry
from workers.runtime.worker import Worker

LANES = 20
EACH = 10
# A cluster leaves several resources of each kind, and resources of a kind share a lane.
ALIKE = 4
DEADLINE = timedelta(hours=24)


def installation(order: Order) -> Installation:
    settings = load(
        None,
        {
            "KNELL_REDIS_URL": order.url,
            "KNELL_WORKER_CONCURRENCY": "4000",
            "KNELL_WORKER_LANE_CAP": "400",
            "KNELL_LOG_FORMAT": "json",
        },
    )
    configure(settings.log)
    return Installation(settings)


def events(count: int, order: Order) -> list[Event]:
    cluster = order.fields["deletion"].split("/")[0]
    return [
        Event(
            cluster=cluster, resource="clusters.cluster.x-k8s.io", uid=uuid.uuid4().hex[:8], round=number + 1,
            name=order.fields["object"].split("/")[1], namespace="team-a", source="bench",
        )
        for number in range(count)
    ]  # fmt: skip


def targets(event: Event, order: Order, number: int, due: Sequence[float], now: float) -> Iterable[Target]:
    fields = order.fields
    stem = f"aws/{fields['account']}/{fields['region']}/ec2.DeleteSecurityGroup"
    for place in range(EACH if not due else len(due)):
        after = timedelta(seconds=max(0.0, due[place] - now)) if due else timedelta(0)
        yield Target(
            kind=fields["kind"],
            id=fields["target"],
            lane=f"{stem}.{(number + place // ALIKE) % LANES}",
            after=after,
            data=repr(due[place]) if due else "",
        )


class NoopHandler:
    """Does nothing, ten thousand times a second."""

    def __init__(self, order: Order, tally: Tally) -> None:
        self.kind = order.fields["kind"]
        self._tally = tally
        self._draws = (Draw(Limit.bucket("ec2.DeleteSecurityGroup", 10_000_000, 1_000_000)),)

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._draws if lane.startswith("aws/") else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        await batch.clear(*batch.jobs)
        for job in batch.jobs:
            self._tally.ran(float(job.data) if job.data else None)
            yield job, Gone()


class CountedRelease(RecordedRelease):
    """The release is a job like any other: it counts."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        async for job, verdict in super().attempt(batch):
            self._tally.ran()
            yield job, verdict


class NoPlanner:
    async def plan(self, event: Event) -> Plan | Hold:
        return Hold("the bench plans beforehand")


async def publish(order: Order) -> None:
    engine = installation(order)
    await EpochTracker(engine.shards).check()
    batch = events(order.jobs, order)
    started = time.perf_counter()
    await engine.publish(batch)
    answer(seconds=time.perf_counter() - started)
    await engine.aclose()


async def plan(order: Order) -> None:
    """Jobs that wait in their lanes, due now or at the times of the schedule."""
    engine = installation(order)
    await EpochTracker(engine.shards).check()
    due = order.due_times() if order.start else []
    # Whole deletions: ten jobs and a release each. Scheduled ones are counted without their releases.
    count = -(-order.jobs // EACH) if due else order.jobs // (EACH + 1)
    started = time.perf_counter()
    part: list[PlanRow] = []
    for number, event in enumerate(events(count, order)):
        mine = due[number * EACH : (number + 1) * EACH]
        arranged = lay_out_plan(event, targets(event, order, number, mine, time.time()), DEADLINE)
        part.extend(plan_rows(event, "", arranged))
        if len(part) == (10 if due and order.gap >= 0.005 else 80):
            await engine.shards[0].plan(part)
            part = []
    if part:
        await engine.shards[0].plan(part)
    answer(seconds=time.perf_counter() - started)
    await engine.aclose()


async def work(order: Order) -> None:
    tally = Tally(order)
    release = RecordedRelease() if order.task == "lateness" else CountedRelease(tally)
    # As the command does it.
    python_gc.collect_rarely()
    worker = Worker(installation(order), HandlerRegistry([NoopHandler(order, tally), release], {"*": NoPlanner()}))
    await worker.run()


if __name__ == "__main__":
    mission = Order.decode(sys.argv[1])
    run = fastest_loop()
    if mission.task == "enqueue":
        run(publish(mission))
    elif mission.task == "schedule":
        run(plan(mission))
    else:
        run(work(mission))
