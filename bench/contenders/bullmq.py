"""BullMQ on Node: one script moves a job on and fetches the next; delayed jobs wake a blocked worker.

Left out where there is no Node.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping

from bench.contenders.process import ProcessContender
from bench.contenders.program import ROOT
from bench.contenders.protocol import Kind
from bench.environments import locked_version, node_modules, prepare_node


class BullMQ(ProcessContender):
    name = "bullmq"
    kind: Kind = "other"
    settings = "addBulk of 500, concurrency 100 in one process, finished jobs removed"
    jobs = 30_000
    enqueue_jobs = 40_000
    most_parked = 1_000_000

    def left_out(self) -> str | None:
        missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
        return f"{' and '.join(missing)} not found on PATH" if missing else None

    def version(self) -> str:
        return f"bullmq {locked_version('peers/bullmq/package.json', 'bullmq')}"

    def prepare(self, announce: Callable[[str], None]) -> None:
        prepare_node(announce)

    def command(self) -> list[str]:
        return ["node", str(ROOT / "bench" / "peers" / "bullmq" / "peer.js")]

    def environment(self) -> Mapping[str, str]:
        return {"NODE_PATH": str(node_modules())}
