"""asynq on Go: one script call per dequeue and per completion, due times looked at every five seconds.

Left out where there is no Go.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from bench.contenders.process import ProcessContender
from bench.contenders.protocol import Kind
from bench.environments import go_program, locked_version, prepare_go


class Asynq(ProcessContender):
    name = "asynq"
    kind: Kind = "other"
    settings = "100 goroutines on either side; due times checked every 5 s (its default)"
    jobs = 20_000
    enqueue_jobs = 80_000
    most_parked = 1_000_000

    def left_out(self) -> str | None:
        return None if shutil.which("go") else "go not found on PATH"

    def version(self) -> str:
        return f"asynq {locked_version('peers/asynq/go.mod', 'github.com/hibiken/asynq')}"

    def prepare(self, announce: Callable[[str], None]) -> None:
        prepare_go(announce)

    def command(self) -> list[str]:
        return [str(go_program())]
