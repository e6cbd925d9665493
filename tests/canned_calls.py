"""Kubernetes client connected to a canned server, at the level of calls and streams.
At the end of a test every connection must be closed, as seen by the server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from service.kubernetes.api_calls import ApiCalls
from service.kubernetes.endpoint import Endpoint, EndpointCache
from service.kubernetes.http_messages import ResponseStream
from service.kubernetes.tls import TlsContexts
from service.settings.redis import Secret
from standins.redis_servers import TlsFiles
from tests.canned_server import CannedServer, Script, canned_server

DEADLINE = 30.0
TOKEN = "token-of-the-test"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = OK + b"Content-Length: 2\r\n\r\n{}"


def calls_to(address: str, tls_files: TlsFiles | None = None, proxy: str = "") -> ApiCalls:
    """Each reading of the credentials gives another token: token-of-the-test-1, -2 and so on."""
    readings = iter(range(1, 100))
    tls = TlsContexts().get(tls_files.ca.read_bytes(), b"", b"", verify=True) if tls_files else None

    async def read_endpoint() -> Endpoint:
        token = Secret(f"Bearer {TOKEN}-{next(readings)}")
        return Endpoint(server=address, tls=tls, authorization=token, proxy=Secret(proxy) if proxy else None)

    return ApiCalls("odd", EndpointCache("odd", read_endpoint, time.monotonic))


def address_of(port: int, tls_files: TlsFiles | None = None) -> str:
    return f"http{'s' if tls_files else ''}://127.0.0.1:{port}"


@asynccontextmanager
async def canned_calls(
    script: Script, tls_files: TlsFiles | None = None, prefix: str = ""
) -> AsyncIterator[tuple[CannedServer, ApiCalls]]:
    async with asyncio.timeout(DEADLINE), canned_server(script, tls_files) as (canned, port):
        calls = calls_to(address_of(port, tls_files) + prefix, tls_files)
        try:
            yield canned, calls
        finally:
            await calls.aclose()
        await canned.all_closed()


def opened(calls: ApiCalls, first: float = 20.0) -> AbstractAsyncContextManager[ResponseStream]:
    return calls.stream("/x", {"watch": "true"}, "application/json", timedelta(seconds=first))


async def collect(stream: ResponseStream, body: bytearray) -> None:
    while part := await stream.read():
        body += part


async def everything(stream: ResponseStream) -> bytes:
    body = bytearray()
    await collect(stream, body)
    return bytes(body)


async def read_stream(calls: ApiCalls) -> None:
    async with opened(calls, first=60) as stream:
        await everything(stream)


async def read_once(calls: ApiCalls) -> None:
    await calls.call("GET", "/x")
