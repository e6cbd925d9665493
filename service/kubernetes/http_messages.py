"""HTTP messages between the call layer and the transport: request, response, stream, and the errors of the transport.
This module imports neither aiohttp nor kubernetes_asyncio, so that commands without a cluster start quickly."""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

MEBIBYTE: Final = 1024 * 1024
LARGEST_RESPONSE: Final = 16 * MEBIBYTE
"""Of one object or document. etcd takes 1.5 MiB as one object by default."""

LARGEST_PAGE: Final = 64 * MEBIBYTE
"""Of one page of a list, which holds up to 500 objects."""


class ApiRequest(NamedTuple):
    """`headers` are without those of the credentials; `timeout` is in seconds; `largest` is in bytes."""

    method: str
    path: str
    query: Mapping[str, str] | None
    headers: dict[str, str]
    body: object | None
    timeout: float
    largest: int = LARGEST_RESPONSE


class ApiResponse(NamedTuple):
    """A complete response. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ResponseStream(Protocol):
    """A response that is read piece by piece, such as a watch."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    async def read(self) -> bytes:
        """The next piece; empty at the end of the response. Raises OSError or ValueError if it breaks off."""

    async def error_body(self) -> bytes:
        """The beginning of the body of an error response; empty if it can't be read."""

    def abort(self) -> None:
        """Closes the connection at once, without a TLS shutdown."""


class MalformedResponse(ValueError):
    """A response that is not valid HTTP."""


class UnusableResponse(ValueError):
    """A valid response that is not read: too large, or compressed although the request forbids it."""
