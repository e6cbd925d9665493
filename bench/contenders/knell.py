"""Knell itself, measured by the same protocol as every contender.

`fill` puts whole deletions into their lanes, as the peers' jobs lie in their queues: ten jobs and a release each, the
jobs in three of 20 lanes (4, 4 and 2, as load balancers, target groups and security groups of a cluster are), with
finite budgets, audit and stats on. `jobs` counts what the worker runs, releases included."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders import (
    admission,
    clearing,
    collecting,
    knell_clearing,
    knell_collecting,
    knell_identifiers,
    watching,
)
from bench.contenders.knell_collecting import RESERVE
from bench.contenders.process import ProcessContender
from bench.contenders.protocol import (
    Admitted,
    Cleaned,
    Collected,
    Drains,
    Kind,
    Orphans,
    Outlasted,
    PacedDeletions,
    Released,
    RemovedByIdentifier,
    Reservations,
)
from bench.order import Finding

SWEPT: Final = timedelta(seconds=100)
SWEPT_OFTEN: Final = timedelta(seconds=2)
"""How often it looks for what no event told, which it does every five minutes by default: found is found."""


class Knell(ProcessContender):
    name = "knell"
    kind: Kind = "knell"
    settings = (
        "deletions of ten jobs in three lanes (4, 4 and 2) plus release, 20 lanes in all, finite budgets, audit, stats "
        "and log on, batches of 100, up to 4,000 jobs in hand, uvloop; objects of a cluster: default settings, both "
        "sides and their surface in one process, one job and a release per object, guard, Events and conditions off; "
        "admission: one `knell webhook` with default settings that is asked about objects, too; "
        "AWS: `knell run` with default settings, but the guard is off, durations and rates of limits are scaled as "
        "time is, and capacities of limits are lower by what calls on their way need at those rates; ACK: default "
        "settings, but the guard is off, there is no grace period, and Cloud Control's quota is declared; Azure: as "
        "AWS, "
        f"nothing of any quota is left to others (azure.reserve: {RESERVE:g}), a sweep every {SWEPT.total_seconds():g} "
        f"s of the subscription's time (for reservations every {SWEPT_OFTEN.total_seconds():g} s), and no limits of "
        "reads where the subscription has none"
    )
    jobs = 110_000
    enqueue_jobs = 100_000
    most_parked = 1_000_000

    def fill(self, server: BenchServer, jobs: int) -> None:
        self._put(server, "schedule", jobs)

    def version(self) -> str:
        return "this clone"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.contenders.knell_process"]

    def release(self, server: BenchServer, objects: int) -> Released:
        return watching.release(self.name, _WATCHING, {}, server, objects)

    def take_over(self, server: BenchServer, *, in_order: bool) -> float:
        return watching.take_over(self.name, _WATCHING, server, in_order=in_order)

    def watch(self, server: BenchServer, objects: int) -> int | None:
        return watching.watch(self.name, _WATCHING, {}, server, objects)

    def admit(self, server: BenchServer, deletions: PacedDeletions) -> Admitted:
        return admission.admit_by_webhook(server, deletions)

    def clean(self, server: BenchServer, finding: Finding, clusters: int) -> Cleaned:
        return clearing.clean(partial(knell_clearing.begin, server), finding, clusters)

    def outlast(self, server: BenchServer, drains: Drains) -> Outlasted:
        return clearing.outlast(partial(knell_clearing.begin, server), drains)

    def remove(self, server: BenchServer, resources: int) -> RemovedByIdentifier:
        return knell_identifiers.remove(server, resources)

    def collect(self, server: BenchServer, orphans: Orphans) -> Collected:
        return collecting.collect(partial(knell_collecting.begin, server, SWEPT), orphans)

    def outwait(self, server: BenchServer, reservations: Reservations) -> list[float]:
        return collecting.outwait(partial(knell_collecting.begin, server, SWEPT_OFTEN), reservations, 1.0)


_WATCHING: Final = (sys.executable, "-m", "bench.contenders.knell_watching")
