"""Counter of the commands that reach the server, from its MONITOR stream.

The server's own counters cannot distinguish commands of clients from those that scripts call; MONITOR marks the
latter."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import Final, Self

# `+1700000000.000001 [0 127.0.0.1:40000] "XADD" "key" ...`, or `[0 lua]` for a call made inside a script. An
# argument cannot fake a line: MONITOR escapes line ends.
_LINE: Final = re.compile(rb'^\+[0-9.]+ \[\d+ (lua|[^\]]*)\] "([^"]*)"')

# What a client says once per connection or at its start. How many connections a pool opens says nothing
# about jobs.
_SET_UP: Final = frozenset(
    {
        b"hello",
        b"auth",
        b"select",
        b"client",
        b"info",
        b"script",
        b"function",
        b"command",
        b"config",
        b"monitor",
    }
)
_LATE_COMERS: Final = 0.3
_CATCH_UP_WITHIN: Final = 60.0


class CommandMonitor:
    """Open while a worker runs. `sent` came from clients, `inside` were calls of scripts."""

    def __init__(self, port: int) -> None:
        self.sent = 0
        self.inside = 0
        self._port = port
        self._marker = uuid.uuid4().hex.encode()
        self._caught_up = threading.Event()

    def __enter__(self) -> Self:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._stream = self._socket.makefile("rb", buffering=1 << 20)
        self._socket.sendall(b"MONITOR\r\n")
        if self._stream.readline() != b"+OK\r\n":
            raise ConnectionError("the server refused MONITOR")
        self._reader = threading.Thread(target=self._read, name="monitor", daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._stream.close()
        self._socket.close()

    def finish(self) -> None:
        """Counts up to now. Acknowledgements of the last jobs come after these have told that they ran,
        hence the short wait; then a marker shows when the reader has seen all that came before it."""
        time.sleep(_LATE_COMERS)
        with socket.create_connection(("127.0.0.1", self._port)) as other:
            other.sendall(b"ECHO " + self._marker + b"\r\n")
            if not self._caught_up.wait(_CATCH_UP_WITHIN):
                raise ConnectionError("the stream of commands broke off before its end")

    def _read(self) -> None:
        for line in self._stream:
            found = _LINE.match(line)
            if found is None:
                continue
            if found[1] == b"lua":
                self.inside += 1
            elif found[2].lower() == b"echo" and self._marker in line:
                self._caught_up.set()
                return
            elif found[2].lower() not in _SET_UP:
                self.sent += 1
