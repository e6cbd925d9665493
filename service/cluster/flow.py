"""Answers without an end: each on a connection of its own, which is given up as soon as nobody reads it any more.
What has come waits here up to a limit; beyond it nothing is read, so that the server feels the back pressure."""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol, cast

from service.cluster.access import Way
from service.cluster.http1 import NoHttp, Reading
from service.cluster.route import Route

# More than comes with one look at a connection, so that who keeps up is never held up.
MOST_WAITING: Final = 512 * 1024


class Stream(Protocol):
    """One such answer, however its server is reached. The names of headers are in small letters."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    async def read(self) -> bytes:
        """What has come, or comes next; nothing at its proper end. Raises OSError and NoHttp where it breaks off."""

    def abort(self) -> None:
        """At once, without a farewell that somebody would have to wait for."""


class Flows:
    """All that are open to one server."""

    def __init__(self) -> None:
        self._open: set[_Flow] = set()
        self._closed = False

    async def begin(self, way: Way, target: str, headers: str, first: float) -> Stream:
        """With the head of the answer, which has to come within `first`. Raises OSError, TimeoutError and NoHttp."""
        if self._closed:
            raise ConnectionAbortedError("closed by ourselves")
        route = Route(way)
        request = route.request("GET", target, headers, None)
        flow = _Flow(self._open)
        try:
            await flow.begin(route, request, first)
        except BaseException:
            flow.abort()
            raise
        return flow

    async def aclose(self) -> None:
        self._closed = True
        flows = list(self._open)
        for flow in flows:
            flow.abort()
        for flow in flows:
            await flow.begun.wait()
        # Transports say their farewell in the next round of the loop.
        await asyncio.sleep(0)


class _Flow(asyncio.Protocol):
    """`begun` says that nobody is making its connection any more, whatever came of it."""

    def __init__(self, everyone: "set[_Flow]") -> None:
        self._everyone = everyone
        everyone.add(self)
        self.begun = asyncio.Event()
        self._reading = Reading()
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Timeout | None = None
        self._news: asyncio.Future[None] | None = None
        # Why nothing more will come, unless it is the proper end.
        self._failure: Exception | None = None
        self._asked = self._whole = self._paused = False

    @property
    def status(self) -> int:
        return self._reading.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reading.headers

    async def begin(self, route: Route, request: bytes, first: float) -> None:
        try:
            async with asyncio.timeout(first) as self._opening:
                await route.connect(self, first)
                if self._transport is not None:
                    self._asked = True
                    self._transport.write(request)
                while not self._reading.status:
                    await self._more()
        finally:
            self._opening = None
            self.begun.set()

    async def read(self) -> bytes:
        if self._reading.headers.get("content-encoding", "identity") != "identity":
            raise NoHttp("an answer that is packed although nobody asked for that")
        # What came before a break is true, whatever broke.
        while not self._reading.size:
            if self._whole:
                return b""
            await self._more()
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return self._reading.take()

    def abort(self) -> None:
        self._everyone.discard(self)
        self._fail(ConnectionAbortedError("closed by ourselves"))
        if self._opening is not None and self._transport is None and not self._opening.expired():
            # There is no connection to give up yet, only somebody to be called back from making one.
            self._opening.reschedule(asyncio.get_running_loop().time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._failure is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._whole or self._failure is not None:
            return
        if not self._asked:
            # Some loops read while the TLS handshake is still to come: this was sent by who knows whom.
            self._fail(NoHttp("an answer before the question"))
            return
        try:
            self._whole = self._reading.feed(data)
        except ValueError:
            self._fail(NoHttp("an answer that is no HTTP"))
            return
        if self._reading.size > MOST_WAITING and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._tell()

    def eof_received(self) -> bool:
        # Only the server's own farewell is an end: a connection that is just gone may have lost the rest.
        self._whole = self._whole or self._reading.ends_with_connection
        self._tell()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("closed by the server"))

    async def _more(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        if self._transport is not None:
            self._transport.abort()
        self._tell()
