"""The raw limit: redis-py on a bare stream with the same data, in the environment in which Knell runs.

It promises nothing that a job system promises; it shows what client and server leave to be had.
"""

from __future__ import annotations

import sys
from importlib import metadata

from bench.contenders.process import ProcessContender
from bench.contenders.protocol import Kind


class Raw(ProcessContender):
    name = "raw"
    kind: Kind = "limit"
    settings = (
        "pipelines of 500 XADD; XREADGROUP of 100, msgspec, one asyncio task per message, one XACK per batch, uvloop"
    )
    jobs = 150_000
    enqueue_jobs = 150_000
    cannot_schedule = "a stream has no due times"

    def version(self) -> str:
        return f"redis-py {metadata.version('redis')}"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.peers.raw_peer"]
