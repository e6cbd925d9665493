"""The small HTTP server of the surface, asked by real clients and by such as no server would wish for."""

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import pytest
import uvloop
from structlog.testing import capture_logs

from service.surface.http import LONGEST_HEAD, USUAL, Answer, HttpServer, Limits
from tests.engine.waiting import until

HOST = "127.0.0.1"
AT_ONCE = timedelta(seconds=3)
"""Far below the limits that are usual, so that what ends within it was not ended by one of them."""
MOMENT = timedelta(milliseconds=100)
NEVER = timedelta(hours=1)
BIG = 64 * 1024 * 1024


class Here:
    """A server with a few pages, and ways to speak to it."""

    def __init__(self, limits: Limits) -> None:
        self.server = HttpServer(
            {"/page": self._page, "/broken": self._broken, "/hangs": self._hangs, "/big": self._big}, limits
        )
        self.port = 0
        self.made = 0
        self.hanging = 0

    async def _page(self) -> Answer:
        self.made += 1
        return Answer(b"words\n", 203, "text/x-words")

    async def _broken(self) -> Answer:
        raise ValueError("the page is torn")

    async def _hangs(self) -> Answer:
        self.hanging += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging -= 1
        return Answer(b"")

    async def _big(self) -> Answer:
        return Answer(b"x" * BIG)

    async def connect(self, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        writer.write(said)
        return reader, writer

    async def ask(self, said: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to these bytes, which the server ends by hanging up."""
        reader, writer = await self.connect(said)
        try:
            async with asyncio.timeout(AT_ONCE.total_seconds()):
                return taken_apart(await reader.read())
        finally:
            writer.close()
            await writer.wait_closed()


def taken_apart(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    return int(status), dict(line.split(": ", 1) for line in lines), body


@asynccontextmanager
async def serving(limits: Limits = USUAL) -> AsyncIterator[Here]:
    here = Here(limits)
    before = asyncio.all_tasks()
    here.port = await here.server.start(HOST, 0)
    try:
        yield here
    finally:
        async with asyncio.timeout(AT_ONCE.total_seconds()):
            await here.server.stop()
        assert asyncio.all_tasks() == before, "the server left tasks behind"


async def ends(reader: asyncio.StreamReader) -> None:
    """Whatever still comes, the server hangs up."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(AT_ONCE.total_seconds()):
            while await reader.read(4096):
                pass


async def test_a_page_comes_with_its_status_its_type_its_length_and_its_end() -> None:
    async with serving(Limits(farewell=NEVER)) as here:
        status, headers, body = await here.ask(b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (status, body) == (203, b"words\n")
        assert (headers["Content-Type"], headers["Content-Length"]) == ("text/x-words", "6")
        assert headers["Connection"] == "close"


async def test_head_is_answered_as_get_without_a_body() -> None:
    async with serving() as here:
        asked = await here.ask(b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n")
        status, headers, body = await here.ask(b"HEAD /page HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (status, headers["Content-Length"], body) == (asked[0], asked[1]["Content-Length"], b"")


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /page HTTP/1.0\r\n\r\n",
        b"GET /page?query=1 HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET http://here:1/page HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /page HTTP/1.1\nHost: here\n\n",
    ],
    ids=["version 1.0", "with a query", "whole address", "bare line ends"],
)
async def test_other_ways_to_ask_for_the_same_page_are_understood(request_line: bytes) -> None:
    async with serving() as here:
        assert (await here.ask(request_line))[0] == 203


async def test_clients_of_all_kinds_read_page_after_page() -> None:
    async with serving() as here, aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.get(f"http://{HOST}:{here.port}/page") as answer:
                assert (answer.status, await answer.text()) == (203, "words\n")

        def old_fashioned() -> bytes:
            kept = http.client.HTTPConnection(HOST, here.port, timeout=AT_ONCE.total_seconds())
            found = b""
            for _ in range(2):
                kept.request("GET", "/page")
                found += kept.getresponse().read()
            kept.close()
            return found

        assert await asyncio.to_thread(old_fashioned) == b"words\nwords\n"


async def test_a_request_in_single_bytes_is_put_together() -> None:
    async with serving() as here:
        reader, writer = await here.connect()
        for byte in b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert taken_apart(await reader.read())[0] == 203
        writer.close()


async def test_whoever_shuts_his_side_after_asking_is_answered() -> None:
    async with serving() as here:
        reader, writer = await here.connect(b"GET /page HTTP/1.0\r\n\r\n")
        writer.write_eof()
        assert taken_apart(await reader.read())[0] == 203
        writer.close()


async def test_an_unknown_path_is_not_found() -> None:
    async with serving() as here:
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"POST /pages HTTP/1.1\r\n\r\n", b"OPTIONS * HTTP/1.1\r\n\r\n"):
            assert (await here.ask(said))[::2] == (404, b"404: Not Found")


async def test_another_method_is_refused_and_nothing_is_made() -> None:
    async with serving() as here:
        status, headers, _ = await here.ask(b"DELETE /page HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (status, headers["Allow"], here.made) == (405, "GET, HEAD", 0)


async def test_a_refusal_reaches_also_the_client_that_sends_all_it_has_first() -> None:
    """A connection that is closed with something unread is reset, and takes the answer with it."""

    def post() -> int:
        eager = http.client.HTTPConnection(HOST, here.port, timeout=AT_ONCE.total_seconds())
        try:
            eager.request("POST", "/page", b"x" * 8_000_000)
            return eager.getresponse().status
        finally:
            eager.close()

    async with serving() as here:
        assert [await asyncio.to_thread(post) for _ in range(10)] == [405] * 10


@pytest.mark.parametrize(
    "said",
    [
        b"hello\r\n\r\n",
        b"GET /page\r\n\r\n",
        b"GET  /page HTTP/1.1\r\n\r\n",
        b"GET /page HTTP/2.0\r\n\r\n",
        b"GET /p\xc3\xa4ge HTTP/1.1\r\n\r\n",
        b"GET http://[/page HTTP/1.1\r\n\r\n",
        b"GET /page HTTP/1.1\r\nno header\r\n\r\n",
        b"\x16\x03\x01\x00\xf4\x01\x00\n\x00\xf0\x03\x03",
    ],
    ids=["a word", "version 0.9", "two spaces", "version 2", "a letter", "no address", "no header", "tls"],
)
async def test_what_is_no_http_is_called_so(said: bytes) -> None:
    async with serving() as here:
        assert (await here.ask(said))[0] == 400
        assert here.made == 0


@pytest.mark.parametrize(
    "said",
    [
        b"GET /" + b"x" * 2 * LONGEST_HEAD,
        b"GET /page HTTP/1.1\r\nHost: " + b"x" * 2 * LONGEST_HEAD,
        b"GET /page HTTP/1.1\r\n" + b"name: value\r\n" * (LONGEST_HEAD // 10),
        b"x" * 50 * LONGEST_HEAD,
    ],
    ids=["path", "header", "headers", "no end"],
)
async def test_a_head_without_measure_is_cut_off(said: bytes) -> None:
    async with serving() as here:
        assert (await here.ask(said))[0] == 431


@pytest.mark.parametrize("said", [b"", b"G", b"GET /page HTTP/1.1\r\nHost: he"], ids=["nothing", "a byte", "half"])
async def test_whoever_does_not_finish_what_he_says_is_sent_away(said: bytes) -> None:
    async with serving(Limits(head=MOMENT)) as here:
        assert (await here.ask(said))[0] == 408


async def test_whoever_does_not_hang_up_is_hung_up_on() -> None:
    async with serving(Limits(farewell=MOMENT)) as here:
        before = asyncio.all_tasks()
        _, writer = await here.connect(b"GET /page HTTP/1.1\r\n\r\n")
        await until("the page is made", lambda: _is(here.made == 1))
        await until("nobody waits for it", lambda: _is(asyncio.all_tasks() == before), AT_ONCE)
        writer.close()


async def test_whoever_does_not_read_his_answer_is_given_up() -> None:
    async with serving(Limits(whole=MOMENT)) as here:
        before = asyncio.all_tasks()
        with socket.create_connection((HOST, here.port)) as deaf:
            deaf.sendall(b"GET /big HTTP/1.1\r\n\r\n")
            await until("it is begun", lambda: _is(asyncio.all_tasks() != before), AT_ONCE)
            await until("it is given up", lambda: _is(asyncio.all_tasks() == before), AT_ONCE)


async def test_a_long_answer_comes_whole_also_to_a_slow_reader() -> None:
    async with serving(Limits(farewell=MOMENT)) as here:
        reader, writer = await here.connect(b"GET /big HTTP/1.1\r\n\r\n")
        size = 0
        while part := await reader.read(1024 * 1024):
            size += len(part)
            await asyncio.sleep(0)
        assert size > BIG
        writer.close()


async def test_a_page_that_hangs_holds_up_no_other_and_ends_with_the_limit() -> None:
    async with serving(Limits(whole=MOMENT * 5)) as here:
        reader, writer = await here.connect(b"GET /hangs HTTP/1.1\r\n\r\n")
        await until("it hangs", lambda: _is(here.hanging == 1))
        assert (await here.ask(b"GET /page HTTP/1.1\r\n\r\n"))[0] == 203
        await ends(reader)
        assert here.hanging == 0
        writer.close()


async def test_a_page_that_fails_is_an_error_of_the_server_and_logged() -> None:
    async with serving() as here:
        with capture_logs() as logged:
            assert (await here.ask(b"GET /broken HTTP/1.1\r\n\r\n"))[::2] == (500, b"500: Internal Server Error")
        (line,) = logged
        assert (line["log_level"], line["path"], line["exc_info"]) == ("error", "/broken", True)
        assert (await here.ask(b"GET /page HTTP/1.1\r\n\r\n"))[0] == 203


async def test_clients_that_only_sit_there_do_not_shut_out_a_probe() -> None:
    async with serving(Limits(head=NEVER, whole=NEVER, connections=3)) as here:
        before = asyncio.all_tasks()
        sitting = [await here.connect() for _ in range(3)]
        await until("all have a place", lambda: _is(len(asyncio.all_tasks() - before) == 3))
        assert (await here.ask(b"GET /page HTTP/1.1\r\n\r\n"))[0] == 203
        await ends(sitting[0][0])
        sitting += [await here.connect() for _ in range(20)]
        await until("all but the last are gone", lambda: _is(len(asyncio.all_tasks() - before) == 3))
        for reader, _ in sitting[:-3]:
            await ends(reader)
        assert not any(reader.at_eof() for reader, _ in sitting[-3:])
        for _, writer in sitting:
            writer.close()


async def test_stopping_ends_every_connection_at_once() -> None:
    async with serving(Limits(head=NEVER, whole=NEVER, farewell=NEVER)) as here:
        before = asyncio.all_tasks()
        said: Mapping[str, bytes] = {
            "silent": b"",
            "half": b"GET /pa",
            "hangs": b"GET /hangs HTTP/1.1\r\n\r\n",
            "lingers": b"GET /page HTTP/1.1\r\n\r\n",
        }
        clients = [await here.connect(one) for one in said.values()]
        await until("all are served", lambda: _is(len(asyncio.all_tasks() - before) == 4))
        await until("they are as far as they get", lambda: _is(here.hanging == here.made == 1))
        async with asyncio.timeout(AT_ONCE.total_seconds()):
            await here.server.stop()
        assert asyncio.all_tasks() == before
        assert here.hanging == 0
        for reader, writer in clients:
            await ends(reader)
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await here.connect()
        with socket.create_server((HOST, here.port)):
            pass


def test_all_of_it_holds_on_uvloop_whose_transports_end_in_ways_of_their_own() -> None:
    """Commands run on it where it is installed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_a_refusal_reaches_also_the_client_that_sends_all_it_has_first())
        runner.run(test_whoever_does_not_hang_up_is_hung_up_on())
        runner.run(test_whoever_does_not_read_his_answer_is_given_up())
        runner.run(test_clients_that_only_sit_there_do_not_shut_out_a_probe())
        runner.run(test_stopping_ends_every_connection_at_once())


async def test_a_client_that_comes_while_it_stops_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    # Not in the second turn: there asyncio itself forgets what it has just accepted, whoever's server it is for.
    for turns in range(3, 12):
        here = Here(Limits(head=NEVER, whole=NEVER))
        here.port = await here.server.start(HOST, 0)
        # The system lets it in; the server learns of it some turn of the loop later, and stops in one of them.
        with socket.create_connection((HOST, here.port), timeout=AT_ONCE.total_seconds()) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(AT_ONCE.total_seconds()):
                await here.server.stop()
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(client.recv, 1) == b""
            await until("nobody serves it", lambda: _is(asyncio.all_tasks() == before), AT_ONCE)


async def _is(state: bool) -> bool:
    return state
