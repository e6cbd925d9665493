"""Knell itself, measured by the same protocol as everybody else.

It takes part as soon as `left_out` answers None; until then its figures are absent and no goal counts as met.

To connect it, give `command` a program that takes one `bench.order.Order` (JSON, its only argument) and
prints one line of JSON to standard output, then goes on running until it is killed:

    task      does                                                      prints
    enqueue   publishes that many events, from one producer             {"seconds": s}
    drain     one worker process works off that many jobs               {"seconds": s, "cpu_seconds": c}
    schedule  puts in that many jobs, the n-th due at start + n * gap   {"seconds": s}
    lateness  one worker works off that many scheduled jobs             {"lateness": [seconds, ...]}

`bench.peers.tally.Tally` keeps the clock and prints the line: its `ran` is called once by each job as it
runs, with the job's due time when lateness is asked for. The worker process is killed after its line; its
memory is read from /proc before that, children included, but `cpu_seconds` is the program's own affair if it
has children.

`drain` finds what `fill` has left. The default calls `enqueue`, which is right for the peers; events that
still have to be planned are not yet jobs, so here `fill` has to plan, too: deletions of ten jobs plus
release, spread over 20 lanes, with finite budgets, audit and stats on. `jobs` counts what the worker runs.
`park` sends `schedule` with a due time in a day; it is called again and again, each time adding to what is
there.
"""

from __future__ import annotations

import sys

from bench.contenders.process import ProcessContender
from bench.contenders.protocol import Kind


class Knell(ProcessContender):
    name = "knell"
    kind: Kind = "knell"
    settings = "deletions of ten jobs plus release, 20 lanes, finite budgets, audit and stats on, uvloop"
    jobs = 110_000
    enqueue_jobs = 100_000
    most_parked = 1_000_000

    def left_out(self) -> str | None:
        return "not connected to the bench yet"

    def version(self) -> str:
        return "this clone"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.contenders.knell_process"]
