"""How long after its due time a scheduled job starts, with one worker that is up and idle.

Once with jobs due at a steady pace, once with a thousand due at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender, Schedule
from bench.goals import below, goal
from bench.rows.percentiles import percentiles
from bench.rows.row import Measure, RoundSize, Row, Trial

_PER_SECOND = 200


def _measured(full: Schedule, short: Schedule) -> Measure:
    def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
        return percentiles(contender.lateness(server, size.pick(full, short)), 1000)

    return measure


_FULL_PACE = Schedule(jobs=10 * _PER_SECOND, gap=1 / _PER_SECOND)
_SHORT_PACE = Schedule(jobs=3 * _PER_SECOND, gap=1 / _PER_SECOND)
_AT_ONCE = Schedule(jobs=1000, gap=0)

PACED = Trial("lateness.paced", _measured(_FULL_PACE, _SHORT_PACE))
BURST = Trial("lateness.burst", _measured(_AT_ONCE, _AT_ONCE))


def _paced(part: str) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        pace = size.pick(_FULL_PACE, _SHORT_PACE)
        return (
            f"{part}: start minus due time of jobs due at {_PER_SECOND} a second for {pace.seconds:g} s; peers with "
            "their default polling intervals"
        )

    return words


_BURST_WHAT = (
    f"start minus due time of {_AT_ONCE.jobs:,} jobs due at one moment; peers with their default polling intervals"
)

ROWS = (
    Row("lateness.paced.p50", _paced("median"), "ms", PACED, "p50", "less", goal(below(10, "ms"))),
    Row(
        "lateness.paced.p99",
        _paced("99th percentile"),
        "ms",
        PACED,
        "p99",
        "less",
        goal(below(50, "ms")),
    ),
    Row("lateness.burst.p50", f"median: {_BURST_WHAT}", "ms", BURST, "p50", "less"),
    Row("lateness.burst.p99", f"99th percentile: {_BURST_WHAT}", "ms", BURST, "p99", "less"),
)
