"""Redis server on which all contenders are measured, and its figures: memory, commands and processor time.

It is emptied and restarted between contenders, so that none inherits data of another: neither in its append-only file
nor in a fragmented heap. Rows about objects find an API server here as well, which is started for the first of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import redis

from bench.cluster import Cluster
from bench.cluster import Server as ApiServer
from bench.command_monitor import CommandMonitor
from standins.redis_servers import LocalRedis

_STEP: Final = 0.02
_PATIENCE: Final = 60.0


class BenchServer:
    """Embedded Valkey: append-only file synced every second, nothing evicted, no rewrite at a random
    moment."""

    def __init__(self, announce: Callable[[str], None] = lambda _doing: None, api: ApiServer | None = None) -> None:
        """`api` is the API server to use, where it shall not be the best that there is."""
        self._announce, self._api = announce, api
        self._cluster: Cluster | None = None
        self._server = LocalRedis(appendonly=True, appendfsync="everysec", options={"auto-aof-rewrite-percentage": "0"})

    def __enter__(self) -> Self:
        self._server.start()
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self._server.stop()
        if self._cluster is not None:
            self._cluster.stop()

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def version(self) -> str:
        about = self._info("server")
        return f"{about.get('server_name', 'redis')} {about.get('valkey_version', about['redis_version'])}"

    @property
    def used_memory(self) -> int:
        return int(self._info("memory")["used_memory"])

    @property
    def cpu_seconds(self) -> float:
        """User and system time of the server so far."""
        used = self._info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    @property
    def cluster(self) -> Cluster:
        """The API server; the first call starts it, which takes some seconds."""
        if self._cluster is None:
            cluster = Cluster(self._announce, self._api)
            # Before it is started: whatever fails there, it is stopped with the arena.
            self._cluster = cluster
            cluster.start()
        return self._cluster

    @property
    def api_version(self) -> str | None:
        """Which API server there was, or None if no row needed one."""
        return self._cluster.version if self._cluster is not None else None

    def empty(self) -> None:
        """Waits until the last contender's connections are gone: what they still send must not survive the
        flush."""
        self._wait(lambda: bool(self._info("clients")["connected_clients"] == 1), "all other clients are gone")
        self._client.flushall()
        self._client.function_flush()
        self._client.bgrewriteaof()
        self._wait(self._rewrite_is_over, "the append-only file is rewritten")
        self._client.close()
        self._server.restart()
        self._connect()

    def watch_commands(self) -> CommandMonitor:
        return CommandMonitor(self.port)

    def _connect(self) -> None:
        # Emptying a million keys takes longer than an ordinary client waits.
        self._client = redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=120, decode_responses=True)

    def _rewrite_is_over(self) -> bool:
        state = self._info("persistence")
        return bool(state["aof_rewrite_in_progress"] == 0 and state["aof_rewrite_scheduled"] == 0)

    def _info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = self._client.info(section)
        return found

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_PATIENCE:g} s in vain until {what}")
            time.sleep(_STEP)
