"""How fast one producer process puts jobs in, each system by the fastest way its documentation offers.

The limit is a pipeline of bare XADD with the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender
from bench.goals import at_least_limit, goal
from bench.rows.row import RoundSize, Row, Trial


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    jobs = size.jobs(contender.enqueue_jobs)
    return {"rate": jobs / contender.enqueue(server, jobs)}


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
