"""How fast one worker process runs no-op jobs that are there before it starts.

The same trial gives the worker's processor time and memory, which have rows of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.bench_server import BenchServer
from bench.contenders.all_contenders import PYTHON_PEERS
from bench.contenders.protocol import Contender
from bench.goals import at_least_best, at_least_limit, at_least_peer, goal
from bench.rows.row import RoundSize, Row, Trial


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    jobs = size.jobs(contender.jobs)
    contender.fill(server, jobs)
    drained = contender.drain(server, jobs)
    figures = {
        "rate": drained.jobs / drained.seconds,
        "cpu_per_thousand": drained.cpu_seconds / drained.jobs * 1000,
    }
    if drained.peak_memory is not None:
        figures["peak_mebibytes"] = drained.peak_memory / 2**20
    return figures


DRAIN = Trial("drain", measure)

ROWS = (
    Row(
        id="drain",
        what="no-op jobs run by one worker process, enqueued beforehand; first to last job, without start-up",
        unit="jobs/s",
        trial=DRAIN,
        figure="rate",
        better="more",
        goal=goal(
            at_least_best(12, PYTHON_PEERS, "best Python peer"),
            at_least_peer(2.5, "bullmq"),
            at_least_peer(2.5, "asynq"),
            at_least_limit(0.8),
        ),
    ),
)
