"""The library's Cluster client with the gaps closed that would keep a worker from healing after a failover.
It uses public parts of that client only, so that an upgrade breaks loudly if at all."""

import asyncio
import builtins
from datetime import timedelta
from typing import Any, Final

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import ConnectionError as UnreachableError
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from service.engine.prompt import PromptConnection, PromptTlsConnection
from service.settings import HostPort

# The client takes connections for itself, to read the layout: these come on top of those for calls.
_SPARE_CONNECTIONS: Final = 8


class ClusterClient(RedisCluster):
    """Differs from its parent in this: who finds no connection free waits for one; the node of a blocking
    read is computed, not asked from a server that may be the dead one; a cluster that cannot be reached is
    a lost connection, not a misuse; when all known nodes are gone, the configured ones are asked again."""

    def __init__(
        self, entries: tuple[HostPort, ...], connections: int, patience: timedelta, options: dict[str, Any]
    ) -> None:
        self._entries = entries
        self._permits = asyncio.Semaphore(connections)
        self._patience = patience.total_seconds()
        super().__init__(
            startup_nodes=[ClusterNode(entry.host, entry.port) for entry in entries],
            max_connections=connections + _SPARE_CONNECTIONS,
            # Shards whose slots are served go on while others are not.
            require_full_coverage=False,
            **options,
        )
        # There is no parameter for the class of connections; nodes take it from here when they are made.
        prompt = PromptTlsConnection if options.get("ssl") else PromptConnection
        self.connection_kwargs["connection_class"] = prompt
        for node in self.nodes_manager.startup_nodes.values():
            node.connection_class = prompt

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        await self._acquire()
        try:
            if args[0] in ("XREAD", "XREADGROUP") and "target_nodes" not in kwargs:
                await self.initialize()
                kwargs["target_nodes"] = self.get_node_from_key(_stream_of(args))
            return await super().execute_command(*args, **kwargs)
        except SlotNotCoveredError:
            # The layout was read in the middle of a change and has a hole. The next call shall read it again.
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
        # After a lost connection the parent takes itself for closed and leaves the other connections open.
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
