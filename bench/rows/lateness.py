"""How long after its due time a scheduled job starts, with one worker that is up and idle.

Once with jobs due at a steady pace, once with a thousand due at one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import quantiles

from bench.arena import Arena
from bench.contenders.protocol import Contender, Schedule
from bench.goals import below, goal
from bench.rows.row import Measure, Row, Size, Trial

_PER_SECOND = 200


def _percentiles(late: list[float]) -> Mapping[str, float]:
    cuts = quantiles(late, n=100, method="inclusive")
    return {"p50": cuts[49] * 1000, "p99": cuts[98] * 1000}


def _measured(full: Schedule, short: Schedule) -> Measure:
    def measure(contender: Contender, arena: Arena, size: Size) -> Mapping[str, float]:
        return _percentiles(contender.lateness(arena, size.pick(full, short)))

    return measure


PACED = Trial(
    "lateness.paced",
    _measured(
        Schedule(jobs=10 * _PER_SECOND, gap=1 / _PER_SECOND),
        Schedule(jobs=3 * _PER_SECOND, gap=1 / _PER_SECOND),
    ),
)
BURST = Trial("lateness.burst", _measured(Schedule(jobs=1000, gap=0), Schedule(jobs=1000, gap=0)))

_PACED_WHAT = "start minus due time of jobs due at 200 a second for 10 s; peers with their default polling intervals"
_BURST_WHAT = "start minus due time of 1,000 jobs due at one moment; peers with their default polling intervals"

ROWS = (
    Row("lateness.paced.p50", f"median: {_PACED_WHAT}", "ms", PACED, "p50", "less", goal(below(10, "ms"))),
    Row(
        "lateness.paced.p99",
        f"99th percentile: {_PACED_WHAT}",
        "ms",
        PACED,
        "p99",
        "less",
        goal(below(50, "ms")),
    ),
    Row("lateness.burst.p50", f"median: {_BURST_WHAT}", "ms", BURST, "p50", "less"),
    Row("lateness.burst.p99", f"99th percentile: {_BURST_WHAT}", "ms", BURST, "p99", "less"),
)
