"""What is the same in every request over one way, and how a connection over it is made.
Whoever is cancelled or runs out of time on the way there leaves no connection behind, at whatever step it was."""

import asyncio
from typing import Final
from urllib.parse import SplitResult, urlsplit

from service.cluster.access import Way
from service.cluster.http1 import NoHttp

CONNECT_TIMEOUT: Final = 10.0


class Route:
    def __init__(self, way: Way) -> None:
        self.way, self._url = way, urlsplit(way.server)
        self.place = (way.server, way.tls, way.server_name)
        lines = {"Host": _host(self._url), "User-Agent": "knell", "Accept-Encoding": "identity", **way.headers()}
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        if self._lines.count("\n") != len(lines):
            raise NoHttp("the address or the credentials contain a line break")

    def request(self, method: str, target: str, headers: str, body: bytes | None) -> bytes:
        """`headers` are whole lines."""
        if not target.isascii() or not target.isprintable() or " " in target:
            raise NoHttp("the path contains a character that no path may contain")
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._url.path}{target} HTTP/1.1\r\n{self._lines}{headers}{length}\r\n".encode("latin-1")
        return head if body is None else head + body

    async def connect(self, end: asyncio.Protocol, timeout: float) -> None:
        """`end` is told first of the bare connection, so that it can give it up during the TLS handshake, and then of
        the secured one. A handshake that failed may not be told to it as a loss."""
        loop, tls, host = asyncio.get_running_loop(), self.way.tls, self._url.hostname or ""
        async with asyncio.timeout(min(CONNECT_TIMEOUT, timeout)):
            port = self._url.port or (80 if tls is None else 443)
            bare, _ = await loop.create_connection(lambda: end, host, port)
            if bare.is_closing():
                # Its loss is told already, and nobody would tell it to a handshake that begins now.
                raise ConnectionResetError("closed before it was used")
            if tls is None:
                return
            try:
                secured = await loop.start_tls(bare, end, tls, server_hostname=self.way.server_name or host)
            except BaseException:
                bare.abort()
                raise
        if secured is None:
            raise ConnectionResetError("closed during the TLS handshake")
        end.connection_made(secured)


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2]
