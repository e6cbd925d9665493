"""Knell itself, measured by the same protocol as everybody else.

`fill` puts whole deletions into their lanes, as the peers' jobs lie in their queues: ten jobs and a release each,
spread over 20 lanes, with finite budgets, audit and stats on. `jobs` counts what the worker runs, releases included.
"""

from __future__ import annotations

import sys

from bench.arena import Arena
from bench.contenders.process import ProcessContender
from bench.contenders.protocol import Kind


class Knell(ProcessContender):
    name = "knell"
    kind: Kind = "knell"
    settings = (
        "deletions of ten jobs plus release, 20 lanes, finite budgets, audit, stats and log on, batches of 100, "
        "up to 4,000 jobs in hand, uvloop"
    )
    jobs = 110_000
    enqueue_jobs = 100_000
    most_parked = 1_000_000

    def fill(self, arena: Arena, jobs: int) -> None:
        self._put(arena, "schedule", jobs)

    def version(self) -> str:
        return "this clone"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.contenders.knell_process"]
