"""How soon a security group goes once the last interface of its balancer has drained, and whether groups that
reference each other go at all.

The interfaces of many clusters take from half a minute to five minutes of the account's time, each cluster's another
one. In a second trial they take half a minute in which no describe shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bench.aws_leftovers import GROUPS_OF_A_BALANCER
from bench.bench_server import BenchServer
from bench.contenders.clearing import OUTLAST_WITHIN, OUTLASTED
from bench.contenders.protocol import Contender, Drains
from bench.goals import at_least, below, goal
from bench.rows.percentiles import percentiles
from bench.rows.row import RoundSize, Row, Trial

_FULL: Final = Drains(clusters=100, entangled=10, shortest=30, longest=300)
_SHORT: Final = Drains(clusters=12, entangled=2, shortest=10, longest=30)
_UNSEEN: Final = Drains(clusters=10, entangled=0, shortest=30, longest=30, unseen=True)
_SHORT_UNSEEN: Final = Drains(clusters=4, entangled=0, shortest=30, longest=30, unseen=True)


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    outlasted = contender.outlast(server, size.pick(_FULL, _SHORT))
    return {**percentiles(outlasted.late), "untied": 100 * outlasted.untied / outlasted.entangled}


def measure_unseen(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    return percentiles(contender.outlast(server, size.pick(_UNSEEN, _SHORT_UNSEEN)).late)


DRAIN = Trial("aws-drain", measure, most_rounds=1)
UNSEEN = Trial("aws-drain.unseen", measure_unseen, most_rounds=1)


def _late(part: str) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        drains = size.pick(_FULL, _SHORT)
        return (
            f"{part} time from the last interface drained to the security group gone, of "
            f"{GROUPS_OF_A_BALANCER * drains.clusters} groups of {drains.clusters} deleted clusters whose balancers' "
            f"interfaces take {drains.shortest:g} to {drains.longest:g} s; in the account's time, which runs "
            f"{OUTLASTED:g} times as fast; with the tagging API"
        )

    return words


def _mutual(size: RoundSize) -> str:
    return (
        "part of the security groups that reference each other (a pair in each of "
        f"{size.pick(_FULL, _SHORT).entangled} more clusters) that are gone when the last of the others is gone, or at "
        f"the end of the patience, which is {OUTLAST_WITHIN:g} s of the account's time"
    )


def _unseen(size: RoundSize) -> str:
    drains = size.pick(_UNSEEN, _SHORT_UNSEEN)
    return (
        f"99th percentile of the time from the end of a dependency to the security group gone, of "
        f"{GROUPS_OF_A_BALANCER * drains.clusters} groups of {drains.clusters} deleted clusters; AWS refuses them for "
        f"{drains.longest:g} s after their balancer went, and no describe shows why; in the account's time, which runs "
        f"{OUTLASTED:g} times as fast; with the tagging API"
    )


ROWS = (
    Row("aws-drain.p50", _late("median"), "s", DRAIN, "p50", "less"),
    Row("aws-drain.p99", _late("99th percentile of the"), "s", DRAIN, "p99", "less", goal(below(5, "s"))),
    Row(
        id="aws-drain.mutual",
        what=_mutual,
        unit="%",
        trial=DRAIN,
        figure="untied",
        better="more",
        goal=goal(at_least(100, "%")),
    ),
    Row("aws-drain.unseen", _unseen, "s", UNSEEN, "p99", "less", goal(below(15, "s"))),
)
