"""The lean HTTP client against servers that answer byte by byte what each test says."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from service.cluster.access import Way
from service.cluster.http1 import NoHttp
from service.cluster.wire import Answer, Wires
from service.settings.redis import Secret
from tests.canned_server import CLOSE, Canned, Script, canned_server

Ask = Callable[..., Awaitable[Answer]]
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def served(script: Script) -> AsyncIterator[tuple[Canned, Ask, Wires]]:
    wires = Wires()
    async with canned_server(script) as (canned, port):
        way = Way(server=f"http://127.0.0.1:{port}/prefix", authorization=Secret("Bearer token-of-the-test"))

        async def ask(
            method: str = "GET", target: str = "/x", body: bytes | None = None, timeout: float = 5.0
        ) -> Answer:
            return await wires.ask(way, method, target, "Accept: application/json\r\n", body, timeout)

        try:
            yield canned, ask, wires
        finally:
            await wires.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2|\r\n|\r\n{|}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b|\r\n{\r|\n01\r\n}|\r\n0\r|\nSum: 1\r\n\r|\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
        % (len(gzip.compress(b"{}", mtime=0)), gzip.compress(b"{}", mtime=0)),
    ],
)
async def test_an_answer_is_read_however_it_is_cut_and_its_connection_is_used_again(answer: bytes) -> None:
    async with served([[answer, WHOLE]]) as (canned, ask, _):
        assert (await ask())[::2] == (200, b"{}")
        assert (await ask())[::2] == (200, b"{}")
        assert canned.connections == 1
        assert canned.requests[0].startswith(b"GET /prefix/x HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"Authorization: Bearer token-of-the-test\r\n" in canned.requests[0]


async def test_an_answer_without_a_length_ends_with_the_servers_farewell() -> None:
    async with served([[b"HTTP/1.1 200 OK\r\n\r\n{|}|" + CLOSE], [WHOLE]]) as (canned, ask, _):
        assert (await ask()).body == b"{}"
        assert (await ask()).body == b"{}"
        assert canned.connections == 2


async def test_an_answer_without_a_length_is_not_taken_for_whole_when_we_close_it_ourselves() -> None:
    async with served([[b"HTTP/1.1 200 OK\r\n\r\n{"]]) as (canned, ask, wires):
        task = asyncio.ensure_future(ask())
        await canned.asked.wait()
        await asyncio.wait([task], timeout=0.05)
        assert not task.done()
        await wires.aclose()
        with pytest.raises(ConnectionError):
            await task


async def test_a_body_is_sent_with_its_length_and_a_connection_that_is_to_be_closed_is_not_kept() -> None:
    closing = WHOLE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    async with served([[closing], [WHOLE]]) as (canned, ask, _):
        await ask("PATCH", body=b"[1]")
        assert canned.requests[0].endswith(b"Content-Length: 3\r\n\r\n[1]")
        await ask()
        assert canned.connections == 2


async def test_a_read_on_a_connection_that_was_closed_meanwhile_is_repeated_on_a_new_one() -> None:
    async with served([[WHOLE, CLOSE], [WHOLE]]) as (canned, ask, _):
        await ask()
        assert (await ask()).status == 200
        assert canned.connections == 2


async def test_a_change_on_a_connection_that_was_closed_meanwhile_is_not_repeated() -> None:
    async with served([[WHOLE, CLOSE], [WHOLE]]) as (canned, ask, _):
        await ask()
        with pytest.raises(ConnectionError):
            await ask("PATCH", body=b"{}")
        assert canned.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
async def test_what_is_no_http_is_refused_and_its_connection_given_up(answer: bytes) -> None:
    async with served([[answer], [WHOLE]]) as (canned, ask, _):
        with pytest.raises(NoHttp) as caught:
            await ask()
        assert "token-of-the-test" not in str(caught.value)
        assert (await ask()).status == 200
        assert canned.connections == 2


@pytest.mark.parametrize("half", [b"Content-Length: 20\r\n\r\n{|", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n|"])
async def test_an_answer_that_breaks_off_is_an_error_and_never_half_a_body(half: bytes) -> None:
    async with served([[b"HTTP/1.1 200 OK\r\n" + half + CLOSE]]) as (_, ask, _wires):
        with pytest.raises(ConnectionError):
            await ask()


async def test_an_answer_that_does_not_come_in_time_is_given_up() -> None:
    async with served([[b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"], [WHOLE]]) as (canned, ask, _):
        with pytest.raises(TimeoutError):
            await ask(timeout=0.1)
        assert (await ask()).status == 200
        assert canned.connections == 2


@pytest.mark.parametrize("target", ["/x\r\nEvil: 1", "/x y", "/ä"])
async def test_a_path_that_could_say_more_than_a_path_is_not_sent(target: str) -> None:
    async with served([[WHOLE]]) as (canned, ask, _):
        with pytest.raises(NoHttp):
            await ask(target=target)
        assert not canned.requests


async def test_who_is_cancelled_leaves_no_connection_with_half_an_answer() -> None:
    async with served([[b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], [WHOLE]]) as (canned, ask, _):
        task = asyncio.ensure_future(ask())
        await canned.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask()).body == b"{}"
        assert canned.connections == 2
