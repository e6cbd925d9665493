"""HTTP/1.1 for calls that are small, many and alike: one request at a time on each of a few kept connections.
A general client spends three times as much on each; streams, and whatever goes through a proxy, still use one."""

import asyncio
import time
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

from service.cluster.access import Way

_CONNECT_TIMEOUT: Final = 10.0
_KEEP_IDLE: Final = 60.0
_LONGEST_HEAD: Final = 64 * 1024
_GZIP: Final = 47
# What does no harm when it is done twice: a kept connection may have been closed just before the request was sent.
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})


class NoHttp(ValueError):
    """An answer that can't be understood."""


class Answer(NamedTuple):
    """The names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wires:
    """The connections to one server. A way with other certificates gets connections of its own."""

    def __init__(self) -> None:
        self._idle: list[_Wire] = []
        self._all: set[_Wire] = set()
        self._known: _Known | None = None

    async def ask(self, way: Way, method: str, target: str, headers: str, body: bytes | None, timeout: float) -> Answer:
        """`headers` are whole lines. Raises OSError, TimeoutError and NoHttp."""
        known = self._known
        if known is None or known.way is not way:
            known = self._known = _Known(way)
        request = known.request(method, target, headers, body)
        wire = self._kept(known)
        if wire is not None:
            try:
                return await self._on(wire, request, timeout)
            except ConnectionError:
                if wire.begun or method not in _REPEATABLE:
                    raise
        return await self._on(await self._connected(known, timeout), request, timeout)

    async def aclose(self) -> None:
        for wire in list(self._all):
            wire.abort()
        self._idle.clear()
        # Transports say their farewell in the next round of the loop.
        await asyncio.sleep(0)

    async def _on(self, wire: "_Wire", request: bytes, timeout: float) -> Answer:
        try:
            answer = await wire.exchange(request, timeout)
        except BaseException:
            wire.abort()
            raise
        if wire.reusable:
            wire.since = time.monotonic()
            self._idle.append(wire)
            if self._idle[0].since < wire.since - _KEEP_IDLE:
                self._idle.pop(0).abort()
        else:
            wire.abort()
        return answer

    def _kept(self, known: "_Known") -> "_Wire | None":
        oldest = time.monotonic() - _KEEP_IDLE
        while self._idle:
            # The last one used: so the others grow old and are given up.
            wire = self._idle.pop()
            if wire.reusable and wire.place == known.place and wire.since > oldest:
                return wire
            wire.abort()
        return None

    async def _connected(self, known: "_Known", timeout: float) -> "_Wire":
        way, url = known.way, known.url
        async with asyncio.timeout(min(_CONNECT_TIMEOUT, timeout)):
            _, wire = await asyncio.get_running_loop().create_connection(
                lambda: _Wire(known.place, self._all),
                url.hostname or "",
                url.port or (80 if way.tls is None else 443),
                ssl=way.tls,
                server_hostname=None if way.tls is None else way.server_name or url.hostname,
            )
        return wire


class _Known:
    """What is the same in every request over one way."""

    def __init__(self, way: Way) -> None:
        self.way, self.url = way, urlsplit(way.server)
        self.place = (way.server, way.tls, way.server_name)
        lines = {"Host": _host(self.url), "User-Agent": "knell", "Accept-Encoding": "identity", **way.headers()}
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        if self._lines.count("\n") != len(lines):
            raise NoHttp("the address or the credentials contain a line break")

    def request(self, method: str, target: str, headers: str, body: bytes | None) -> bytes:
        if not target.isascii() or not target.isprintable() or " " in target:
            raise NoHttp("the path contains a character that no path may contain")
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self.url.path}{target} HTTP/1.1\r\n{self._lines}{headers}{length}\r\n".encode("latin-1")
        return head if body is None else head + body


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2]


class _Wire(asyncio.Protocol):
    """One connection. `begun` says that something of the current answer has come."""

    def __init__(self, place: object, everyone: "set[_Wire]") -> None:
        self.place, self._everyone = place, everyone
        self.since = 0.0
        self.begun = self.reusable = False
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._answer = _Reading()

    async def exchange(self, request: bytes, timeout: float) -> Answer:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("closed by the server")
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Answer] = loop.create_future()
        self._waiting = waiting
        self._answer = _Reading()
        self.begun = self.reusable = False
        timer = loop.call_later(timeout, self._fail, TimeoutError())
        try:
            transport.write(request)
            return await waiting
        finally:
            timer.cancel()
            self._waiting = None

    def abort(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._everyone.add(self)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            # Nobody asked for it.
            self.abort()
            return
        self.begun = True
        try:
            whole = self._answer.feed(data)
        except ValueError:
            self._fail(NoHttp("an answer that is no HTTP"))
            return
        if whole:
            self._finish()

    def eof_received(self) -> bool:
        if self._answer.ends_with_connection:
            # Only the server's own farewell is an end: a connection that is just gone may have lost the rest.
            self._finish()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._everyone.discard(self)
        self._transport, self.reusable = None, False
        if self._waiting is not None and not self._waiting.done():
            self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("closed by the server"))

    def _finish(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self.reusable = self._transport is not None and self._answer.keeps_connection
            try:
                self._waiting.set_result(self._answer.result())
            except zlib.error:
                self._fail(NoHttp("an answer that is not packed as it says"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


class _Reading:
    """An answer that is on its way in."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._parts: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._status = 0
        self._left = -1
        self._chunked = self._trailing = False
        self.ends_with_connection = self.keeps_connection = False

    def feed(self, data: bytes) -> bool:
        """Whether it is whole."""
        self._rest += data
        while not self._status:
            end = self._rest.find(b"\r\n\r\n")
            if end < 0:
                if len(self._rest) > _LONGEST_HEAD:
                    raise NoHttp("a head without an end")
                return False
            head = self._rest[:end].decode("latin-1")
            del self._rest[: end + 4]
            self._read_head(head)
        if self._chunked:
            return self._read_chunks()
        if self.ends_with_connection:
            return False
        if len(self._rest) > self._left:
            raise NoHttp("more than was announced")
        return len(self._rest) == self._left

    def result(self) -> Answer:
        body = b"".join(self._parts) if self._chunked else bytes(self._rest)
        if self._headers.get("content-encoding", "identity") in ("gzip", "deflate"):
            body = zlib.decompress(body, _GZIP)
        return Answer(self._status, self._headers, body)

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit() and len(code) == 3):
            raise NoHttp("no status line")
        if code.startswith("1"):
            # Only a sign that the answer will come.
            return
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise NoHttp("a header without a colon")
            headers[name.lower()] = value.strip()
        self._headers, self._status = headers, int(code)
        self.keeps_connection = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        length = headers.get("content-length", "")
        if self._status in (204, 304):
            self._left = 0
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked = True
        elif "transfer-encoding" in headers or (length and not (length.isascii() and length.isdigit())):
            raise NoHttp("an answer of unknown length")
        elif length:
            self._left = int(length)
        else:
            self.ends_with_connection, self.keeps_connection = True, False

    def _read_chunks(self) -> bool:
        rest, place = self._rest, 0
        try:
            while True:
                end = rest.find(b"\r\n", place)
                if end < 0:
                    if len(rest) - place > _LONGEST_HEAD:
                        raise NoHttp("a line without an end")
                    return False
                if self._trailing:
                    # Lines after the last chunk, which nobody needs, up to an empty one.
                    whole, place = end == place, end + 2
                    if whole:
                        if place < len(rest):
                            raise NoHttp("more than was announced")
                        return True
                    continue
                size = int(bytes(rest[place:end]).partition(b";")[0], 16)
                if size < 0:
                    raise NoHttp("a chunk of negative size")
                if size == 0:
                    self._trailing, place = True, end + 2
                    continue
                after = end + 2 + size
                if len(rest) < after + 2:
                    return False
                if rest[after : after + 2] != b"\r\n":
                    raise NoHttp("a chunk that is longer than it says")
                self._parts.append(bytes(rest[end + 2 : after]))
                place = after + 2
        finally:
            del rest[:place]
