"""Protocol between the harness and a contender; a system that lacks a feature says so instead of being measured.

Rows know only this protocol. Most contenders are a `ProcessContender`, which needs no more than a command to
start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from bench.bench_server import BenchServer
from bench.order import Finding

Kind = Literal["knell", "limit", "python", "other", "watcher", "collector", "admission"]
"""What it is in comparisons. A `watcher` has no jobs, only objects of a cluster; a `collector` only a cloud;
`admission` only judges deletions."""


class NotSupportedError(Exception):
    """The system has no such thing; the message says what it lacks, and goes into the report."""


class ContenderFailedError(Exception):
    """The system should have been able to, but its process failed or took too long."""


@dataclass(frozen=True)
class Drain:
    """What one worker process did with jobs that were there before it started."""

    jobs: int
    seconds: float
    """From the end of the first job to the end of the last: start-up does not count."""
    cpu_seconds: float
    """User and system time of the worker process and its children over the same span."""
    peak_memory: int | None
    """Largest resident size of the worker process and its children in bytes; not known where there is no
    /proc."""


@dataclass(frozen=True)
class Schedule:
    """Jobs due one after the other, `gap` seconds apart, or all at one moment."""

    jobs: int
    gap: float

    @property
    def seconds(self) -> float:
        return self.jobs * self.gap


@dataclass(frozen=True)
class Released:
    """What one process did with objects that its finalizer held and that were deleted at once."""

    objects: int
    seconds: float
    """From the first delete call to the moment at which none was left."""
    latencies: list[float]
    """Seconds from each object's delete call to the start of its handler."""
    cpu_seconds: float | None
    """User and system time of the process and its children, from before the first call to a second after none was
    left, for some work follows the release; not known where there is no /proc."""
    redis_seconds: float
    """Of the Redis server over the same span; who does not use it finds it idle."""
    peak_memory: int | None


@dataclass(frozen=True)
class PacedDeletions:
    """Deletions of small objects of a protected group, none of them protected, so many a second."""

    count: int
    per_second: float


@dataclass(frozen=True)
class Admitted:
    """What the API server did with such deletions, of which a contender had judged each."""

    latencies: list[float]
    """Seconds from each call to its answer."""
    seconds: float
    """From the first call to the last answer."""
    cpu_seconds: float | None
    """User and system time of the process that judged over the same span; not known where there is none."""


@dataclass(frozen=True)
class Cleaned:
    """What one process did about the resources that deleted clusters had left in an AWS account."""

    resources: int
    seconds: float
    """From the first deletion to the moment at which the last resource was gone, in the account's own time."""
    calls: int | None = None
    """All that were made for it, also those that came after the last resource was gone; not known of a limit."""
    refused: int | None = None
    """Those among them that were refused for want of quota."""


@dataclass(frozen=True)
class Drains:
    """Clusters with a balancer each, whose interfaces outlive it by `shortest` to `longest` seconds, spread evenly; and
    besides clusters with a pair of security groups that reference each other."""

    clusters: int
    entangled: int
    shortest: float
    longest: float
    unseen: bool = False
    """Whether no describe shows the interfaces that outlive their balancer."""


@dataclass(frozen=True)
class Outlasted:
    """What one process did about security groups that can't go yet."""

    late: list[float]
    """Of each group whose interfaces drained: seconds from the last one drained to the group gone, in the account's own
    time. One that was still there at the end is counted as if it had gone then."""
    entangled: int
    """Groups that reference each other."""
    untied: int
    """Those among them that were gone at the end."""


@dataclass(frozen=True)
class RemovedByIdentifier:
    """What one process did about tables and queues whose objects ACK had and that were deleted."""

    resources: int
    seconds: float
    """From the first deletion of an object to the answer that proved the last resource gone."""
    used: float | None = None
    """Part of Cloud Control's quota that was used, of a full bucket and all that flowed in from the first call to the
    last deletion that it let through; not known of a limit, as the following are."""
    calls: int | None = None
    """To Cloud Control."""
    refused: int | None = None
    """Those among the calls that were throttled."""


@dataclass(frozen=True)
class Orphans:
    """Interfaces that Karpenter's nodes left in an Azure subscription; a part of them is reserved at the beginning."""

    interfaces: int
    retry_after: float = 1.0
    """What Resource Manager's refusals for want of quota say to wait for, in the subscription's own seconds."""
    read_quotas: bool = False
    """Whether reads, polls and queries are limited, too, and not only deletes."""


@dataclass(frozen=True)
class Collected:
    """What one process did about orphaned interfaces."""

    interfaces: int
    seconds: float
    """From the first delete to the moment at which the last interface was gone, in the subscription's own time."""
    used: float | None = None
    """Part of the network provider's quota for deletes that was used, of a full bucket and all that flowed in from the
    first delete to the last one that it let through; not known of a limit, as the following are."""
    deletes: int | None = None
    throttled: int | None = None
    """Those among the deletes that were answered 429."""
    calls: int | None = None
    """All that were made, also those that came after the last interface was gone."""
    refused: int | None = None
    """Those among the calls that were answered 429."""


@dataclass(frozen=True)
class Reservations:
    """Orphaned interfaces that come in `steps` even steps within `within` seconds, all reserved for so many seconds.
    If it `renews`, each refusal has its reservation begin anew, as its message says."""

    interfaces: int
    steps: int
    within: float
    seconds: float
    renews: bool = True


class Contender(Protocol):
    """One system. The arena is empty before every measurement; each call starts and ends its own
    processes."""

    name: str
    kind: Kind
    settings: str
    """How it is set up where that is not its default, for the report."""
    jobs: int
    """How many no-op jobs keep one worker busy for two to five seconds."""
    enqueue_jobs: int
    """How many jobs one producer needs two to five seconds for."""
    most_parked: int
    """The largest number of parked jobs that can be put in within reasonable time; 0 where nothing can be
    parked."""

    def left_out(self) -> str | None:
        """Why this contender cannot take part on this machine, or None."""

    def version(self) -> str:
        """The locked version, for the report."""

    def prepare(self, announce: Callable[[str], None]) -> None:
        """Installs what it needs; tells before it does something that takes time."""

    def enqueue(self, server: BenchServer, jobs: int) -> float:
        """Puts jobs in, as fast as its documentation offers, from one process; answers the seconds it
        took."""

    def fill(self, server: BenchServer, jobs: int) -> None:
        """Brings the server to the state in which `drain` finds exactly that many jobs due."""

    def drain(self, server: BenchServer, jobs: int, before_end: Callable[[], None] | None = None) -> Drain:
        """One worker process runs the no-op jobs that `fill` put there; `before_end` is called after the
        last job, while the worker is still up."""

    def lateness(self, server: BenchServer, schedule: Schedule) -> list[float]:
        """Seconds from due time to start, of every job of the schedule, with one worker that is already
        up."""

    def park(self, server: BenchServer, jobs: int) -> None:
        """Puts in that many jobs that are due in a day, in addition to those that are there."""

    def release(self, server: BenchServer, objects: int) -> Released:
        """One process puts its finalizer on objects of the arena's cluster, and lets them go when they are deleted,
        each after its no-op handler."""

    def take_over(self, server: BenchServer, *, in_order: bool) -> float:
        """Of two processes the one that watches ends, told to (SIGTERM) or killed: seconds from then to the moment at
        which the other one begins the handler of an object that is deleted when the first has ended."""

    def watch(self, server: BenchServer, objects: int) -> int | None:
        """Largest resident size, in bytes, of one process that has listed and watches the cluster's objects; not known
        where there is no /proc."""

    def admit(self, server: BenchServer, deletions: PacedDeletions) -> Admitted:
        """Judges such deletions, one process where it takes one."""

    def clean(self, server: BenchServer, finding: Finding, clusters: int) -> Cleaned:
        """One process removes what that many clusters have left in an AWS account whose quotas are finite."""

    def outlast(self, server: BenchServer, drains: Drains) -> Outlasted:
        """One process removes the security groups of such clusters, which can't go at once."""

    def remove(self, server: BenchServer, resources: int) -> RemovedByIdentifier:
        """One process removes so many tables and queues of ACK's objects, by Cloud Control, whose quota is finite."""

    def collect(self, server: BenchServer, orphans: Orphans) -> Collected:
        """One process removes such interfaces from an Azure subscription whose quotas are finite."""

    def outwait(self, server: BenchServer, reservations: Reservations) -> list[float]:
        """One process removes such interfaces; seconds, in the subscription's own time, from the end of each one's
        reservation to the interface gone."""
