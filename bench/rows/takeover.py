"""Time without a watch on a source after the replica that had it is killed, and after it stops in order.

Two replicas, one object that a finalizer holds; it is deleted when the first replica has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender
from bench.goals import at_most, goal
from bench.rows.row import RoundSize, Row, Trial

_MOST_ROUNDS: Final = 3
_STEPS: Final = (
    "an object that a finalizer holds is deleted when it has ended, and the time ends where the other replica begins "
    "the handler of that deletion (Knell: after it was published and planned); default settings"
)


def _killed(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    return {"seconds": contender.take_over(server, in_order=False)}


def _stopped(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    return {"seconds": contender.take_over(server, in_order=True)}


ROWS = (
    Row(
        id="takeover",
        what=(
            f"of two replicas the one that watches is killed, which is when the time begins; {_STEPS} (Knell: a Lease "
            "of 15 s; kopf: peering, whose records last 60 s)"
        ),
        unit="s",
        # Most of it is the time that a Lease lasts.
        trial=Trial("takeover", _killed, _MOST_ROUNDS),
        figure="seconds",
        better="less",
        # A Lease, and a look at it.
        goal=goal(at_most(20, "s")),
    ),
    Row(
        id="handover",
        what=f"of two replicas the one that watches gets SIGTERM, which is when the time begins; {_STEPS}",
        unit="s",
        trial=Trial("handover", _stopped, _MOST_ROUNDS),
        figure="seconds",
        better="less",
        goal=goal(at_most(5, "s")),
    ),
)
