"""The HTTP listener with ordinary and hostile clients over real connections."""

import asyncio
import contextlib
import http.client
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web
from structlog.testing import capture_logs

from service.web.listener import DEFAULT_LIMITS, MAX_BODY_SIZE, MAX_FIELD_SIZE, MAX_HEADERS, HttpListener, Limits
from tests.engine.waiting import until

HOST = "127.0.0.1"
NEVER = timedelta(hours=1)
MOMENT = timedelta(milliseconds=100)
WAIT = timedelta(seconds=30)
"""For the machine to be slow: far below NEVER, so that what ends within it was not ended by a limit of that length."""
PROMPT = Limits(head=NEVER, whole=NEVER, body=NEVER, stop=MOMENT)
BIG = 64 * 1024 * 1024
LONGER = MAX_FIELD_SIZE + 1024


class ListenerFixture:
    """A listener with a few routes, and its client. With a context it speaks TLS, and the client does not verify."""

    def __init__(self, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.listener = HttpListener(
            [
                web.get("/page", self._page),
                web.get("/broken", self._broken),
                web.get("/hangs", self._hangs),
                web.get("/big", self._big),
                web.post("/length", self._length),
            ],
            limits,
        )
        self.port = 0
        self.made = 0
        self.hanging = 0

    async def _page(self, _: web.Request) -> web.Response:
        self.made += 1
        return web.Response(body=b"words\n", status=203, content_type="text/x-words")

    async def _broken(self, _: web.Request) -> web.Response:
        raise ValueError("the page is torn")

    async def _hangs(self, _: web.Request) -> web.Response:
        self.hanging += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging -= 1
        return web.Response()

    async def _big(self, _: web.Request) -> web.Response:
        return web.Response(body=b"x" * BIG)

    async def _length(self, request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    def url(self, path: str) -> str:
        return f"{'http' if self.tls is None else 'https'}://{HOST}:{self.port}{path}"

    async def connect(self, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        trusting = None if self.tls is None else ssl._create_unverified_context()  # noqa: S323 - not what is tested
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=trusting)
        writer.write(said)
        return reader, writer

    async def ask(self, said: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the response to these bytes."""
        reader, writer = await self.connect(said)
        try:
            async with asyncio.timeout(WAIT.total_seconds()):
                return await read_answer(reader)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n")
    first, *lines = head.split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version in ("HTTP/1.1", "HTTP/1.0")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status), headers, await reader.readexactly(int(headers["Content-Length"]))


@asynccontextmanager
async def serving(limits: Limits = DEFAULT_LIMITS, tls: ssl.SSLContext | None = None) -> AsyncIterator[ListenerFixture]:
    here = ListenerFixture(limits, tls)
    before = asyncio.all_tasks()
    here.port = await here.listener.start(HOST, 0, tls)
    try:
        yield here
    finally:
        async with asyncio.timeout(WAIT.total_seconds()):
            await here.listener.stop()
        await comes("no task is left behind", lambda: asyncio.all_tasks() == before)


async def comes(what: str, state: Callable[[], bool]) -> None:
    async def asked() -> bool:
        return state()

    await until(what, asked, WAIT)


async def ends(reader: asyncio.StreamReader) -> None:
    """Waits until the server closes the connection."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(WAIT.total_seconds()):
            while await reader.read(4096):
                pass


def sockets() -> int:
    """Number of open sockets of this process."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(one.readlink()).startswith("socket:")
    return found


def rest_of(client: socket.socket) -> int:
    """Number of bytes until the server closes the connection."""
    client.settimeout(WAIT.total_seconds())
    size = 0
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1024 * 1024):
            size += len(part)
    return size


async def test_clients_of_all_kinds_read_page_after_page_on_one_connection() -> None:
    async with serving() as here, aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.get(here.url("/page?query=1")) as answer:
                assert (answer.status, answer.content_type, await answer.text()) == (203, "text/x-words", "words\n")

        def blocking() -> bytes:
            kept = http.client.HTTPConnection(HOST, here.port, timeout=WAIT.total_seconds())
            found = b""
            for _ in range(2):
                kept.request("GET", "/page")
                found += kept.getresponse().read()
            kept.close()
            return found

        assert await asyncio.to_thread(blocking) == b"words\nwords\n"


async def test_head_is_answered_as_get_without_a_body() -> None:
    async with (
        serving() as here,
        aiohttp.ClientSession() as session,
        session.get(here.url("/page")) as asked,
        session.head(here.url("/page")) as only_head,
    ):
        assert (only_head.status, await only_head.read()) == (asked.status, b"")
        for name in ("Content-Type", "Content-Length"):
            assert only_head.headers[name] == asked.headers[name]


async def test_an_unknown_path_is_not_found_and_another_method_is_refused() -> None:
    async with serving() as here, aiohttp.ClientSession() as session:
        for method, path in (("GET", "/"), ("POST", "/pages"), ("HEAD", "/healthz/")):
            async with session.request(method, here.url(path)) as answer:
                assert answer.status == 404
        async with session.delete(here.url("/page")) as answer:
            assert (answer.status, set(answer.headers["Allow"].split(","))) == (405, {"GET", "HEAD"})
        assert here.made == 0


async def test_a_request_in_single_bytes_is_answered() -> None:
    async with serving() as here:
        reader, writer = await here.connect()
        for byte in b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await read_answer(reader))[0] == 203
        writer.close()


async def test_a_refusal_reaches_also_the_client_that_sends_all_it_has_first() -> None:
    """A connection that is closed with unread data is reset, and the response is lost."""

    def post() -> int:
        eager = http.client.HTTPConnection(HOST, here.port, timeout=WAIT.total_seconds())
        try:
            eager.request("POST", "/page", b"x" * 8_000_000)
            return eager.getresponse().status
        finally:
            eager.close()

    async with serving(PROMPT) as here:
        assert [await asyncio.to_thread(post) for _ in range(10)] == [405] * 10


async def test_a_body_beyond_the_limit_is_refused() -> None:
    async with serving(PROMPT) as here, aiohttp.ClientSession() as session:
        async with session.post(here.url("/length"), data=b"x" * MAX_BODY_SIZE) as answer:
            assert (answer.status, await answer.text()) == (200, str(MAX_BODY_SIZE))
        async with session.post(here.url("/length"), data=b"x" * (MAX_BODY_SIZE + 1)) as answer:
            assert answer.status == 413


async def test_a_compressed_body_is_not_unpacked() -> None:
    body = b"x" * MAX_BODY_SIZE * 9
    async with (
        serving(PROMPT) as here,
        aiohttp.ClientSession() as session,
        session.post(here.url("/length"), data=body, compress="gzip") as answer,
    ):
        assert (answer.status, int(await answer.text()) < MAX_BODY_SIZE) == (200, True)


@pytest.mark.parametrize(
    "said",
    [
        b"hello\r\n\r\n",
        b"GET /page HTTP/1.1\r\nno header\r\n\r\n",
        b"\x16\x03\x01\x00\xf4\x01\x00\n\x00\xf0\x03\x03",
        b"GET /" + b"x" * LONGER + b" HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /page HTTP/1.1\r\nHost: " + b"x" * LONGER + b"\r\n\r\n",
        b"GET /page HTTP/1.1\r\nHost: here\r\n" + b"name: value\r\n" * (MAX_HEADERS + 10) + b"\r\n",
        b"GET /" + b"x" * 64 * MAX_FIELD_SIZE,
    ],
    ids=["a word", "no header", "tls", "long path", "long header", "many headers", "no end"],
)
async def test_malformed_or_too_long_requests_are_refused_and_not_logged(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as here:
        with capture_logs() as logged, caplog.at_level(logging.INFO):
            assert (await here.ask(said))[0] == 400
        assert (here.made, logged, caplog.records) == (0, [], [])


async def test_requests_leave_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as here, aiohttp.ClientSession() as session:
        with capture_logs() as logged, caplog.at_level(logging.INFO):
            for path in ("/page", "/nowhere"):
                async with session.get(here.url(path)):
                    pass
        assert (here.made, logged, caplog.records) == (1, [], [])


@pytest.mark.parametrize("said", [b"", b"G", b"GET /page HTTP/1.1\r\nHost: he"], ids=["nothing", "a byte", "half"])
async def test_the_connection_of_a_client_that_does_not_finish_its_request_is_closed(said: bytes) -> None:
    async with serving(PROMPT._replace(head=MOMENT)) as here:
        reader, writer = await here.connect(said)
        await ends(reader)
        assert here.made == 0
        writer.close()


@pytest.mark.parametrize("said", [b"", b"GET /pa"], ids=["nothing", "half"])
async def test_a_kept_connection_without_a_next_request_is_closed(said: bytes) -> None:
    async with serving(PROMPT._replace(head=MOMENT)) as here:
        reader, writer = await here.connect(b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n" + said)
        assert (await read_answer(reader))[0] == 203
        await ends(reader)
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    promised = b" HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nx"
    async with serving(PROMPT._replace(body=MOMENT, whole=MOMENT)) as here:
        for asked in (b"GET /page", b"POST /length"):
            reader, writer = await here.connect(asked + promised)
            await ends(reader)
            writer.close()


async def test_the_connection_of_a_client_that_does_not_read_is_closed() -> None:
    async with serving(PROMPT._replace(whole=MOMENT)) as here:
        before = asyncio.all_tasks()
        with socket.create_connection((HOST, here.port)) as deaf:
            deaf.sendall(b"GET /big HTTP/1.1\r\nHost: here\r\n\r\n")
            await comes("it is begun", lambda: asyncio.all_tasks() != before)
            await comes("it is given up", lambda: asyncio.all_tasks() == before)
            assert await asyncio.to_thread(rest_of, deaf) < BIG


async def test_a_long_answer_comes_whole() -> None:
    async with serving(PROMPT) as here, aiohttp.ClientSession() as session, session.get(here.url("/big")) as answer:
        assert len(await answer.read()) == BIG


async def test_a_hanging_handler_delays_no_other_and_is_cancelled_at_the_limit() -> None:
    async with serving(PROMPT._replace(whole=MOMENT * 5)) as here:
        reader, writer = await here.connect(b"GET /hangs HTTP/1.1\r\nHost: here\r\n\r\n")
        await comes("it hangs", lambda: here.hanging == 1)
        assert (await here.ask(b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n"))[0] == 203
        await ends(reader)
        assert here.hanging == 0
        writer.close()


async def test_a_request_whose_client_disconnects_is_cancelled() -> None:
    async with serving(PROMPT) as here:
        _, writer = await here.connect(b"GET /hangs HTTP/1.1\r\nHost: here\r\n\r\n")
        await comes("it hangs", lambda: here.hanging == 1)
        writer.close()
        await comes("it is given up", lambda: here.hanging == 0)


async def test_a_handler_that_fails_is_an_error_of_the_server_and_logged() -> None:
    async with serving() as here:
        with capture_logs() as logged:
            answer = await here.ask(b"GET /broken HTTP/1.1\r\nHost: here\r\n\r\n")
        assert answer[::2] == (500, b"500: Internal Server Error")
        (line,) = logged
        assert (line["log_level"], line["path"], line["exc_info"]) == ("error", "/broken", True)
        assert (await here.ask(b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n"))[0] == 203


async def test_idle_clients_do_not_shut_out_a_probe() -> None:
    async with serving(PROMPT._replace(connections=3)) as here:
        before = asyncio.all_tasks()
        sitting = [await here.connect() for _ in range(3)]
        await comes("all have a place", lambda: len(asyncio.all_tasks() - before) == 3)
        assert (await here.ask(b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n"))[0] == 203
        await ends(sitting[0][0])
        sitting += [await here.connect() for _ in range(20)]
        for reader, _ in sitting[:-3]:
            await ends(reader)
        await comes("all but the last are gone", lambda: len(asyncio.all_tasks() - before) == 3)
        assert not any(reader.at_eof() for reader, _ in sitting[-3:])
        for _, writer in sitting:
            writer.close()


async def test_stopping_ends_every_connection_at_once() -> None:
    async with serving(PROMPT) as here:
        before = asyncio.all_tasks()
        said: Mapping[str, bytes] = {
            "silent": b"",
            "half": b"GET /pa",
            "hangs": b"GET /hangs HTTP/1.1\r\nHost: here\r\n\r\n",
            "kept": b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n",
            "sends": b"POST /page HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n",
        }
        clients = [await here.connect(one) for one in said.values()]
        await comes("all are served", lambda: len(asyncio.all_tasks() - before) >= len(said))
        await comes("they are as far as they get", lambda: here.hanging == here.made == 1)
        async with asyncio.timeout(WAIT.total_seconds()):
            await here.listener.stop()
        await comes("no task serves them", lambda: asyncio.all_tasks() == before)
        assert here.hanging == 0
        for reader, writer in clients:
            await ends(reader)
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await here.connect()
        with socket.create_server((HOST, here.port)):
            pass


async def test_stopping_closes_the_connection_of_a_client_that_does_not_read() -> None:
    async with serving(PROMPT) as here:
        before, listening = asyncio.all_tasks(), sockets()
        with socket.create_connection((HOST, here.port)) as deaf:
            deaf.sendall(b"GET /big HTTP/1.1\r\nHost: here\r\n\r\n")
            await comes("it is served", lambda: len(asyncio.all_tasks() - before) == 2)
            assert sockets() == listening + 2
            await here.listener.stop()
            # The listening socket is closed as well; the client's is left.
            await comes("its sockets are closed", lambda: sockets() == listening)


async def test_a_request_in_progress_may_end_while_the_listener_stops() -> None:
    release = asyncio.Event()
    begun = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        begun.set()
        await release.wait()
        return web.Response(text="whole")

    listener = HttpListener([web.get("/slow", slow)], PROMPT._replace(stop=NEVER))
    port = await listener.start(HOST, 0)
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:

        async def ask() -> str:
            async with session.get(f"http://{HOST}:{port}/slow") as answer:
                return await answer.text()

        asked = group.create_task(ask())
        await begun.wait()
        stopping = group.create_task(listener.stop())
        release.set()
    assert (asked.result(), stopping.result()) == ("whole", None)


def test_the_listener_behaves_the_same_on_uvloop() -> None:
    """Commands use it if it is installed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_a_refusal_reaches_also_the_client_that_sends_all_it_has_first())
        runner.run(test_the_connection_of_a_client_that_does_not_read_is_closed())
        runner.run(test_idle_clients_do_not_shut_out_a_probe())
        runner.run(test_stopping_ends_every_connection_at_once())
        runner.run(test_stopping_closes_the_connection_of_a_client_that_does_not_read())


async def test_a_client_that_connects_during_the_stop_leaves_no_connection() -> None:
    before = asyncio.all_tasks()
    # Not in the second iteration: there asyncio itself loses a connection that it has just accepted.
    for turns in range(3, 12):
        here = ListenerFixture(PROMPT)
        here.port = await here.listener.start(HOST, 0)
        # The kernel accepts it; the server is told some iterations of the loop later, and stops in one of these.
        with socket.create_connection((HOST, here.port), timeout=WAIT.total_seconds()) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(WAIT.total_seconds()):
                await here.listener.stop()
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(client.recv, 1) == b""
            await comes("no task serves it", lambda: asyncio.all_tasks() == before)
