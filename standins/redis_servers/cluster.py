"""A real Redis Cluster on local ports: three masters, each with a replica if wanted.
A killed master with a replica is replaced within seconds."""

import asyncio
import tempfile
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from service.settings import HostPort, RedisSettings
from standins.ports import free_ports
from standins.redis_servers.binaries import embedded_binary
from standins.redis_servers.server import LocalRedis, wait_until
from standins.redis_servers.tls import TlsFiles

MASTERS: Final = 3
SLOTS: Final = 16384


class ClusterNode(LocalRedis):
    """A server with another port for the Cluster bus."""

    bus_port = 0

    def _choose_ports(self) -> None:
        super()._choose_ports()
        (self.bus_port,) = free_ports(1)
        self.options["cluster-port"] = str(self.bus_port)


class LocalRedisCluster:
    """`nodes` holds the masters first, then their replicas in the same order."""

    def __init__(
        self,
        binary: Path | None = None,
        directory: Path | None = None,
        *,
        replicas: int = 0,
        node_timeout: timedelta = timedelta(milliseconds=1500),
        appendfsync: str = "everysec",
        tls_files: TlsFiles | None = None,
    ) -> None:
        if replicas not in (0, 1):
            raise ValueError("a master has no replica or one")
        self.replicas = replicas
        self._temporary = tempfile.TemporaryDirectory(prefix="knell-") if directory is None else None
        root = Path(self._temporary.name) if self._temporary else Path(directory or ".")
        self.nodes = [
            ClusterNode(
                binary if binary is not None else embedded_binary(),
                root / f"node-{number}",
                appendfsync=appendfsync,
                tls_files=tls_files,
                options={
                    **({"tls-cluster": "yes"} if tls_files else {}),
                    "cluster-enabled": "yes",
                    "cluster-config-file": "nodes.conf",
                    "cluster-node-timeout": f"{node_timeout / timedelta(milliseconds=1):.0f}",
                    # A replica that has just lost its link may still be elected.
                    "cluster-replica-validity-factor": "0",
                    "repl-diskless-sync-delay": "0",
                },
            )
            for number in range(MASTERS * (1 + replicas))
        ]

    @property
    def masters(self) -> list[ClusterNode]:
        """The nodes that were masters at the start; after a failover use `owner_of`."""
        return self.nodes[:MASTERS]

    def start(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            self._join()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def settings(self, *, prefix: str = "knell", shards: int = 4) -> RedisSettings:
        """Four shards are the fewest that use all three masters (hash tags {0} to {3})."""
        entries = tuple(HostPort(node.host, node.client_port) for node in self.nodes)
        own = self.nodes[0].settings(prefix=prefix, shards=shards)
        return msgspec.structs.replace(own, mode="cluster", nodes=entries)

    def owner_of(self, key: str) -> LocalRedis:
        """The running master of a key's slot, according to the first node that is up."""
        witness = next(node for node in self.nodes if node.running)
        with witness.admin() as client:
            slot = int(client.execute_command("CLUSTER", "KEYSLOT", key))
            for first, last, master, *_ in client.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == int(master[1]))
        raise LookupError(f"no node serves slot {slot}")

    def wait_until_whole(self, within: timedelta = timedelta(seconds=30)) -> None:
        """Until every running node sees all slots served."""
        wait_until(
            "the cluster is whole",
            lambda: all(self._sees_all(node) for node in self.nodes if node.running),
            within,
        )

    async def until_whole(self, within: timedelta = timedelta(seconds=30)) -> None:
        await asyncio.to_thread(self.wait_until_whole, within)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _join(self) -> None:
        share = SLOTS // MASTERS
        for number, node in enumerate(self.nodes):
            with node.admin() as client:
                # Distinct epochs avoid the initial resolution of epoch collisions.
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                if number < MASTERS:
                    last = SLOTS - 1 if number == MASTERS - 1 else (number + 1) * share - 1
                    client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        with self.nodes[0].admin() as client:
            for node in self.nodes[1:]:
                client.execute_command("CLUSTER", "MEET", node.host, node.client_port, node.bus_port)
        wait_until("all nodes know each other", lambda: all(self._knows_all(node) for node in self.nodes))
        for master, replica in zip(self.nodes, self.nodes[MASTERS:], strict=False):
            with master.admin() as client:
                name = client.execute_command("CLUSTER", "MYID")
            with replica.admin() as client:
                client.execute_command("CLUSTER", "REPLICATE", name)
        self.wait_until_whole()
        wait_until("all replicas follow", lambda: all(map(self._follows, self.nodes[MASTERS:])))

    def _knows_all(self, node: LocalRedis) -> bool:
        known = self._cluster_info(node)
        return known["cluster_known_nodes"] == str(len(self.nodes)) and known["cluster_size"] == str(MASTERS)

    def _sees_all(self, node: LocalRedis) -> bool:
        info = self._cluster_info(node)
        return info["cluster_state"] == "ok" and info["cluster_slots_ok"] == str(SLOTS)

    def _follows(self, node: LocalRedis) -> bool:
        with node.admin() as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def _cluster_info(self, node: LocalRedis) -> dict[str, str]:
        with node.admin() as client:
            info = client.execute_command("CLUSTER", "INFO")
        if isinstance(info, dict):
            return {str(key): str(value) for key, value in info.items()}
        return dict(line.split(":", 1) for line in str(info).splitlines() if ":" in line)
