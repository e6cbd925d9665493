"""kubernetes_asyncio: the client library's own list and watch, in the environment in which Knell runs.

Knell uses the library to find its way into a cluster, and lists and watches by itself.
"""

from __future__ import annotations

import sys
from importlib import metadata

from bench.contenders.watching import WatchingContender


class KubernetesAsyncio(WatchingContender):
    name = "kubernetes-asyncio"
    settings = "list_cluster_custom_object in pages of 500, then Watch().stream from there; uids are kept; uvloop"
    cannot_release = "is a client, and has no handlers"

    def version(self) -> str:
        return f"kubernetes_asyncio {metadata.version('kubernetes_asyncio')}"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.peers.kubernetes_asyncio_peer"]
