"""HTTP/1.1 for calls that are small, many and alike: one request at a time on each of a few kept connections.
A general client spends three times as much on each; answers without an end have connections of their own."""

import asyncio
import time
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from service.cluster.access import Way
from service.cluster.http1 import NoHttp, Reading
from service.cluster.route import Route

KEEP_IDLE: Final = 60.0
_GZIP: Final = 47
# What does no harm when it is done twice: a kept connection may have been closed just before the request was sent.
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})


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
        self._route: Route | None = None
        self._closed = False

    async def ask(self, way: Way, method: str, target: str, headers: str, body: bytes | None, timeout: float) -> Answer:
        """`headers` are whole lines. Raises OSError, TimeoutError and NoHttp."""
        route = self._route
        if route is None or route.way is not way:
            route = self._route = Route(way)
        request = route.request(method, target, headers, body)
        wire = self._kept(route)
        if wire is not None:
            try:
                return await self._on(wire, request, timeout)
            except ConnectionError:
                if wire.begun or method not in _REPEATABLE:
                    raise
        return await self._on(await self._connected(route, timeout), request, timeout)

    async def aclose(self) -> None:
        self._closed = True
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
            if self._idle[0].since < wire.since - KEEP_IDLE:
                self._idle.pop(0).abort()
        else:
            wire.abort()
        return answer

    def _kept(self, route: Route) -> "_Wire | None":
        oldest = time.monotonic() - KEEP_IDLE
        while self._idle:
            # The last one used: so the others grow old and are given up.
            wire = self._idle.pop()
            if wire.reusable and wire.place == route.place and wire.since > oldest:
                return wire
            wire.abort()
        return None

    async def _connected(self, route: Route, timeout: float) -> "_Wire":
        wire = _Wire(route.place, self._all)
        try:
            await route.connect(wire, timeout)
        except BaseException:
            self._all.discard(wire)
            raise
        if self._closed:
            # Nobody would close it any more.
            wire.abort()
            raise ConnectionAbortedError("closed by ourselves")
        return wire


class _Wire(asyncio.Protocol):
    """One connection. `begun` says that something of the current answer has come."""

    def __init__(self, place: object, everyone: "set[_Wire]") -> None:
        self.place, self._everyone = place, everyone
        self.since = 0.0
        self.begun = self.reusable = False
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._answer = Reading()

    async def exchange(self, request: bytes, timeout: float) -> Answer:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("closed by the server")
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Answer] = loop.create_future()
        self._waiting = waiting
        self._answer = Reading()
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
        if transport.is_closing():
            # Given up during the TLS handshake.
            return
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
                self._waiting.set_result(_whole(self._answer))
            except zlib.error:
                self._fail(NoHttp("an answer that is not packed as it says"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


def _whole(reading: Reading) -> Answer:
    body = reading.take()
    if reading.headers.get("content-encoding", "identity") in ("gzip", "deflate"):
        body = zlib.decompress(body, _GZIP)
    return Answer(reading.status, reading.headers, body)
