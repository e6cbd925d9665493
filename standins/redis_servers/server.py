"""One real server on a local port: started, killed, restarted on the same port and data, stopped.
The embedded Valkey of the demo is one; the local Cluster and Sentinel setups consist of several."""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.settings import RedisSettings, RedisUrl, TlsSettings
from standins.child_process import launch
from standins.ports import free_ports
from standins.redis_servers.binaries import NoServerError, embedded_binary
from standins.redis_servers.tls import TlsFiles

_STEP: Final = 0.01
_START_ATTEMPTS: Final = 5

# The embedded server uses glibc's allocator, which by default returns memory to the system and requests it again all
# the time; these settings keep it. Servers of a distribution have another allocator.
_KEEP_MEMORY: Final = (
    "glibc.malloc.tcache_count=60000:glibc.malloc.mmap_threshold=33554432:"
    "glibc.malloc.trim_threshold=268435456:glibc.malloc.top_pad=16777216"
)


class LocalRedis:
    """A server process and its directory. Methods block, mostly for milliseconds; `revive` restarts the server without
    blocking an event loop."""

    def __init__(
        self,
        binary: Path | None = None,
        directory: Path | None = None,
        *,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
        appendonly: bool = True,
        appendfsync: str = "everysec",
        ready_within: timedelta = timedelta(seconds=20),
        tls_files: TlsFiles | None = None,
    ) -> None:
        self._is_embedded = binary is None
        self.binary = binary if binary is not None else embedded_binary()
        self._temporary = tempfile.TemporaryDirectory(prefix="knell-") if directory is None else None
        self.directory = Path(self._temporary.name) if self._temporary else Path(directory or ".")
        self.port = port if port is not None else 0
        self._port_is_given = port is not None
        self.tls_files = tls_files
        self.tls_port = free_ports(1)[0] if tls_files else 0
        self.options = {
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": appendfsync,
            "maxmemory-policy": "noeviction",
            **(tls_files.options() if tls_files else {}),
            **(options or {}),
        }
        self._ready_within = ready_within
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def client_port(self) -> int:
        """The port for clients and other servers."""
        return self.tls_port if self.tls_files else self.port

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NoServerError("the server was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Returns when the server answers. If its port was taken meanwhile, another one is tried."""
        for attempt in range(_START_ATTEMPTS):
            if not self._port_is_given:
                self._choose_ports()
            self._launch()
            try:
                self._wait_until_ready()
            except NoServerError:
                self.kill()
                last = self._port_is_given or attempt == _START_ATTEMPTS - 1
                if last or "in use" not in self.log_tail():
                    self._discard()
                    raise
                continue
            # From now on clients may know the port, so restarts keep it.
            self._port_is_given = True
            break
        return self

    def kill(self) -> None:
        """SIGKILL: data that was not written to disk is lost."""
        self._end(signal.SIGKILL, timedelta(seconds=10))

    def stop(self) -> None:
        """Ends the server in order and removes a temporary directory."""
        self._end(signal.SIGTERM, timedelta(seconds=5))
        self.kill()
        self._discard()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open without a response, as with a hung host."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kills the server if it runs and starts it on the same port with the same data."""
        self.kill()
        self.start()

    async def revive(self) -> None:
        """`restart` for callers on an event loop. The process is started in this thread, with which it ends; only the
        waiting is done in another."""
        self.kill()
        self._launch()
        await asyncio.to_thread(self._wait_until_ready)

    def settings(self, *, prefix: str = "knell", shards: int = 1) -> RedisSettings:
        return RedisSettings(
            url=RedisUrl("rediss" if self.tls_files else "redis", host=self.host, port=self.client_port),
            tls=self.tls_files.settings() if self.tls_files else TlsSettings(),
            prefix=prefix,
            shards=shards,
        )

    def admin(self) -> "redis.Redis":
        """A client for setup and inspection, without TLS. The caller closes it."""
        return redis.Redis(
            host=self.host,
            port=self.port,
            socket_timeout=5,
            socket_connect_timeout=1,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the log of the present run."""
        try:
            text = self._log.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _choose_ports(self) -> None:
        """Called before each attempt to start, until one succeeds."""
        self.port, *others = free_ports(2 if self.tls_files else 1)
        self.tls_port = others[0] if others else 0

    def _command(self) -> list[str]:
        options = {**self.options, "port": str(self.port), "dir": str(self.directory)}
        if self.tls_files:
            options["tls-port"] = str(self.tls_port)
        return [str(self.binary), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def _launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._log.unlink()
        self._process = launch(
            self._command(), directory=self.directory, output=self._log, environment=self._environment()
        )

    def _environment(self) -> dict[str, str] | None:
        if not self._is_embedded:
            return None
        # The last value wins, so the user's own settings come last.
        given = os.environ.get("GLIBC_TUNABLES")
        return {**os.environ, "GLIBC_TUNABLES": f"{_KEEP_MEMORY}:{given}" if given else _KEEP_MEMORY}

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self._ready_within.total_seconds()
        with self.admin() as client:
            while not self._answers(client):
                if not self.running:
                    raise NoServerError(f"{self.binary.name} ended at once:\n{self.log_tail()}")
                if time.monotonic() > deadline:
                    raise NoServerError(f"{self.binary.name} is not ready in time:\n{self.log_tail()}")
                time.sleep(_STEP)

    def _answers(self, client: "redis.Redis") -> bool:
        try:
            # Another server on this port would answer, too.
            own = client.info("server")["process_id"] == self.pid
            # While the server loads its data, only INFO is answered.
            return bool(own and not client.info("persistence").get("loading"))
        except redis.RedisError:
            # Not up yet; or another program has this port, and the server is about to end.
            return False

    def _end(self, sent: signal.Signals, grace_period: timedelta) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_period.total_seconds())

    def _discard(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


def wait_until(what: str, holds: Callable[[], bool], within: timedelta = timedelta(seconds=20)) -> None:
    """Waits until a condition holds, for setup and tests. An unreachable server or one that is not ready counts as
    not yet."""
    deadline = time.monotonic() + within.total_seconds()
    while not _holds(holds):
        if time.monotonic() > deadline:
            raise NoServerError(f"waited {within.total_seconds():g} s in vain until {what}")
        time.sleep(_STEP)


def _holds(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):
        return False
