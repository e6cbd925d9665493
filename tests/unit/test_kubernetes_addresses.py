"""A server whose name has several addresses, of which some drop packets or refuse connections."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.canned_calls import CHUNKED, DEADLINE, WHOLE, calls_to, everything, opened
from tests.canned_server import canned_server

NAME = "api.knell.test"
WITHIN = timedelta(seconds=8)
"""Less than one address is waited for: who tried them one after the other would not get to the second."""


@contextmanager
def swallowing(port: int) -> Iterator[str]:
    """A listener on another loopback address whose queue is full: the kernel drops what comes to it."""
    with ExitStack() as stack:
        stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))
        yield "127.0.0.2"


def resolve_to(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> list[Any]:
        if host != NAME:
            return list(honest(host, port, *args, **options))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize("dead", ["swallows", "refuses"])
async def test_a_server_is_reached_by_its_second_address_where_the_first_does_not_answer(
    dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [[WHOLE], [CHUNKED + b"4\r\none\n\r\n0\r\n\r\n"]]
    async with asyncio.timeout(DEADLINE), canned_server(script) as (canned, port):
        with ExitStack() as stack:
            first = stack.enter_context(swallowing(port)) if dead == "swallows" else "127.0.0.3"
            resolve_to([first, "127.0.0.1"], monkeypatch)
            calls = calls_to(f"http://{NAME}:{port}")
            assert await calls.call("GET", "/x", timeout=WITHIN) == b"{}"
            await calls.aclose()
            # Another client, for one that knows the addresses begins with the next of them.
            other = calls_to(f"http://{NAME}:{port}")
            async with opened(other, first=WITHIN.total_seconds()) as stream:
                assert await everything(stream) == b"one\n"
            await other.aclose()
        await canned.all_closed()
