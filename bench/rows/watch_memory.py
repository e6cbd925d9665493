"""How large a process grows that has listed many objects and watches them.

Knell keeps what it must remember of them in Redis; its peer keeps each object's uid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender
from bench.goals import below, goal
from bench.rows.row import RoundSize, Row, Trial

_OBJECTS: Final = 100_000
_SHORT: Final = 500


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    peak = contender.watch(server, size.pick(_OBJECTS, _SHORT))
    return {} if peak is None else {"peak_megabytes": peak / 1e6}


ROWS = (
    Row(
        id="watch-memory",
        what=lambda size: (
            f"peak resident memory of a process that has listed {size.pick(_OBJECTS, _SHORT):,} objects of about 1 KB "
            "and watches them (Knell: the watch side, every object in its inventory)"
        ),
        unit="MB",
        trial=Trial("watch-memory", measure),
        figure="peak_megabytes",
        better="less",
        goal=goal(below(150, "MB")),
    ),
)
