"""The client of a cluster connected to a canned server, at the level of calls and streams.
At the end every connection has to be closed, and the server has to see that."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from service.kubernetes.access import Access, Way
from service.kubernetes.calls import Calls
from service.kubernetes.exchange import Stream
from service.kubernetes.tls import TlsContexts
from service.settings.redis import Secret
from standins.servers import Papers
from tests.canned_server import Canned, Script, canned_server

DEADLINE = 30.0
TOKEN = "token-of-the-test"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = OK + b"Content-Length: 2\r\n\r\n{}"


def calls_to(address: str, papers: Papers | None = None, proxy: str = "") -> Calls:
    """Each reading of the credentials gives another token: token-of-the-test-1, -2 and so on."""
    readings = iter(range(1, 100))
    tls = TlsContexts().get(papers.ca.read_bytes(), b"", b"", verify=True) if papers else None

    async def way() -> Way:
        token = Secret(f"Bearer {TOKEN}-{next(readings)}")
        return Way(server=address, tls=tls, authorization=token, proxy=Secret(proxy) if proxy else None)

    return Calls("odd", Access("odd", way, time.monotonic))


def address_of(port: int, papers: Papers | None = None) -> str:
    return f"http{'s' if papers else ''}://127.0.0.1:{port}"


@asynccontextmanager
async def canned_calls(
    script: Script, papers: Papers | None = None, prefix: str = ""
) -> AsyncIterator[tuple[Canned, Calls]]:
    async with asyncio.timeout(DEADLINE), canned_server(script, papers) as (canned, port):
        calls = calls_to(address_of(port, papers) + prefix, papers)
        try:
            yield canned, calls
        finally:
            await calls.aclose()
        await canned.all_closed()


def opened(calls: Calls, first: float = 20.0) -> AbstractAsyncContextManager[Stream]:
    return calls.stream("/x", {"watch": "true"}, "application/json", timedelta(seconds=first))


async def collect(stream: Stream, body: bytearray) -> None:
    while part := await stream.read():
        body += part


async def everything(stream: Stream) -> bytes:
    body = bytearray()
    await collect(stream, body)
    return bytes(body)


async def read_stream(calls: Calls) -> None:
    async with opened(calls, first=60) as stream:
        await everything(stream)


async def read_once(calls: Calls) -> None:
    await calls.call("GET", "/x")
