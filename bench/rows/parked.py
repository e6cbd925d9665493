"""What jobs that are due in a day cost: server memory each, and whether they slow down the jobs that are due
now.

They are added up to a million within one trial, and a fixed number of due jobs is drained at each size on
the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.all_contenders import CONTENDERS
from bench.contenders.protocol import Contender, NotSupportedError
from bench.goals import at_most, goal
from bench.rows.row import RoundSize, Row, Trial

_SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
_SHORT_SIZES: Final = (1_000, 10_000)


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    sizes = [parked for parked in size.pick(_SIZES, _SHORT_SIZES) if parked <= contender.most_parked]
    if not sizes:
        # Asked all the same: the contender knows why it cannot.
        contender.park(server, 1)
        raise NotSupportedError("is not asked to park jobs")
    due = size.jobs(contender.jobs) // 2
    figures: dict[str, float] = {}
    there = 0
    grown = 0
    for parked in sizes:
        # Only growth while parking counts: what drained jobs leave behind is another matter.
        before = server.used_memory
        contender.park(server, parked - there)
        grown += server.used_memory - before
        there = parked
        contender.fill(server, due)
        drained = contender.drain(server, due)
        figures[f"time.{parked}"] = drained.seconds / drained.jobs * 1e6
    figures["memory"] = grown / there
    figures["time"] = figures[f"time.{sizes[-1]}"] / figures[f"time.{sizes[0]}"]
    return figures


PARKED = Trial("parked", measure)


def _largest(size: RoundSize) -> str:
    """How many, and the names of the peers that put jobs in too slowly for that."""
    most = size.pick(_SIZES, _SHORT_SIZES)[-1]
    fewer = [f"{peer.name} only up to {peer.most_parked:,}" for peer in CONTENDERS if 0 < peer.most_parked < most]
    return "; ".join([f"{most:,}", *([", ".join(fewer)] if fewer else [])])


ROWS = (
    Row(
        id="parked.memory",
        what=lambda size: f"server memory per parked job, at the largest number parked ({_largest(size)})",
        unit="bytes/job",
        trial=PARKED,
        figure="memory",
        better="less",
    ),
    Row(
        id="parked.time",
        what=lambda size: (
            f"time per due job beside the largest number parked, over that beside {_SIZES[0]:,} ({_largest(size)})"
        ),
        unit="times",
        trial=PARKED,
        figure="time",
        better="less",
        goal=goal(at_most(1.5, "times")),
    ),
    *(
        Row(
            id=f"parked.time.{parked}",
            what=f"time per due job that one worker drains while {parked:,} jobs are parked",
            unit="us/job",
            trial=PARKED,
            figure=f"time.{parked}",
            better="less",
        )
        for parked in _SIZES
    ),
)
