"""A cluster behind a proxy that passes TLS connections on, refuses them, or is left in the middle."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from service.kubernetes import Unavailable
from service.kubernetes.api_calls import ApiCalls
from standins.redis_servers import TlsFiles
from tests.canned_calls import (
    DEADLINE,
    TOKEN,
    WHOLE,
    address_of,
    calls_to,
    everything,
    opened,
    read_once,
    read_stream,
)
from tests.canned_server import CLOSE, CannedServer, Script, canned_server
from tests.tls_files import make_tls_files

PASSWORD = "password-of-the-proxy"
CHUNKED = b"HTTP/1.1 200 OK\r\nDate: today\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls_files"))


class TunnelProxy:
    """What it was sent at the beginning of each connection, and how many of these the client has closed."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.heads: list[bytes] = []
        self._refuses = refuses
        self._open = 0
        self._changed = asyncio.Event()

    async def all_closed(self) -> None:
        while self._open:
            self._changed.clear()
            await self._changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if self._refuses:
                writer.write(b"HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n")
            else:
                host, _, port = head.split()[1].decode().rpartition(":")
                behind, there = await asyncio.open_connection(host, int(port))
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                await asyncio.gather(self._pump(reader, there), self._pump(behind, writer))
        writer.close()
        self._open -= 1
        self._changed.set()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def served(
    script: Script, tls_files: TlsFiles, proxy: TunnelProxy | None = None, ca: Path | None = None
) -> AsyncIterator[tuple[CannedServer, ApiCalls, TunnelProxy]]:
    proxy = proxy or TunnelProxy()
    async with asyncio.timeout(DEADLINE), canned_server(script, tls_files) as (canned, port):
        door = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        address = f"http://me:{PASSWORD}@127.0.0.1:{door.sockets[0].getsockname()[1]}"
        trusted = tls_files if ca is None else replace(tls_files, ca=ca)
        calls = calls_to(address_of(port, tls_files), trusted, address)
        try:
            yield canned, calls, proxy
        finally:
            await calls.aclose()
            await proxy.all_closed()
            door.close()
            await door.wait_closed()


async def test_calls_and_streams_go_through_it_with_its_credentials(tls_files: TlsFiles) -> None:
    two = CHUNKED + b"4\r\none\n\r\n|4\r\ntwo\n\r\n0\r\n\r\n"
    async with served([[WHOLE, WHOLE, two], [WHOLE]], tls_files) as (canned, calls, proxy):
        assert await calls.call("GET", "/x") == b"{}"
        assert await calls.call("PATCH", "/x", body=[1]) == b"{}"
        assert canned.requests[1].endswith(b"[1]")
        async with opened(calls) as stream:
            assert (stream.status, stream.headers.get("date")) == (200, "today")
            assert await everything(stream) == b"one\ntwo\n"
        assert canned.requests[2].startswith(b"GET /x?watch=true HTTP/1.1\r\n")
        assert all(f"Bearer {TOKEN}-1".encode() in request for request in canned.requests)
        pair = base64.b64encode(f"me:{PASSWORD}".encode())
        assert all(b"Proxy-Authorization: Basic " + pair in head for head in proxy.heads)
        assert not any(TOKEN.encode() in head for head in proxy.heads)
        assert not any(pair in request for request in canned.requests)


async def test_a_stream_that_breaks_off_is_not_at_its_end(tls_files: TlsFiles) -> None:
    async with served([[CHUNKED + b"6\r\ntw|" + CLOSE]], tls_files) as (_, calls, _proxy):
        with pytest.raises(ConnectionError):
            await read_stream(calls)


@pytest.mark.parametrize("way", [read_stream, read_once])
async def test_a_proxy_that_refuses_is_named_with_its_status_and_without_secrets(
    way: Callable[[ApiCalls], Coroutine[None, None, None]], tls_files: TlsFiles
) -> None:
    async with served([], tls_files, TunnelProxy(refuses=True)) as (_, calls, _proxy):
        with pytest.raises(Unavailable, match="the proxy refused with status 407") as caught:
            await way(calls)
        assert PASSWORD not in repr(caught.value)
        assert TOKEN not in repr(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("way", [read_stream, read_once])
async def test_an_untrusted_server_behind_the_proxy_is_reported_as_such(
    way: Callable[[ApiCalls], Coroutine[None, None, None]], tls_files: TlsFiles, tmp_path: Path
) -> None:
    async with served([[]], tls_files, ca=make_tls_files(tmp_path).ca) as (_, calls, _proxy):
        with pytest.raises(Unavailable, match="not trusted"):
            await way(calls)


async def test_a_server_behind_it_that_does_not_begin_in_time_is_unavailable_and_left(tls_files: TlsFiles) -> None:
    async with served([[b"HTTP/1.1 200"]], tls_files) as (_, calls, proxy):
        with pytest.raises(Unavailable, match="in time"):
            async with opened(calls, first=0.5):
                pytest.fail("nothing has begun")
        await proxy.all_closed()


@pytest.mark.parametrize("answer", [b"", CHUNKED + b"ff\r\nbeginning"])
@pytest.mark.parametrize("way", [read_stream, read_once])
async def test_a_cancelled_call_leaves_no_connection(
    way: Callable[[ApiCalls], Coroutine[None, None, None]], answer: bytes, tls_files: TlsFiles
) -> None:
    async with served([[answer]], tls_files) as (canned, calls, proxy):
        task = asyncio.create_task(way(calls))
        await canned.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await proxy.all_closed()
