"""A real Sentinel setup on local ports: a master, replicas, and three sentinels that monitor them.
When the master is killed, the sentinels promote a replica within seconds."""

import asyncio
import tempfile
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from service.settings import HostPort, RedisSettings
from standins.redis_servers.binaries import embedded_binary
from standins.redis_servers.server import LocalRedis, wait_until
from standins.redis_servers.tls import TlsFiles

SENTINELS: Final = 3
MASTER_NAME: Final = "mymaster"


class SentinelProcess(LocalRedis):
    """The server binary in Sentinel mode. It writes its state to its configuration file."""

    def __init__(self, binary: Path, directory: Path, *, watch: LocalRedis, down_after: timedelta) -> None:
        super().__init__(binary, directory, tls_files=watch.tls_files)
        self._watch = watch
        self._down_after = down_after

    def _choose_ports(self) -> None:
        super()._choose_ports()
        encrypted = {**self.tls_files.options(), "tls-port": str(self.tls_port)} if self.tls_files else {}
        milliseconds = f"{self._down_after / timedelta(milliseconds=1):.0f}"
        configuration = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"dir {self.directory}",
            *(f"{name} {value}" for name, value in encrypted.items()),
            f"sentinel monitor {MASTER_NAME} {self._watch.host} {self._watch.client_port} {SENTINELS // 2 + 1}",
            f"sentinel down-after-milliseconds {MASTER_NAME} {milliseconds}",
            # A failed failover is retried after twice this time.
            f"sentinel failover-timeout {MASTER_NAME} 5000",
            f"sentinel parallel-syncs {MASTER_NAME} 1",
            "",
        ]
        self.directory.mkdir(parents=True, exist_ok=True)
        self._path.write_text("\n".join(configuration))

    @property
    def _path(self) -> Path:
        return self.directory / "sentinel.conf"

    def _command(self) -> list[str]:
        return [str(self.binary), str(self._path), "--sentinel"]


class LocalRedisSentinel:
    """`servers` holds the initial master, then the replicas; `master` is the present one."""

    def __init__(
        self,
        binary: Path | None = None,
        directory: Path | None = None,
        *,
        replicas: int = 1,
        down_after: timedelta = timedelta(milliseconds=1000),
        appendfsync: str = "everysec",
        tls_files: TlsFiles | None = None,
    ) -> None:
        self.binary = binary if binary is not None else embedded_binary()
        self.replicas = replicas
        self._down_after = down_after
        self._temporary = tempfile.TemporaryDirectory(prefix="knell-") if directory is None else None
        self._root = Path(self._temporary.name) if self._temporary else Path(directory or ".")
        self.servers = [
            LocalRedis(
                self.binary,
                self._root / f"server-{number}",
                appendfsync=appendfsync,
                tls_files=tls_files,
                options={"repl-diskless-sync-delay": "0"},
            )
            for number in range(1 + replicas)
        ]
        self.sentinels: list[SentinelProcess] = []

    def start(self) -> Self:
        try:
            for server in self.servers:
                server.start()
            self._replicate()
            self._watch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        # Sentinels first, or they would begin a promotion.
        for server in [*self.sentinels, *self.servers]:
            server.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def settings(self, *, prefix: str = "knell", shards: int = 1) -> RedisSettings:
        entries = tuple(HostPort(sentinel.host, sentinel.client_port) for sentinel in self.sentinels)
        own = self.servers[0].settings(prefix=prefix, shards=shards)
        return msgspec.structs.replace(own, mode="sentinel", sentinels=entries, sentinel_master=MASTER_NAME)

    @property
    def master(self) -> LocalRedis:
        """The master according to the first sentinel."""
        with self.sentinels[0].admin() as client:
            _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)
        return next(server for server in self.servers if server.client_port == int(port))

    def kill_master(self) -> LocalRedis:
        """Returns the killed server, for `wait_until_promoted` and a later restart."""
        old = self.master
        old.kill()
        return old

    def wait_until_promoted(self, old: LocalRedis, within: timedelta = timedelta(seconds=30)) -> LocalRedis:
        """Until all sentinels name another master and that server has the role."""
        wait_until("another master is promoted", lambda: self._agreed() and self._is_other_master(old), within)
        return self.master

    def failover(self) -> LocalRedis:
        """Kills the master and returns the new one."""
        return self.wait_until_promoted(self.kill_master())

    async def until_promoted(self, old: LocalRedis) -> LocalRedis:
        return await asyncio.to_thread(self.wait_until_promoted, old)

    def wait_until_settled(self, within: timedelta = timedelta(seconds=40)) -> None:
        """Until all servers replicate the master and all sentinels see them, as needed for the next failover."""
        wait_until("all servers follow the master", self._settled, within)

    def heal(self) -> None:
        """Starts killed servers and waits until they replicate the master."""
        for server in self.servers:
            if not server.running:
                server.restart()
                # The sentinels do this too, but only ten seconds after a former master has returned.
                master = self.master
                if master is not server:
                    with server.admin() as client:
                        client.execute_command("REPLICAOF", master.host, master.client_port)
        self.wait_until_settled()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _replicate(self) -> None:
        master, *replicas = self.servers
        for replica in replicas:
            with replica.admin() as client:
                client.execute_command("REPLICAOF", master.host, master.client_port)
        # A sentinel reads the replicas of a master when it first connects, and then only every ten seconds.
        wait_until("all replicas follow", lambda: self._followers(master) == len(replicas))

    def _watch(self) -> None:
        for number in range(SENTINELS):
            sentinel = SentinelProcess(
                self.binary,
                self._root / f"sentinel-{number}",
                watch=self.servers[0],
                down_after=self._down_after,
            )
            self.sentinels.append(sentinel)
            sentinel.start()
        self.wait_until_settled()

    def _settled(self) -> bool:
        return (
            self._agreed()
            and self._followers(self.master) == self.replicas
            and all(map(self._sees_all, self.sentinels))
        )

    def _agreed(self) -> bool:
        named = set()
        for sentinel in self.sentinels:
            with sentinel.admin() as client:
                named.add(tuple(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)))
        return len(named) == 1

    def _is_other_master(self, old: LocalRedis) -> bool:
        master = self.master
        if master is old:
            return False
        with master.admin() as client:
            return bool(client.info("replication")["role"] == "master")

    def _followers(self, master: LocalRedis) -> int:
        with master.admin() as client:
            replication = client.info("replication")
        replicas = [value for key, value in replication.items() if key.startswith("slave") and "state" in value]
        return sum(replica["state"] == "online" for replica in replicas)

    def _sees_all(self, sentinel: LocalRedis) -> bool:
        with sentinel.admin() as client:
            state = client.sentinel_master(MASTER_NAME)
            replicas = client.sentinel_slaves(MASTER_NAME)
        up = [replica for replica in replicas if not replica["is_sdown"] and not replica["is_disconnected"]]
        return state["num-other-sentinels"] == SENTINELS - 1 and len(up) == self.replicas and not state["is_sdown"]
