"""Answers without an end, from servers that send, cut, withhold and flood byte by byte as each test says."""

import asyncio
import gzip
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop

from service.cluster import ClusterError, Expired, Unauthorized, Unavailable
from service.cluster.access import Access, Way
from service.cluster.calls import Calls
from service.cluster.flow import MOST_WAITING, Stream
from service.cluster.http1 import NoHttp
from service.cluster.route import Route
from service.cluster.tls import TlsContexts
from service.local.servers import Papers
from service.settings.redis import Secret
from tests.canned_server import CLOSE, Canned, Script, canned_server, secured, still_open
from tests.papers import draw_up

DEADLINE = 10.0
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return draw_up(tmp_path_factory.mktemp("papers"))


def calls_to(port: int, papers: Papers | None = None) -> Calls:
    readings = iter(range(1, 100))
    tls = TlsContexts().get(papers.ca.read_bytes(), b"", b"", verify=True) if papers else None

    async def way() -> Way:
        token = Secret(f"Bearer token-{next(readings)}")
        return Way(server=f"http{'s' if tls else ''}://127.0.0.1:{port}", tls=tls, authorization=token)

    return Calls("odd", Access("odd", way, time.monotonic))


@asynccontextmanager
async def served(script: Script, papers: Papers | None = None) -> AsyncIterator[tuple[Canned, Calls, int]]:
    async with asyncio.timeout(DEADLINE), canned_server(script, papers) as (canned, port):
        calls = calls_to(port, papers)
        try:
            yield canned, calls, port
        finally:
            await calls.aclose()
        assert not still_open(port)


def opened(calls: Calls, first: float = 5.0) -> AbstractAsyncContextManager[Stream]:
    return calls.stream("/x", {"watch": "true"}, "application/json", timedelta(seconds=first))


async def collect(stream: Stream, body: bytearray) -> None:
    while part := await stream.read():
        body += part


async def everything(stream: Stream) -> bytes:
    body = bytearray()
    await collect(stream, body)
    return bytes(body)


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"5\r\none\n2\r\n3\r\n\n3\n\r\n0\r\n\r\n",
        b"HTTP/1.1 2|00 OK\r\nTransfer-Encoding: chunked\r|\n\r\n0|5|\r|\non|e\n2|\r|\n3\r\n|\n3\n|\r\n0|\r\n\r|\n",
        CHUNKED + b'5;a=b;c=d|\r\none\n2\r\n3 ; e="f"\r\n\n3\n\r\n000;g|\r\nSum: 1\r|\nMore: 2\r\n\r\n',
        HEAD + b"Content-Length: 8\r\n\r\none\n|2\n3\n",
        b"HTTP/1.0 200 OK\r\n\r\none\n|2\n3\n|" + CLOSE,
        b"HTTP/1.1 100 Continue\r\n\r\n|" + CHUNKED + b"8\r\none\n2\n3\n\r\n0\r\n\r\n",
    ],
)
async def test_an_answer_is_read_however_it_is_cut_and_its_end_is_an_end(
    answer: bytes, over_tls: bool, papers: Papers
) -> None:
    async with served([[answer], [answer]], papers if over_tls else None) as (canned, calls, port):
        async with opened(calls) as stream:
            assert stream.status == 200
            assert await everything(stream) == b"one\n2\n3\n"
            assert await stream.read() == b""
        await asyncio.sleep(0)
        assert not still_open(port)
        async with opened(calls) as stream:
            assert await everything(stream) == b"one\n2\n3\n"
        assert canned.connections == 2
        assert canned.requests[0].startswith(b"GET /x?watch=true HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"Accept-Encoding: identity\r\n" in canned.requests[0]


async def test_what_comes_is_there_to_be_read_before_its_chunk_is_whole() -> None:
    async with served([[CHUNKED + b"ff\r\nbeginning"]]) as (_, calls, _port), opened(calls) as stream:
        assert await stream.read() == b"beginning"


@pytest.mark.parametrize(
    "cut",
    [
        CHUNKED + b"4\r\none\n\r\n6\r\ntw",
        CHUNKED + b"4\r\none\n\r\n6",
        CHUNKED + b"4\r\none\n\r\n",
        CHUNKED + b"4\r\none\n\r\n0\r\n",
        HEAD + b"Content-Length: 20\r\n\r\none\n",
    ],
)
@pytest.mark.parametrize("over_tls", [False, True])
async def test_an_answer_that_breaks_off_gives_what_came_and_is_never_at_its_end(
    cut: bytes, over_tls: bool, papers: Papers
) -> None:
    async with (
        served([[cut + b"|" + CLOSE]], papers if over_tls else None) as (_, calls, _port),
        opened(calls) as stream,
    ):
        body = bytearray()
        with pytest.raises(ConnectionError):
            await collect(stream, body)
        assert body.startswith(b"one\n")
        with pytest.raises(ConnectionError):
            await stream.read()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"" + CLOSE,
    ],
)
async def test_a_head_that_is_none_is_unavailable(answer: bytes) -> None:
    async with served([[answer]]) as (_, calls, port):
        with pytest.raises(Unavailable):
            async with opened(calls):
                pytest.fail("this is no answer")
        await asyncio.sleep(0)
        assert not still_open(port)


@pytest.mark.parametrize(
    "nonsense",
    [b"xyz\r\n", b"-1\r\n", b"1_0\r\n", b"\r\n", b"1\r\n{}\r\n", b"0\r\n\r\nmore", b"1;" + b"x" * 70_000],
)
async def test_chunks_that_are_none_end_it_after_what_was_good(nonsense: bytes) -> None:
    async with served([[CHUNKED + b"4\r\none\n\r\n" + nonsense]]) as (_, calls, _port), opened(calls) as stream:
        body = bytearray()
        with pytest.raises(NoHttp):
            await collect(stream, body)
        assert body.startswith(b"one\n")


async def test_an_answer_that_is_packed_without_being_asked_is_refused() -> None:
    packed = gzip.compress(b"{}", mtime=0)
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with served([[head + packed]]) as (_, calls, _port), opened(calls) as stream:
        with pytest.raises(NoHttp):
            await stream.read()


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_server_that_does_not_begin_in_time_is_unavailable_and_left(over_tls: bool, papers: Papers) -> None:
    async with served([[b"HTTP/1.1 200"]], papers if over_tls else None) as (canned, calls, port):
        with pytest.raises(Unavailable, match="in time"):
            async with opened(calls, first=0.2):
                pytest.fail("nothing has begun")
        await asyncio.sleep(0)
        assert not still_open(port)
        assert canned.connections == 1


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_server_is_held_up_while_nobody_reads(over_tls: bool, papers: Papers) -> None:
    size, block, sent = 48 * 1024 * 1024, bytes(64 * 1024), 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % size)
            while sent < size:
                writer.write(block)
                sent += len(block)
                await writer.drain()
            await reader.read()
        writer.close()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE * 3))
        context = secured(papers) if over_tls else None
        server = await stack.enter_async_context(await asyncio.start_server(flood, "127.0.0.1", 0, ssl=context))
        calls = calls_to(server.sockets[0].getsockname()[1], papers if over_tls else None)
        stack.push_async_callback(calls.aclose)
        stream = await stack.enter_async_context(opened(calls))
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
            assert sent < size / 2, "the server got rid of what nobody has read"
        read = largest = 0
        while part := await stream.read():
            read, largest = read + len(part), max(largest, len(part))
        assert read == size
        assert largest < 2 * MOST_WAITING


Reached = Callable[[], Awaitable[object]]


async def _connecting(stack: AsyncExitStack, _: Papers) -> tuple[int, Reached]:
    """A place whose queue of connections is full, so that one more can't be made."""
    door = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    port = door.getsockname()[1]
    for _number in range(3):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(("127.0.0.1", port))

    async def some_rounds() -> None:
        for _round in range(10):
            await asyncio.sleep(0)

    return port, some_rounds


async def _greeting(stack: AsyncExitStack, _: Papers) -> tuple[int, Reached]:
    """A server that hears a TLS handshake begin and says nothing."""
    heard = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        heard.set()
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await stack.enter_async_context(await asyncio.start_server(listen, "127.0.0.1", 0))
    return server.sockets[0].getsockname()[1], heard.wait


async def _waiting(stack: AsyncExitStack, papers: Papers) -> tuple[int, Reached]:
    canned, port = await stack.enter_async_context(canned_server([[b""]], papers))
    return port, canned.asked.wait


async def _reading(stack: AsyncExitStack, papers: Papers) -> tuple[int, Reached]:
    canned, port = await stack.enter_async_context(canned_server([[CHUNKED + b"ff\r\nbeginning"]], papers))
    return port, canned.asked.wait


async def _read(calls: Calls) -> None:
    async with opened(calls, first=60) as stream:
        await everything(stream)


async def _ask(calls: Calls) -> None:
    await calls.call("GET", "/x")


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
@pytest.mark.parametrize(
    ("way", "stage"),
    [(_read, _connecting), *((way, stage) for way in (_read, _ask) for stage in (_greeting, _waiting, _reading))],
)
async def test_whoever_ends_it_at_whatever_step_leaves_no_connection(
    way: Callable[[Calls], Coroutine[None, None, None]],
    stage: Callable[[AsyncExitStack, Papers], Awaitable[tuple[int, Reached]]],
    ending: str,
    papers: Papers,
) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE))
        port, reached = await stage(stack, papers)
        calls = calls_to(port, papers)
        task = asyncio.create_task(way(calls))
        await reached()
        assert stage is _connecting or still_open(port)
        if ending == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await calls.aclose()
        assert not still_open(port)
        if ending == "closed":
            with pytest.raises((Unavailable, ConnectionError)):
                await task


class _Impatient(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


async def test_a_connection_that_is_lost_before_its_handshake_keeps_nobody_waiting(papers: Papers) -> None:
    async with canned_server([[]], papers) as (_, port):
        way = Way(server=f"https://127.0.0.1:{port}", tls=TlsContexts().get(b"", b"", b"", verify=True))
        with pytest.raises(ConnectionError):
            await Route(way).connect(_Impatient(), timeout=5)


async def test_nothing_is_opened_once_all_is_closed() -> None:
    async with served([[CHUNKED], [CHUNKED]]) as (canned, calls, _):
        await calls.aclose()
        with pytest.raises(Unavailable):
            await _read(calls)
        with pytest.raises(Unavailable):
            await _ask(calls)
        assert not canned.requests


async def test_a_token_that_is_refused_is_read_again_once() -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    async with served([[refusal], [CHUNKED + b"4\r\none\n\r\n0\r\n\r\n"]]) as (canned, calls, _):
        async with opened(calls) as stream:
            assert await everything(stream) == b"one\n"
        assert [request.count(b"Bearer token-%d\r\n" % n) for n, request in enumerate(canned.requests, 1)] == [1, 1]
    async with served([[refusal], [refusal]]) as (canned, calls, port):
        with pytest.raises(Unauthorized):
            await _read(calls)
        assert canned.connections == 2
        await asyncio.sleep(0)
        assert not still_open(port)


def _refusal(code: int, body: bytes, length: int | None = None) -> bytes:
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (code, len(body) if length is None else length, body)


_EXPIRED = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}'


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (_refusal(410, _EXPIRED), Expired, "too old resource version"),
        (_refusal(410, _EXPIRED, 1000) + b"|" + CLOSE, Expired, "status 410"),
        (_refusal(500, b"<html>it is broken</html>"), Unavailable, "<html>it is broken</html>"),
        (_refusal(500, b"it is broken " * 10_000, 10**12), Unavailable, "it is broken"),
        (_refusal(502, b"what is token-1?"), Unavailable, r"what is \*+"),
        (_refusal(502, b"what is tok", 1000) + b"|" + CLOSE, Unavailable, "status 502"),
    ],
)
async def test_a_refusal_has_its_type_and_its_words(answer: bytes, kind: type[ClusterError], says: str) -> None:
    async with served([[answer]]) as (_, calls, port):
        with pytest.raises(kind, match=says) as caught:
            await _read(calls)
        assert "token-1" not in str(caught.value)
        await asyncio.sleep(0)
        assert not still_open(port)


@pytest.mark.parametrize("module", ["service.cluster", "service.watching.watcher"])
def test_a_process_that_only_follows_clusters_does_without_a_general_client(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'aiohttp', 'yarl', 'kubernetes_asyncio'}} & set(sys.modules)))"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def _forging(port: "list[int]", papers: Papers, listening: threading.Event, tries: int) -> None:
    """Somebody on the way, who says something in clear before the true server's TLS begins."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port.append(server.getsockname()[1])
        listening.set()
        for _ in range(tries):
            with server.accept()[0] as connection, suppress(OSError):
                connection.settimeout(DEADLINE)
                connection.sendall(CHUNKED + b"7\r\nforged\n\r\n")
                with secured(papers).wrap_socket(connection, server_side=True) as true:
                    true.recv(4096)
                    true.sendall(CHUNKED + b"5\r\ntrue\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_comes_before_the_tls_handshake_is_no_answer(
    loop: Callable[[], asyncio.AbstractEventLoop], papers: Papers
) -> None:
    tries, port, listening = 10, list[int](), threading.Event()
    forger = threading.Thread(target=_forging, args=(port, papers, listening, tries))
    forger.start()
    assert listening.wait(DEADLINE)

    async def ask() -> list[bytes]:
        answers = []
        for _ in range(tries):
            calls = calls_to(port[0], papers)
            with suppress(ClusterError):
                async with opened(calls) as stream:
                    answers.append(await stream.read())
            await calls.aclose()
        return answers

    with asyncio.Runner(loop_factory=loop) as runner:
        answers = runner.run(ask())
    forger.join(DEADLINE)
    assert set(answers) <= {b"true\n"}
