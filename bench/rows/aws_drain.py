"""How soon a security group goes once the last interface of its balancer has drained, and whether groups that
reference each other go at all.

The interfaces of a hundred clusters take 30 to 300 s of the account's time, each cluster's another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import quantiles
from typing import Final

from bench.arena import Arena
from bench.contenders.protocol import Contender, Drains
from bench.goals import at_least, below, goal
from bench.rows.row import Row, Size, Trial

_FULL: Final = Drains(clusters=100, entangled=10, shortest=30, longest=300)
_SHORT: Final = Drains(clusters=12, entangled=2, shortest=10, longest=30)


def measure(contender: Contender, arena: Arena, size: Size) -> Mapping[str, float]:
    outlasted = contender.outlast(arena, size.pick(_FULL, _SHORT))
    cuts = quantiles(outlasted.late, n=100, method="inclusive")
    return {
        "p50": cuts[49],
        "p99": cuts[98],
        "untied": 100 * outlasted.untied / outlasted.entangled,
    }


DRAIN = Trial("aws-drain", measure, most_rounds=1)

_WHAT = (
    "time from the last interface drained to the security group gone, of 200 groups of 100 deleted clusters whose "
    "balancers' interfaces take 30 to 300 s; in the account's time, which runs 3 times as fast"
)

ROWS = (
    Row("aws-drain.p50", f"median {_WHAT}", "s", DRAIN, "p50", "less"),
    Row("aws-drain.p99", f"99th percentile of the {_WHAT}", "s", DRAIN, "p99", "less", goal(below(5, "s"))),
    Row(
        id="aws-drain.mutual",
        what="part of the security groups that reference each other (a pair in each of 10 more clusters) that are gone "
        "when the last of the others is gone, or at the end of the patience, which is 900 s of the account's time",
        unit="%",
        trial=DRAIN,
        figure="untied",
        better="more",
        goal=goal(at_least(100, "%")),
    ),
)
