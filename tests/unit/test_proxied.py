"""A cluster behind a proxy that passes TLS connections on, refuses them, or is left in the middle."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from service.cluster import Unavailable
from service.cluster.access import Access, Way
from service.cluster.calls import Calls
from service.cluster.flow import Stream
from service.cluster.tls import TlsContexts
from service.local.servers import Papers
from service.settings.redis import Secret
from tests.canned_server import CLOSE, Canned, Script, canned_server, still_open
from tests.papers import draw_up

PASSWORD = "password-of-the-proxy"
TOKEN = "token-of-the-test"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nDate: today\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return draw_up(tmp_path_factory.mktemp("papers"))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What a proxy does with CONNECT."""
    head = await reader.readuntil(b"\r\n\r\n")
    host, _, port = head.split()[1].decode().rpartition(":")
    behind, there = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
    await asyncio.gather(_pump(reader, there), _pump(behind, writer))


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n")
    writer.close()


@asynccontextmanager
async def served(
    script: Script, papers: Papers, proxy: Callable[..., Coroutine[None, None, None]] = _pass_on, ca: Path | None = None
) -> AsyncIterator[tuple[Canned, Calls, int]]:
    """Gives the port of the proxy, which all connections of ours have to go to."""
    async with asyncio.timeout(10), canned_server(script, papers) as (canned, port):
        tls = TlsContexts().get((ca or papers.ca).read_bytes(), b"", b"", verify=True)
        door = await asyncio.start_server(proxy, "127.0.0.1", 0)
        at = door.sockets[0].getsockname()[1]
        address = Secret(f"http://me:{PASSWORD}@127.0.0.1:{at}")
        token = Secret(f"Bearer {TOKEN}")
        way = Way(server=f"https://127.0.0.1:{port}", tls=tls, proxy=address, authorization=token)

        async def read() -> Way:
            return way

        calls = Calls("odd", Access("odd", read, time.monotonic))
        try:
            yield canned, calls, at
        finally:
            await calls.aclose()
            door.close()
            await door.wait_closed()
        assert not still_open(at)


@asynccontextmanager
async def opened(calls: Calls, first: float = 5.0) -> AsyncIterator[Stream]:
    async with calls.stream("/x", {"watch": "true"}, "application/json", timedelta(seconds=first)) as stream:
        yield stream


async def _read(calls: Calls) -> None:
    async with opened(calls) as stream:
        while await stream.read():
            pass


async def _ask(calls: Calls) -> None:
    await calls.call("GET", "/x")


async def test_calls_and_streams_go_through_it(papers: Papers) -> None:
    two = CHUNKED + b"4\r\none\n\r\n|4\r\ntwo\n\r\n0\r\n\r\n"
    async with served([[WHOLE, WHOLE, two], [WHOLE]], papers) as (canned, calls, _):
        assert await calls.call("GET", "/x") == b"{}"
        assert await calls.call("PATCH", "/x", body=[1]) == b"{}"
        assert canned.requests[1].endswith(b"[1]")
        body = b""
        async with opened(calls) as stream:
            assert (stream.status, stream.headers.get("date")) == (200, "today")
            while part := await stream.read():
                body += part
        assert body == b"one\ntwo\n"
        assert canned.requests[2].startswith(b"GET /x?watch=true HTTP/1.1\r\n")
        assert all(b"Bearer " + TOKEN.encode() in request for request in canned.requests)


async def test_a_stream_that_breaks_off_is_not_at_its_end(papers: Papers) -> None:
    async with served([[CHUNKED + b"6\r\ntw|" + CLOSE]], papers) as (_, calls, _at):
        with pytest.raises(ConnectionError):
            await _read(calls)


@pytest.mark.parametrize("way", [_read, _ask])
async def test_a_proxy_that_refuses_is_named_with_its_status_and_without_secrets(
    way: Callable[[Calls], Coroutine[None, None, None]], papers: Papers
) -> None:
    async with served([], papers, _refuse) as (_, calls, _at):
        with pytest.raises(Unavailable, match="the proxy refused with status 407") as caught:
            await way(calls)
        assert PASSWORD not in repr(caught.value)
        assert TOKEN not in repr(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("way", [_read, _ask])
async def test_a_server_behind_it_that_is_not_trusted_is_told_as_such(
    way: Callable[[Calls], Coroutine[None, None, None]], papers: Papers, tmp_path: Path
) -> None:
    async with served([[]], papers, ca=draw_up(tmp_path).ca) as (_, calls, _at):
        with pytest.raises(Unavailable, match="not trusted"):
            await way(calls)


async def test_a_server_behind_it_that_does_not_begin_in_time_is_unavailable_and_left(papers: Papers) -> None:
    async with served([[b"HTTP/1.1 200"]], papers) as (_, calls, at):
        with pytest.raises(Unavailable, match="in time"):
            async with opened(calls, first=0.3):
                pytest.fail("nothing has begun")
        await asyncio.sleep(0)
        assert not still_open(at)


@pytest.mark.parametrize("answer", [b"", CHUNKED + b"ff\r\nbeginning"])
@pytest.mark.parametrize("way", [_read, _ask])
async def test_who_is_cancelled_leaves_no_farewell_to_wait_for(
    way: Callable[[Calls], Coroutine[None, None, None]], answer: bytes, papers: Papers
) -> None:
    async with served([[answer]], papers) as (canned, calls, at):
        task = asyncio.create_task(way(calls))
        await canned.asked.wait()
        assert still_open(at)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert not still_open(at)
