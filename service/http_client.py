"""HTTP client rules for all our aiohttp sessions: what an idle connection receives is never an answer, and which
codings a body has. aiohttp itself is not imported."""

import asyncio
import errno
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.connector import Connection
    from multidict import CIMultiDictProxy

    _Connector = TypeVar("_Connector", bound=aiohttp.BaseConnector)

IDENTITY: Final = "identity"
"""The value of Accept-Encoding that asks for a body as it is."""
_HARMLESS: Final = {"Content-Encoding": ("", IDENTITY), "Transfer-Encoding": ("", IDENTITY, "chunked")}


def body_codings(headers: "CIMultiDictProxy[str]") -> list[str]:
    """The codings of a body in lower case, without `identity` and without `chunked`, which aiohttp undoes."""
    return [
        coding
        for name, harmless in _HARMLESS.items()
        for value in headers.getall(name, ())
        for coding in (one.strip().lower() for one in value.split(","))
        if coding not in harmless
    ]


def close_on_early_data(connector: "_Connector") -> "_Connector":
    """Makes a connector close connections that receive something while they are idle, and returns it.

    aiohttp would keep all of it in memory, and take the first of it for the answer to the request that comes next.
    Reading is not paused meanwhile, because the end of an idle connection would go unnoticed then. What arrives after
    a request has begun can't be told from its answer."""
    connect = connector.connect

    async def checked(*args: Any, **options: Any) -> "Connection":
        while True:
            connection = await connect(*args, **options)
            protocol, transport = connection.protocol, connection.transport
            pooled = transport is not None and isinstance(transport.get_protocol(), _Idle)
            if protocol is not None and transport is not None:
                transport.set_protocol(protocol)
                # What came in one piece with the end of the answer before is in here.
                if not protocol.should_close:
                    connection.add_callback(partial(_watch, protocol, transport))
                    return connection
            connection.close()
            if not pooled:
                raise ConnectionResetError(errno.ECONNRESET, "closed, or answered before the request")

    # As an attribute, because the SDK of AWS has a connector class of its own.
    connector.connect = checked  # type: ignore[method-assign]
    return connector


def _watch(protocol: asyncio.Protocol, transport: asyncio.Transport) -> None:
    """Called when a connection is released, to the pool or to be closed."""
    transport.set_protocol(_Idle(protocol, transport))


class _Idle(asyncio.Protocol):
    """Protocol of a connection in the pool, in place of aiohttp's."""

    def __init__(self, protocol: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self._protocol, self._transport = protocol, transport

    def data_received(self, data: bytes) -> None:
        self._transport.abort()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)
