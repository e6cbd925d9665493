"""HTTP listener on aiohttp.web, with limits on time, connections and memory that hold for any client.
Routes are plain aiohttp routes: a new endpoint needs only a handler."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from ssl import SSLContext
from typing import Final, NamedTuple, cast

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

log = structlog.get_logger(__name__)

MAX_FIELD_SIZE: Final = 4096
"""Bytes of the request line, and of one header."""
MAX_HEADERS: Final = 64
MAX_BODY_SIZE: Final = 64 * 1024

# Malformed requests are answered with a 400 and need no traceback; failures of handlers are logged below.
_malformed_requests = logging.getLogger("knell.web.malformed_requests")
_malformed_requests.setLevel(logging.CRITICAL)


class Limits(NamedTuple):
    """`head` is the time for a complete request head, counted from the connection or the previous response; `whole` the
    time from there until the client has read the response; `body` the time for the rest of a body that no handler has
    read, and `size` the most bytes of one. `handshake` is the time for a TLS handshake, and for the end of TLS. Beyond
    `connections` the oldest one is closed; with TLS a connection counts from the end of its handshake. `stop` is the
    time for requests in progress on shutdown."""

    head: timedelta = timedelta(seconds=5)
    whole: timedelta = timedelta(seconds=30)
    body: timedelta = timedelta(seconds=2)
    connections: int = 100
    stop: timedelta = timedelta(milliseconds=500)
    size: int = MAX_BODY_SIZE
    handshake: timedelta = timedelta(seconds=5)


DEFAULT_LIMITS: Final = Limits()
API_SERVER_LIMITS: Final = Limits(
    # API servers keep idle connections for 90 s, and don't repeat a request on one that is closed under their hands.
    head=timedelta(minutes=3),
    # The longest timeout of a webhook, and a little more. A busy process needs seconds for many handshakes at once.
    whole=timedelta(seconds=35),
    handshake=timedelta(seconds=35),
    # Each API server opens one connection for each call in progress.
    connections=1000,
    # A review contains the object, which has at most 3 MiB in a request.
    size=4 * 1024 * 1024,
)
"""For a webhook, whose clients are API servers."""


class HttpListener:
    def __init__(self, routes: Iterable[web.AbstractRouteDef], limits: Limits = DEFAULT_LIMITS) -> None:
        app = web.Application(middlewares=[_bounded(limits.whole)], client_max_size=limits.size)
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_malformed_requests,
            # A client that hangs up also cancels its handler.
            handler_cancellation=True,
            shutdown_timeout=limits.stop.total_seconds(),
            # Also limits the wait for a connection's first request; no other timeout closes a silent connection.
            keepalive_timeout=limits.head.total_seconds(),
            lingering_time=limits.body.total_seconds(),
            max_line_size=MAX_FIELD_SIZE,
            max_field_size=MAX_FIELD_SIZE,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
        )
        self._connections = _Connections(limits.connections)
        self._handshake = limits.handshake.total_seconds()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, ssl: SSLContext | None = None) -> int:
        """Returns the port; with a context it speaks TLS only. Raises OSError if it can't listen there."""
        await self._runner.setup()
        protocol = cast("web.Server", self._runner.server)

        def connection() -> _Connection:
            return _Connection(protocol(), self._connections)

        try:
            # Not a TCPSite, which can't limit the number of connections.
            if ssl is None:
                self._server = await asyncio.get_running_loop().create_server(connection, host, port)
            else:
                self._server = await asyncio.get_running_loop().create_server(
                    connection,
                    host,
                    port,
                    ssl=ssl,
                    ssl_handshake_timeout=self._handshake,
                    ssl_shutdown_timeout=self._handshake,
                )
        except OSError:
            await self._runner.cleanup()
            raise
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Idle connections are closed at once; requests in progress have `Limits.stop` to end."""
        if self._server is None:
            return
        self._server.close()
        await self._runner.cleanup()
        await self._connections.abort()


class _Connections:
    """The open connections of one listener, the oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[asyncio.Transport, None] = {}
        self.closed = False
        """The listener has stopped. A TLS handshake that was in progress may still end."""
        self._emptied = asyncio.Event()

    def add(self, transport: asyncio.Transport) -> None:
        # The oldest is closed instead of refusing the newest: otherwise idle clients would shut out the liveness probe,
        # and the kubelet would restart a healthy process.
        surplus = len(self._open) + 1 - self._limit
        for oldest in list(self._open)[: max(0, surplus)]:
            oldest.abort()
        self._open[transport] = None

    def remove(self, transport: asyncio.Transport) -> None:
        self._open.pop(transport, None)
        if not self._open:
            self._emptied.set()

    async def abort(self) -> None:
        """Aborts connections that are still open: the client does not read, or connected during the shutdown."""
        self.closed = True
        while self._open:
            self._emptied.clear()
            for transport in list(self._open):
                transport.abort()
            await self._emptied.wait()


class _Connection(asyncio.Protocol):
    """Delegates to aiohttp's protocol, and registers the connection while it is open."""

    def __init__(self, http: asyncio.Protocol, connections: _Connections) -> None:
        self._http, self._connections = http, connections
        self._transport: asyncio.Transport
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._connections.closed:
            self._refused = True
            self._transport.abort()
            return
        self._connections.add(self._transport)
        self._http.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._refused:
            self._connections.remove(self._transport)
            self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()


def _bounded(whole: timedelta) -> Middleware:
    @web.middleware
    async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(whole.total_seconds()):
                response = await _handle(request, handler)
                # Sent here and not later by aiohttp, so that the timeout also covers a client that does not read.
                await response.prepare(request)
                await response.write_eof()
                return response
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise

    return bounded


async def _handle(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception:
        log.exception("a request failed", method=request.method, path=request.path)
        return web.Response(status=500, text="500: Internal Server Error")
