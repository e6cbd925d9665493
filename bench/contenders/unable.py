"""A contender that knows nothing but an AWS account: no jobs, and no objects of a cluster.

Subclasses say how they clear the account; everything else they can't do.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.arena import Arena
from bench.contenders.protocol import (
    Cleaned,
    Drain,
    Drains,
    Kind,
    NotSupportedError,
    Outlasted,
    Released,
    Schedule,
)
from bench.order import Finding


class AccountOnly:
    name: str
    kind: Kind
    settings: str
    jobs: int = 0
    enqueue_jobs: int = 0
    most_parked: int = 0
    lacks: str = "knows nothing but an AWS account"

    def left_out(self) -> str | None:
        return None

    def version(self) -> str:
        raise NotImplementedError

    def prepare(self, announce: Callable[[str], None]) -> None:
        pass

    def clean(self, arena: Arena, finding: Finding, clusters: int) -> Cleaned:
        raise NotImplementedError

    def outlast(self, arena: Arena, drains: Drains) -> Outlasted:
        raise NotImplementedError

    def enqueue(self, arena: Arena, jobs: int) -> float:
        raise NotSupportedError(self.lacks)

    def fill(self, arena: Arena, jobs: int) -> None:
        raise NotSupportedError(self.lacks)

    def drain(self, arena: Arena, jobs: int, before_end: Callable[[], None] | None = None) -> Drain:
        raise NotSupportedError(self.lacks)

    def lateness(self, arena: Arena, schedule: Schedule) -> list[float]:
        raise NotSupportedError(self.lacks)

    def park(self, arena: Arena, jobs: int) -> None:
        raise NotSupportedError(self.lacks)

    def release(self, arena: Arena, objects: int) -> Released:
        raise NotSupportedError(self.lacks)

    def watch(self, arena: Arena, objects: int) -> int | None:
        raise NotSupportedError(self.lacks)
