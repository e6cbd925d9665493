"""The limit of releasing objects: a bare watch-and-patch loop on aiohttp, in the environment in which Knell runs.

It promises nothing: no retries, no resuming, no look at the object; it shows what client and server leave to be had.
"""

from __future__ import annotations

import sys
from importlib import metadata

from bench.contenders.protocol import Kind
from bench.contenders.watching import WatchingContender


class Bare(WatchingContender):
    name = "bare"
    kind: Kind = "limit"
    settings = "one watch, msgspec, one merge patch that adds a finalizer and one that takes it off, 64 at once, uvloop"
    cannot_take_over = "runs alone"
    cannot_watch = "keeps nothing of what it sees"

    def version(self) -> str:
        return f"aiohttp {metadata.version('aiohttp')}"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.peers.bare_peer"]
