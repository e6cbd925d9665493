"""HTTP listener on aiohttp.web, bounded in time, connections and memory whatever clients send or leave out.
Routes are aiohttp's own; whoever adds one only writes a handler."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, NamedTuple, cast

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

log = structlog.get_logger(__name__)

LONGEST_FIELD: Final = 4096
"""Bytes of the request line, and of one header."""
MOST_HEADERS: Final = 64
LARGEST_BODY: Final = 64 * 1024

# What clients do wrong is answered with a 400 and is not worth a traceback; failures of handlers are logged below.
_malformed_requests = logging.getLogger("knell.surface.malformed_requests")
_malformed_requests.setLevel(logging.CRITICAL)


class Limits(NamedTuple):
    """`head` is the time for a complete request head, from the connection or the previous answer on; `whole` the time
    from there until the client has taken the answer; `body` the time for the rest of a body that no handler has read.
    Of `connections` the oldest is closed when one more comes. `stop` is how long requests in progress may take on."""

    head: timedelta = timedelta(seconds=5)
    whole: timedelta = timedelta(seconds=30)
    body: timedelta = timedelta(seconds=2)
    connections: int = 100
    stop: timedelta = timedelta(milliseconds=500)


USUAL: Final = Limits()


class Listener:
    def __init__(self, routes: Iterable[web.AbstractRouteDef], limits: Limits = USUAL) -> None:
        app = web.Application(middlewares=[_bounded(limits.whole)], client_max_size=LARGEST_BODY)
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_malformed_requests,
            # Else a client that hangs up would leave its request working here.
            handler_cancellation=True,
            shutdown_timeout=limits.stop.total_seconds(),
            # Covers a connection's first request, too: nothing else ends one that stays silent.
            keepalive_timeout=limits.head.total_seconds(),
            lingering_time=limits.body.total_seconds(),
            max_line_size=LONGEST_FIELD,
            max_field_size=LONGEST_FIELD,
            max_headers=MOST_HEADERS,
            auto_decompress=False,
        )
        self._connections = _Connections(limits.connections)
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises OSError where it can't be had."""
        await self._runner.setup()
        protocol = cast("web.Server", self._runner.server)
        loop = asyncio.get_running_loop()
        try:
            # Not a TCPSite: it has no place for a bound on connections.
            self._server = await loop.create_server(lambda: _Connection(protocol(), self._connections), host, port)
        except OSError:
            await self._runner.cleanup()
            raise
        taken: int = self._server.sockets[0].getsockname()[1]
        return taken

    async def stop(self) -> None:
        """Idle connections are closed at once; requests in progress have a moment to end."""
        if self._server is None:
            return
        self._server.close()
        await self._runner.cleanup()
        await self._connections.abort()


class _Connections:
    """The open connections of one listener, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.Transport, None] = {}
        self._emptied = asyncio.Event()

    def add(self, transport: asyncio.Transport) -> None:
        # Not the newest is refused: else clients that only sit there would shut out the probes, and a process that
        # does its work would be killed for dead.
        surplus = len(self._open) + 1 - self._most
        for oldest in list(self._open)[: max(0, surplus)]:
            oldest.abort()
        self._open[transport] = None

    def remove(self, transport: asyncio.Transport) -> None:
        self._open.pop(transport, None)
        if not self._open:
            self._emptied.set()

    async def abort(self) -> None:
        """Aborts what is still open, be it that a client does not read or that it connected during the stop."""
        while self._open:
            self._emptied.clear()
            for transport in list(self._open):
                transport.abort()
            await self._emptied.wait()


class _Connection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, and tells of the connection's beginning and end."""

    def __init__(self, http: asyncio.Protocol, among: _Connections) -> None:
        self._http, self._among = http, among
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._among.add(self._transport)
        self._http.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._among.remove(self._transport)
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
                response = await _answer(request, handler)
                # Sent here and not by aiohttp afterwards, so that a client that does not read is given up, too.
                await response.prepare(request)
                await response.write_eof()
                return response
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise

    return bounded


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception:
        log.exception("a request failed", method=request.method, path=request.path)
        return web.Response(status=500, text="500: Internal Server Error")
