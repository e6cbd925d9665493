"""Client of a Redis Cluster that recovers from failovers where redis-py's own client does not.
It uses only the public interface of redis-py."""

import asyncio
import builtins
from datetime import timedelta
from typing import Any, Final

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import ConnectionError as UnreachableError
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from service.engine.connection import TcpConnection, TlsConnection
from service.settings import HostPort

# The client itself uses connections to read the cluster layout, in addition to those for calls.
_SPARE_CONNECTIONS: Final = 8


class ClusterClient(RedisCluster):
    """Differences from its parent: a call waits for a free connection; the node of a blocking read is computed and not
    queried from a server that may be down; an unreachable cluster raises ConnectionError; and when all known nodes are
    gone, the configured ones are tried again."""

    def __init__(
        self, entries: tuple[HostPort, ...], connections: int, patience: timedelta, options: dict[str, Any]
    ) -> None:
        self._entries = entries
        self._permits = asyncio.Semaphore(connections)
        self._patience = patience.total_seconds()
        super().__init__(
            startup_nodes=[ClusterNode(entry.host, entry.port) for entry in entries],
            max_connections=connections + _SPARE_CONNECTIONS,
            # Shards whose slots are served continue while others are down.
            require_full_coverage=False,
            **options,
        )
        # There is no parameter for the connection class; new nodes take it from here.
        connection_class = TlsConnection if options.get("ssl") else TcpConnection
        self.connection_kwargs["connection_class"] = connection_class
        for node in self.nodes_manager.startup_nodes.values():
            node.connection_class = connection_class

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        await self._acquire()
        try:
            if args[0] in ("XREAD", "XREADGROUP") and "target_nodes" not in kwargs:
                await self.initialize()
                kwargs["target_nodes"] = self.get_node_from_key(_stream_of(args))
            return await super().execute_command(*args, **kwargs)
        except SlotNotCoveredError:
            # The layout was read in the middle of a change and is incomplete. The next call reads it again.
            await self.aclose()
            raise
        finally:
            self._permits.release()

    async def initialize(self, *args: Any, **kwargs: Any) -> RedisCluster:
        try:
            return await super().initialize(*args, **kwargs)
        except RedisClusterException:
            for entry in self._entries:
                node = ClusterNode(entry.host, entry.port, **self.connection_kwargs)
                self.nodes_manager.startup_nodes.setdefault(node.name, node)
        try:
            return await super().initialize(*args, **kwargs)
        except RedisClusterException as error:
            raise UnreachableError(str(error)) from error

    async def aclose(self) -> None:
        await super().aclose()
        # After a lost connection the parent considers itself closed and leaves the other connections open.
        await self.nodes_manager.aclose()
        await self.nodes_manager.aclose("startup_nodes")

    async def _acquire(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._permits.acquire()
        except builtins.TimeoutError:
            raise UnreachableError("No connection available.") from None


def _stream_of(args: tuple[Any, ...]) -> Any:
    for position, word in enumerate(args):
        if word in ("STREAMS", b"STREAMS"):
            return args[position + 1]
    raise ValueError(f"{args[0]} without STREAMS")
