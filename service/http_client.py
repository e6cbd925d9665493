"""Rules for all aiohttp sessions: connections that receive data while idle are closed, and the codings of a body.
aiohttp itself is not imported."""

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
"""The value of Accept-Encoding for a body without coding."""
_HARMLESS: Final = {"Content-Encoding": ("", IDENTITY), "Transfer-Encoding": ("", IDENTITY, "chunked")}


def body_codings(headers: "CIMultiDictProxy[str]") -> list[str]:
    """The codings of a body in lower case, without `identity` and `chunked`, which aiohttp decodes."""
    return [
        coding
        for name, harmless in _HARMLESS.items()
        for value in headers.getall(name, ())
        for coding in (one.strip().lower() for one in value.split(","))
        if coding not in harmless
    ]


def close_on_early_data(connector: "_Connector") -> "_Connector":
    """Makes a connector close connections that receive data while they are idle, and returns it.

    aiohttp would keep the data in memory and use it as the response to the next request. Reading is not paused on idle
    connections, because their end would go unnoticed. Data that arrives after a request has begun can't be
    distinguished from its response."""
    connect = connector.connect

    async def checked(*args: Any, **options: Any) -> "Connection":
        while True:
            connection = await connect(*args, **options)
            protocol, transport = connection.protocol, connection.transport
            pooled = transport is not None and isinstance(transport.get_protocol(), _IdleProtocol)
            if protocol is not None and transport is not None:
                transport.set_protocol(protocol)
                # Set where data arrived together with the end of the previous response.
                if not protocol.should_close:
                    connection.add_callback(partial(_watch, protocol, transport))
                    return connection
            connection.close()
            if not pooled:
                raise ConnectionResetError(errno.ECONNRESET, "closed, or answered before the request")

    # Replaced on the instance, because the AWS SDK has its own connector class.
    connector.connect = checked  # type: ignore[method-assign]
    return connector


def _watch(protocol: asyncio.Protocol, transport: asyncio.Transport) -> None:
    """Called when a connection is released."""
    transport.set_protocol(_IdleProtocol(protocol, transport))


class _IdleProtocol(asyncio.Protocol):
    """Protocol of an idle connection, in place of aiohttp's."""

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
