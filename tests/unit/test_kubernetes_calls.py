"""Calls to servers that answer byte by byte what each test says: cut, late, broken, closed."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from service.kubernetes import Invalid, Unavailable, Unreadable
from tests.canned_calls import CHUNKED, DEADLINE, OK, TOKEN, WHOLE, address_of, calls_to, canned_calls
from tests.canned_server import CLOSE


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2|\r\n|\r\n{|}",
        CHUNKED + b"2\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"1;a=b|\r\n{\r|\n01\r\n}|\r\n0\r|\nSum: 1\r\n\r|\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
    ],
)
async def test_an_answer_is_read_however_it_is_cut_and_its_connection_is_used_again(answer: bytes) -> None:
    async with canned_calls([[answer, WHOLE]], prefix="/prefix") as (canned, calls):
        assert await calls.call("GET", "/x", query={"limit": "5", "fieldSelector": "a=b c"}) == b"{}"
        assert await calls.call("GET", "/x") == b"{}"
        assert canned.connections == 1
        head = canned.requests[0]
        assert head.startswith(b"GET /prefix/x?limit=5&fieldSelector=a%3Db+c HTTP/1.1\r\nHost: 127.0.0.1:")
        assert f"Authorization: Bearer {TOKEN}-1\r\n".encode() in head
        assert b"Accept: application/json\r\n" in head
        assert b"Accept-Encoding: identity\r\n" in head
        assert b"User-Agent: knell\r\n" in head
        assert b"Cookie" not in head


async def test_a_cookie_that_the_server_sets_is_not_sent_back() -> None:
    baked = WHOLE.replace(b"OK\r\n", b"OK\r\nSet-Cookie: a=b\r\n")
    async with canned_calls([[baked, WHOLE]]) as (canned, calls):
        await calls.call("GET", "/x")
        await calls.call("GET", "/x")
        assert b"Cookie" not in canned.requests[1]


async def test_an_answer_without_a_length_ends_when_the_server_closes_the_connection() -> None:
    async with canned_calls([[OK + b"\r\n{|}|" + CLOSE], [WHOLE]]) as (canned, calls):
        assert await calls.call("GET", "/x") == b"{}"
        assert await calls.call("GET", "/x") == b"{}"
        assert canned.connections == 2


async def test_a_response_without_a_length_is_not_complete_when_the_client_closes_it() -> None:
    async with canned_calls([[OK + b"\r\n{"]]) as (canned, calls):
        task = asyncio.ensure_future(calls.call("GET", "/x"))
        await canned.asked.wait()
        await asyncio.wait([task], timeout=0.05)
        assert not task.done()
        await calls.aclose()
        with pytest.raises(Unavailable):
            await task


async def test_a_body_is_sent_with_its_length_and_a_connection_that_is_to_be_closed_is_not_kept() -> None:
    closing = WHOLE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    async with canned_calls([[closing], [WHOLE]]) as (canned, calls):
        await calls.call("PATCH", "/x", body=[1], content_type="application/json-patch+json")
        assert b"Content-Length: 3\r\n" in canned.requests[0]
        assert b"Content-Type: application/json-patch+json\r\n" in canned.requests[0]
        assert canned.requests[0].endswith(b"\r\n\r\n[1]")
        await calls.call("GET", "/x")
        assert canned.connections == 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_what_may_be_done_twice_is_repeated_where_its_connection_was_closed_meanwhile(method: str) -> None:
    async with canned_calls([[WHOLE, CLOSE], [WHOLE]]) as (canned, calls):
        await calls.call("GET", "/x")
        assert await calls.call(method, "/x", body=None if method == "GET" else {"a": 1}) == b"{}"
        assert canned.connections == 2
        assert canned.requests[1] == canned.requests[2]


@pytest.mark.parametrize("method", ["PATCH", "POST"])
async def test_any_other_change_is_not_repeated_where_its_connection_was_closed_meanwhile(method: str) -> None:
    async with canned_calls([[WHOLE, CLOSE], [WHOLE]]) as (canned, calls):
        await calls.call("GET", "/x")
        with pytest.raises(Unavailable):
            await calls.call(method, "/x", body={})
        assert canned.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 10_000,
    ],
)
async def test_what_is_no_http_is_refused_and_its_connection_closed(answer: bytes) -> None:
    async with canned_calls([[answer], [WHOLE]]) as (canned, calls):
        with pytest.raises((Unavailable, Unreadable)) as caught:
            await calls.call("GET", "/x", timeout=timedelta(seconds=20))
        assert "in time" not in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert await calls.call("GET", "/x") == b"{}"
        assert canned.connections == 2


async def test_an_answer_with_more_than_it_announced_is_cut_there_and_its_connection_closed() -> None:
    other = OK + b"Content-Length: 7\r\n\r\n[other]"
    async with canned_calls([[WHOLE + other, WHOLE], [WHOLE]]) as (canned, calls):
        assert await calls.call("GET", "/x") == b"{}"
        assert await calls.call("GET", "/x") == b"{}"
        assert canned.connections == 2


async def test_a_response_that_comes_before_its_request_is_dropped() -> None:
    """Some servers announce that they close an idle connection; a hostile one could answer the next question early."""
    idle, told = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(WHOLE)
            if not idle.is_set():
                await idle.wait()
                writer.write(OK + b"Content-Length: 7\r\n\r\n[other]")
                await writer.drain()
                told.set()
            await reader.readuntil(b"\r\n\r\n")
            writer.write(WHOLE)
        writer.close()

    async with asyncio.timeout(DEADLINE), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        calls = calls_to(address_of(server.sockets[0].getsockname()[1]))
        assert await calls.call("GET", "/x") == b"{}"
        idle.set()
        await told.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        for _ in range(3):
            with suppress(Unavailable):
                assert await calls.call("GET", "/x") == b"{}"
        await calls.aclose()


@pytest.mark.parametrize("half", [b"Content-Length: 20\r\n\r\n{|", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n|"])
async def test_an_answer_that_breaks_off_is_an_error_and_never_half_a_body(half: bytes) -> None:
    async with canned_calls([[OK + half + CLOSE]]) as (_, calls):
        with pytest.raises(Unavailable):
            await calls.call("GET", "/x")


async def test_an_answer_that_does_not_come_in_time_is_given_up_and_its_connection_closed() -> None:
    async with canned_calls([[OK + b"Content-Length: 20\r\n\r\n{"], [WHOLE]]) as (canned, calls):
        with pytest.raises(Unavailable, match="in time"):
            await calls.call("GET", "/x", timeout=timedelta(seconds=0.1))
        await canned.all_closed()
        assert await calls.call("GET", "/x") == b"{}"
        assert canned.connections == 2


@pytest.mark.parametrize("path", ["/x\r\nEvil: 1", "/x y", "/ä", "/x/..", "/x/../y", "/x/./y"])
async def test_a_path_that_could_be_read_as_something_else_is_not_sent(path: str) -> None:
    async with canned_calls([[WHOLE]]) as (canned, calls):
        with pytest.raises(Invalid):
            await calls.call("DELETE", path)
        assert not canned.requests


async def test_a_path_is_sent_as_it_is() -> None:
    async with canned_calls([[WHOLE]]) as (canned, calls):
        await calls.call("GET", "/api/a%2Fb%3A%c3%a4/..c")
        assert canned.requests[0].startswith(b"GET /api/a%2Fb%3A%c3%a4/..c HTTP/1.1\r\n")


async def test_a_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 307 Elsewhere\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"
    async with canned_calls([[moved, WHOLE]]) as (canned, calls):
        with pytest.raises(Unavailable, match="redirects are not followed"):
            await calls.call("GET", "/x")
        assert len(canned.requests) == 1


async def test_a_token_that_is_refused_is_read_again_once_for_a_change_too() -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    async with canned_calls([[refusal, WHOLE]]) as (canned, calls):
        assert await calls.call("PATCH", "/x", body={}) == b"{}"
        assert [request.count(f"{TOKEN}-{n}\r\n".encode()) for n, request in enumerate(canned.requests, 1)] == [1, 1]


async def test_a_cancelled_call_leaves_no_connection_with_half_a_response() -> None:
    async with canned_calls([[OK + b"Content-Length: 9\r\n\r\n{"], [WHOLE]]) as (canned, calls):
        task = asyncio.ensure_future(calls.call("GET", "/x"))
        await canned.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await canned.all_closed()
        assert await calls.call("GET", "/x") == b"{}"
        assert canned.connections == 2
