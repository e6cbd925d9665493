"""How many commands the server gets per job while one worker drains: sent by clients, and called inside
scripts.

A trial of its own with fewer jobs, because watching every command slows the server down.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender
from bench.rows.row import RoundSize, Row, Trial


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    # Whole deletions of ten jobs and a release, as in all sizes that Knell is given.
    jobs = min(11_000, max(2_000, size.jobs(contender.jobs) // 5))
    contender.fill(server, jobs)
    with server.watch_commands() as watch:
        contender.drain(server, jobs, before_end=watch.finish)
    return {"sent": watch.sent / jobs, "inside": watch.inside / jobs}


COMMANDS = Trial("commands", measure)

ROWS = (
    Row(
        id="commands",
        what="commands sent to the server per job by the worker's connections, a script call counting as "
        "one; connection set-up not counted",
        unit="commands/job",
        trial=COMMANDS,
        figure="sent",
        better="less",
    ),
    Row(
        id="commands.inside",
        what="commands called inside scripts on the server per job, in addition to those sent",
        unit="commands/job",
        trial=COMMANDS,
        figure="inside",
        better="less",
    ),
)
