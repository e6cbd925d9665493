"""Records between the call layer and the HTTP transport: request, answer, stream, and the transport's own errors.
They import neither aiohttp nor kubernetes_asyncio, so that commands that need no cluster start quickly."""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

MEBIBYTE: Final = 1024 * 1024
LARGEST_ANSWER: Final = 16 * MEBIBYTE
"""Of one object or document. etcd takes 1.5 MiB as one object by default."""

LARGEST_PAGE: Final = 64 * MEBIBYTE
"""Of one page of a list, which holds up to 500 objects."""


class Request(NamedTuple):
    """`headers` are without those of the credentials; `timeout` is in seconds; `largest` is in bytes."""

    method: str
    path: str
    query: Mapping[str, str] | None
    headers: dict[str, str]
    body: object | None
    timeout: float
    largest: int = LARGEST_ANSWER


class Answer(NamedTuple):
    """A whole answer. Names of headers are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer that is read piece by piece, such as a watch."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    async def read(self) -> bytes:
        """The next piece; empty at the end of the answer. Raises OSError and ValueError where it breaks off."""

    async def refusal(self) -> bytes:
        """The beginning of the body of an error; empty where it could not be read."""

    def abort(self) -> None:
        """Closes the connection at once, without a TLS shutdown."""


class MalformedAnswer(ValueError):
    """An answer that is not valid HTTP."""


class UnusableAnswer(ValueError):
    """A valid answer that is not read: too large, or compressed although the request forbids it."""
