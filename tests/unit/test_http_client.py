"""Rules for aiohttp sessions on both event loops, with and without TLS, and the codings of bodies."""

import asyncio
import ssl
from collections.abc import Callable

import aiohttp
import pytest
import uvloop
from multidict import CIMultiDict, CIMultiDictProxy

from service.http_client import body_codings, close_on_early_data
from standins.redis_servers import TlsFiles
from tests.early_server import early_server, http_answer
from tests.tls_files import make_tls_files

TRUE, EARLY = http_answer(200, b"true"), http_answer(404, b"early")


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls_files"))


def trusting(tls_files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls_files.ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def kept_used_and_closed(tls_files: TlsFiles | None) -> None:
    trusted = trusting(tls_files) if tls_files else True
    async with (
        asyncio.timeout(60),
        early_server(TRUE, tls_files) as server,
        aiohttp.ClientSession(connector=close_on_early_data(aiohttp.TCPConnector(ssl=trusted))) as session,
    ):

        async def ask() -> str:
            async with session.post(server.url, data=b"x" * 100_000) as response:
                return await response.text()

        assert [await ask() for _ in range(3)] == ["true"] * 3
        assert server.connections == 1
        # What is sent at once goes out over as many connections, which are kept, too.
        assert await asyncio.gather(*(ask() for _ in range(5))) == ["true"] * 5
        opened = server.connections
        assert await asyncio.gather(*(ask() for _ in range(5))) == ["true"] * 5
        assert server.connections == opened
        assert await server.speak(EARLY)
        assert await ask() == "true"
        assert server.connections == opened + 1
        # Not even the beginning of one.
        assert await server.speak(b"H")
        assert await ask() == "true"


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_is_kept_until_it_receives_something_unasked(
    new_loop: Callable[[], asyncio.AbstractEventLoop], over_tls: bool, tls_files: TlsFiles
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(kept_used_and_closed(tls_files if over_tls else None))


async def test_what_comes_in_one_piece_with_the_end_of_a_body_is_not_the_next_answer() -> None:
    async with (
        asyncio.timeout(60),
        early_server(TRUE) as server,
        aiohttp.ClientSession(connector=close_on_early_data(aiohttp.TCPConnector())) as session,
    ):
        server.halfway, server.with_it = asyncio.Event(), EARLY
        for _ in range(2):
            async with session.get(server.url) as response:
                server.halfway.set()
                assert await response.text() == "true"


@pytest.mark.parametrize(
    ("headers", "codings"),
    [
        ([], []),
        ([("Content-Encoding", "Identity"), ("Transfer-Encoding", "CHUNKED")], []),
        ([("content-encoding", ""), ("transfer-encoding", " chunked ")], []),
        ([("Content-Encoding", "identity"), ("Content-Encoding", "GZIP")], ["gzip"]),
        ([("Content-Encoding", "identity, br")], ["br"]),
        ([("Content-Encoding", "chunked")], ["chunked"]),
        ([("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "gzip")], ["gzip"]),
        ([("Transfer-Encoding", "Deflate, chunked")], ["deflate"]),
    ],
)
def test_the_codings_of_a_body_are_read_from_all_headers_in_any_case(
    headers: list[tuple[str, str]], codings: list[str]
) -> None:
    assert body_codings(CIMultiDictProxy(CIMultiDict(headers))) == codings
