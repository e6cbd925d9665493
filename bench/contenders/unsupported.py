"""Contender that supports nothing, and says why: the base of all others.

Subclasses override what they can do, and say in a word or two what they lack for the rest."""

from __future__ import annotations

from collections.abc import Callable

from bench.bench_server import BenchServer
from bench.contenders.protocol import (
    Admitted,
    Cleaned,
    Collected,
    Drain,
    Drains,
    Kind,
    NotSupportedError,
    Orphans,
    Outlasted,
    PacedDeletions,
    Released,
    RemovedByIdentifier,
    Reservations,
    Schedule,
)
from bench.order import Finding


class UnsupportedContender:
    name: str
    kind: Kind
    settings: str
    jobs: int = 0
    enqueue_jobs: int = 0
    most_parked: int = 0
    no_jobs: str = "has no jobs"
    no_objects: str = "watches nothing"
    no_admission: str = "judges no deletions"
    no_aws: str = "knows nothing of AWS"
    no_azure: str = "knows nothing of Azure"

    def left_out(self) -> str | None:
        return None

    def version(self) -> str:
        raise NotImplementedError

    def prepare(self, announce: Callable[[str], None]) -> None:
        pass

    # ---- jobs

    def enqueue(self, server: BenchServer, jobs: int) -> float:
        raise NotSupportedError(self.no_jobs)

    def fill(self, server: BenchServer, jobs: int) -> None:
        raise NotSupportedError(self.no_jobs)

    def drain(self, server: BenchServer, jobs: int, before_end: Callable[[], None] | None = None) -> Drain:
        raise NotSupportedError(self.no_jobs)

    def lateness(self, server: BenchServer, schedule: Schedule) -> list[float]:
        raise NotSupportedError(self.no_jobs)

    def park(self, server: BenchServer, jobs: int) -> None:
        raise NotSupportedError(self.no_jobs)

    # ---- objects of a cluster

    def release(self, server: BenchServer, objects: int) -> Released:
        raise NotSupportedError(self.no_objects)

    def take_over(self, server: BenchServer, *, in_order: bool) -> float:
        raise NotSupportedError(self.no_objects)

    def watch(self, server: BenchServer, objects: int) -> int | None:
        raise NotSupportedError(self.no_objects)

    def admit(self, server: BenchServer, deletions: PacedDeletions) -> Admitted:
        raise NotSupportedError(self.no_admission)

    # ---- clouds

    def clean(self, server: BenchServer, finding: Finding, clusters: int) -> Cleaned:
        raise NotSupportedError(self.no_aws)

    def outlast(self, server: BenchServer, drains: Drains) -> Outlasted:
        raise NotSupportedError(self.no_aws)

    def remove(self, server: BenchServer, resources: int) -> RemovedByIdentifier:
        raise NotSupportedError(self.no_aws)

    def collect(self, server: BenchServer, orphans: Orphans) -> Collected:
        raise NotSupportedError(self.no_azure)

    def outwait(self, server: BenchServer, reservations: Reservations) -> list[float]:
        raise NotSupportedError(self.no_azure)


class CloudOnly(UnsupportedContender):
    """It knows one cloud and nothing else; `lacks` says so, for the report."""

    lacks: str

    def __init_subclass__(cls) -> None:
        cls.no_jobs = cls.no_objects = cls.no_admission = cls.no_aws = cls.no_azure = cls.lacks
