"""How much time is lost when all workers are killed in the first burst of deletes and new ones take over at once.

Two runs, with and without the kill, of which the difference counts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender, ContenderFailedError, NotSupportedError
from bench.goals import at_most, goal
from bench.rows.row import RoundSize, Row, Trial
from tests.scenarios.killed_run import WORKERS, Burst, run
from tests.scenarios.workers import WorkerFailed

_FULL: Final = Burst()
_SHORT: Final = Burst(deletions=10)


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    if contender.kind != "knell":
        raise NotSupportedError("was not given handlers of the simulated provider for this")
    burst = size.pick(_FULL, _SHORT)
    with tempfile.TemporaryDirectory(prefix="knell-bench-") as directory:
        try:
            spared, killed = (
                asyncio.run(run(burst, server.port, Path(directory), kill=kill)) for kill in (False, True)
            )
        except (AssertionError, WorkerFailed) as failure:
            raise ContenderFailedError(str(failure)) from failure
    return {"lost": killed - spared}


def _lost(size: RoundSize) -> str:
    burst = size.pick(_FULL, _SHORT)
    return (
        f"seconds by which {burst.jobs:,} deletes of {burst.deletions:,} objects take longer when all {WORKERS} "
        f"workers are killed at the first delete and {WORKERS} new ones are started"
    )


ROWS = (
    Row("killed.lost", _lost, "s", Trial("killed", measure, most_rounds=1), "lost", "less", goal(at_most(10, "s"))),
)
