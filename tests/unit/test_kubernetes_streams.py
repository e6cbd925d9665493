"""Streams from servers that send, cut, withhold and flood byte by byte as each test says."""

import asyncio
import gzip
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import uvloop

from service.kubernetes import ClusterError, Expired, Unauthorized, Unavailable
from service.kubernetes.api_calls import ApiCalls
from service.kubernetes.http_messages import UnusableResponse
from standins.redis_servers import TlsFiles
from tests.canned_calls import (
    CHUNKED,
    DEADLINE,
    OK,
    TOKEN,
    address_of,
    calls_to,
    canned_calls,
    collect,
    everything,
    opened,
    read_once,
    read_stream,
)
from tests.canned_server import CLOSE, canned_server, secured
from tests.tls_files import make_tls_files


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls_files"))


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"5\r\none\n2\r\n3\r\n\n3\n\r\n0\r\n\r\n",
        b"HTTP/1.1 2|00 OK\r\nTransfer-Encoding: chunked\r|\n\r\n0|5|\r|\non|e\n2|\r|\n3\r\n|\n3\n|\r\n0|\r\n\r|\n",
        CHUNKED + b'5;a=b;c=d|\r\none\n2\r\n3;e="f"\r\n\n3\n\r\n000;g|\r\nSum: 1\r|\nMore: 2\r\n\r\n',
        OK + b"Content-Length: 8\r\n\r\none\n|2\n3\n",
        b"HTTP/1.0 200 OK\r\n\r\none\n|2\n3\n|" + CLOSE,
        b"HTTP/1.1 100 Continue\r\n\r\n|" + CHUNKED + b"8\r\none\n2\n3\n\r\n0\r\n\r\n",
    ],
)
async def test_an_answer_is_read_however_it_is_cut_and_its_end_is_an_end(
    answer: bytes, over_tls: bool, tls_files: TlsFiles
) -> None:
    async with canned_calls([[answer], [answer]], tls_files if over_tls else None) as (canned, calls):
        async with opened(calls) as stream:
            assert stream.status == 200
            assert await everything(stream) == b"one\n2\n3\n"
            assert await stream.read() == b""
        assert canned.requests[0].startswith(b"GET /x?watch=true HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"Accept-Encoding: identity\r\n" in canned.requests[0]


async def test_the_connection_of_a_stream_that_is_left_early_is_closed_and_not_used_again() -> None:
    async with canned_calls([[CHUNKED + b"4\r\none\n\r\n"], [CHUNKED + b"4\r\ntwo\n\r\n"]]) as (canned, calls):
        async with opened(calls) as stream:
            assert await stream.read() == b"one\n"
        await canned.all_closed()
        async with opened(calls) as stream:
            assert await stream.read() == b"two\n"
        assert canned.connections == 2


async def test_what_comes_is_there_to_be_read_before_its_chunk_is_whole() -> None:
    async with canned_calls([[CHUNKED + b"ff\r\nbeginning"]]) as (_, calls), opened(calls) as stream:
        assert await stream.read() == b"beginning"


@pytest.mark.parametrize(
    "cut",
    [
        CHUNKED + b"4\r\none\n\r\n6\r\ntw",
        CHUNKED + b"4\r\none\n\r\n6",
        CHUNKED + b"4\r\none\n\r\n",
        CHUNKED + b"4\r\none\n\r\n0\r\n",
        OK + b"Content-Length: 20\r\n\r\none\n",
    ],
)
@pytest.mark.parametrize("over_tls", [False, True])
async def test_an_answer_that_breaks_off_is_never_at_its_end(cut: bytes, over_tls: bool, tls_files: TlsFiles) -> None:
    """Whether what came before is given is a matter of timing; the next watch brings it again."""
    async with (
        canned_calls([[cut + b"|" + CLOSE]], tls_files if over_tls else None) as (_, calls),
        opened(calls) as stream,
    ):
        body = bytearray()
        with pytest.raises(ConnectionError):
            await collect(stream, body)
        assert b"one\ntw".startswith(body)
        with pytest.raises(ConnectionError):
            await stream.read()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"" + CLOSE,
    ],
)
async def test_a_head_that_is_none_is_unavailable(answer: bytes) -> None:
    async with canned_calls([[answer], [answer]]) as (canned, calls):
        with pytest.raises(Unavailable):
            async with opened(calls):
                pytest.fail("this is no answer")
        await canned.all_closed()


@pytest.mark.parametrize("nonsense", [b"xyz\r\n", b"-1\r\n", b"1_0\r\n", b"\r\n", b"1\r\n{}\r\n"])
async def test_chunks_that_are_none_end_it(nonsense: bytes) -> None:
    """By an error: of the answer where all came at once, of a later reading where it came in pieces."""
    body = bytearray()
    async with canned_calls([[CHUNKED + b"4\r\none\n\r\n" + nonsense]]) as (canned, calls):
        with pytest.raises((Unavailable, ConnectionError, ValueError)):
            async with opened(calls) as stream:
                await collect(stream, body)
        await canned.all_closed()
    assert b"one\n{".startswith(body)


@pytest.mark.parametrize("header", [b"Content-Encoding: gzip", b"Content-Encoding: br"])
async def test_a_stream_that_is_compressed_without_being_asked_is_refused(header: bytes) -> None:
    packed = gzip.compress(b"{}", mtime=0)
    head = OK + header + b"\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with canned_calls([[head + packed]]) as (_, calls), opened(calls) as stream:
        with pytest.raises(UnusableResponse):
            await stream.read()


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_server_that_does_not_begin_in_time_is_unavailable_and_left(
    over_tls: bool, tls_files: TlsFiles
) -> None:
    async with canned_calls([[b"HTTP/1.1 200"]], tls_files if over_tls else None) as (canned, calls):
        with pytest.raises(Unavailable, match="in time"):
            async with opened(calls, first=0.5):
                pytest.fail("nothing has begun")
        await canned.all_closed()
        assert canned.connections <= 1


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_server_feels_back_pressure_while_the_stream_is_not_read(over_tls: bool, tls_files: TlsFiles) -> None:
    size, block, sent = 48 * 1024 * 1024, bytes(64 * 1024), 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"Content-Length: %d\r\n\r\n" % size)
            while sent < size:
                writer.write(block)
                sent += len(block)
                await writer.drain()
            await reader.read()
        writer.close()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE * 3))
        context = secured(tls_files) if over_tls else None
        server = await stack.enter_async_context(await asyncio.start_server(flood, "127.0.0.1", 0, ssl=context))
        used = tls_files if over_tls else None
        calls = calls_to(address_of(server.sockets[0].getsockname()[1], used), used)
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
        assert largest < 2 * 1024 * 1024


Reached = Callable[[], Awaitable[object]]
Closed = Callable[[], Awaitable[object]]


async def _connecting(stack: AsyncExitStack, _: TlsFiles) -> tuple[int, Reached, Closed]:
    """A listener whose queue of connections is full, so that one more can't be made."""
    door = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    port = door.getsockname()[1]
    for _number in range(3):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(("127.0.0.1", port))

    async def some_rounds() -> None:
        for _round in range(50):
            await asyncio.sleep(0)

    return port, some_rounds, some_rounds


async def _greeting(stack: AsyncExitStack, _: TlsFiles) -> tuple[int, Reached, Closed]:
    """A server that receives the beginning of a TLS handshake and sends nothing."""
    heard, closed = asyncio.Event(), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        heard.set()
        with suppress(ConnectionError):
            await reader.read()
        closed.set()
        writer.close()

    server = await stack.enter_async_context(await asyncio.start_server(listen, "127.0.0.1", 0))
    return server.sockets[0].getsockname()[1], heard.wait, closed.wait


async def _waiting(stack: AsyncExitStack, tls_files: TlsFiles) -> tuple[int, Reached, Closed]:
    canned, port = await stack.enter_async_context(canned_server([[b""]], tls_files))
    return port, canned.asked.wait, canned.all_closed


async def _reading(stack: AsyncExitStack, tls_files: TlsFiles) -> tuple[int, Reached, Closed]:
    canned, port = await stack.enter_async_context(canned_server([[CHUNKED + b"ff\r\nbeginning"]], tls_files))
    return port, canned.asked.wait, canned.all_closed


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
@pytest.mark.parametrize("way", [read_stream, read_once])
@pytest.mark.parametrize("stage", [_connecting, _greeting, _waiting, _reading])
async def test_a_stream_that_ends_at_any_step_leaves_no_connection_and_no_task(
    way: Callable[[ApiCalls], Coroutine[None, None, None]],
    stage: Callable[[AsyncExitStack, TlsFiles], Awaitable[tuple[int, Reached, Closed]]],
    ending: str,
    tls_files: TlsFiles,
) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE))
        port, reached, closed = await stage(stack, tls_files)
        before = asyncio.all_tasks()
        calls = calls_to(address_of(port, tls_files), tls_files)
        task = asyncio.create_task(way(calls))
        await reached()
        if ending == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # Before the client is closed: a process that goes on must not collect them.
            await closed()
        await calls.aclose()
        if ending == "closed":
            with pytest.raises((Unavailable, ConnectionError)):
                await task
            await closed()
        assert {left for left in asyncio.all_tasks() - before if "/aiohttp/" in str(left.get_coro())} == set()


@pytest.mark.parametrize("way", [read_stream, read_once])
async def test_a_connection_that_is_given_up_waits_for_no_tls_shutdown(
    way: Callable[[ApiCalls], Coroutine[None, None, None]], tls_files: TlsFiles
) -> None:
    """A server that hangs would not answer it either, and would keep the connection for half a minute."""
    asked, came = threading.Event(), list[bytes]()

    def hang(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection.dup() as below, secured(tls_files).wrap_socket(connection, server_side=True) as tls:
            tls.recv(4096)
            asked.set()
            below.settimeout(DEADLINE)
            try:
                came.append(below.recv(1))
            except ConnectionError:
                came.append(b"")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=hang, args=(server,))
        thread.start()
        calls = calls_to(address_of(server.getsockname()[1], tls_files), tls_files)
        task = asyncio.create_task(way(calls))
        assert await asyncio.to_thread(asked.wait, DEADLINE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(thread.join, DEADLINE)
        await calls.aclose()
    assert came == [b""]


async def test_nothing_is_opened_once_all_is_closed() -> None:
    async with canned_calls([[CHUNKED], [CHUNKED]]) as (canned, calls):
        await calls.aclose()
        with pytest.raises(Unavailable):
            await read_stream(calls)
        with pytest.raises(Unavailable):
            await read_once(calls)
        assert not canned.requests


async def test_a_stream_that_is_read_after_all_is_closed_is_not_at_its_end() -> None:
    async with canned_calls([[OK + b"\r\none\n"]]) as (_, calls), opened(calls) as stream:
        assert await stream.read() == b"one\n"
        await calls.aclose()
        with pytest.raises(ConnectionError):
            await stream.read()


async def test_a_token_that_is_refused_is_read_again_once() -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    async with canned_calls([[refusal, CHUNKED + b"4\r\none\n\r\n0\r\n\r\n"]]) as (canned, calls):
        async with opened(calls) as stream:
            assert await everything(stream) == b"one\n"
        counts = [request.count(f"Bearer {TOKEN}-{n}\r\n".encode()) for n, request in enumerate(canned.requests, 1)]
        assert counts == [1, 1]
    async with canned_calls([[refusal, refusal]]) as (canned, calls):
        with pytest.raises(Unauthorized):
            await read_stream(calls)
        assert len(canned.requests) == 2


def _refusal(code: int, body: bytes, length: int | None = None) -> bytes:
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (code, len(body) if length is None else length, body)


_EXPIRED = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}'


@pytest.mark.parametrize("way", [read_stream, read_once])
@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (_refusal(410, _EXPIRED), Expired, "too old resource version"),
        (_refusal(410, _EXPIRED, 1000) + b"|" + CLOSE, Expired, "status 410"),
        (_refusal(500, b"<html>it is broken</html>"), Unavailable, "<html>it is broken</html>"),
        (_refusal(500, b"it is broken " * 10_000, 10**12), Unavailable, "it is broken"),
        (_refusal(502, f"what is {TOKEN}-1?".encode()), Unavailable, r"what is \*+"),
        (_refusal(502, f"what is {TOKEN[:5]}".encode(), 1000) + b"|" + CLOSE, Unavailable, "status 502"),
    ],
)
async def test_an_error_response_has_its_type_and_its_message(
    way: Callable[[ApiCalls], Coroutine[None, None, None]], answer: bytes, kind: type[ClusterError], says: str
) -> None:
    async with canned_calls([[answer]]) as (canned, calls):
        with pytest.raises(kind, match=says) as caught:
            await way(calls)
        assert TOKEN not in str(caught.value)
        if len(answer) > 100_000:
            await canned.all_closed()


@pytest.mark.parametrize("module", ["service.kubernetes", "service.cli.main"])
def test_a_command_that_needs_no_cluster_does_not_import_its_client(module: str) -> None:
    code = f"import sys, {module}; print('kubernetes_asyncio' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


def _forging(port: "list[int]", tls_files: TlsFiles, listening: threading.Event, tries: int) -> None:
    """Somebody on the way, who says something in clear before the true server's TLS begins."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port.append(server.getsockname()[1])
        listening.set()
        # aiohttp connects a second time for what may be repeated.
        server.settimeout(DEADLINE)
        for _ in range(tries):
            with server.accept()[0] as connection, suppress(OSError):
                connection.settimeout(DEADLINE)
                connection.sendall(CHUNKED + b"7\r\nforged\n\r\n")
                with secured(tls_files).wrap_socket(connection, server_side=True) as true:
                    true.recv(4096)
                    true.sendall(CHUNKED + b"5\r\ntrue\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_comes_before_the_tls_handshake_is_no_answer(
    loop: Callable[[], asyncio.AbstractEventLoop], tls_files: TlsFiles
) -> None:
    tries, port, listening = 10, list[int](), threading.Event()
    forger = threading.Thread(target=_forging, args=(port, tls_files, listening, tries))
    forger.start()
    assert listening.wait(DEADLINE)

    async def ask() -> list[bytes]:
        answers = []
        for _ in range(tries):
            calls = calls_to(address_of(port[0], tls_files), tls_files)
            with suppress(ClusterError):
                async with opened(calls) as stream:
                    answers.append(await stream.read())
            await calls.aclose()
        return answers

    with asyncio.Runner(loop_factory=loop) as runner:
        answers = runner.run(ask())
    forger.join(DEADLINE)
    assert set(answers) <= {b"true\n"}
