"""How fast one producer process puts jobs in, each system by the fastest way its documentation offers.

The limit is a pipeline of bare XADD with the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.arena import Arena
from bench.contenders.protocol import Contender
from bench.goals import at_least_limit, goal
from bench.rows.row import Row, Size, Trial


def measure(contender: Contender, arena: Arena, size: Size) -> Mapping[str, float]:
    jobs = size.jobs(contender.enqueue_jobs)
    return {"rate": jobs / contender.enqueue(arena, jobs)}


ROWS = (
    Row(
        id="enqueue",
        what="jobs put in by one producer process (Knell: events), each by its fastest documented way",
        unit="jobs/s",
        trial=Trial("enqueue", measure),
        figure="rate",
        better="more",
        goal=goal(at_least_limit(0.5)),
    ),
)
