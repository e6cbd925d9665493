"""The world that each test gets, on each kind of server that the tests run on."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from standins.servers import Server, embedded_binary, redis_binary
from tests.engine.world import World
from tests.servers import TestServer, kinds


def single_kinds() -> list[str]:
    """The kinds that are one process, which a test may kill and freeze."""
    return [kind for kind in kinds() if kind in ("embedded", "redis")]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


@pytest.fixture
async def world(server: TestServer) -> AsyncIterator[World]:
    """An installation of its own on a server that others use, too."""
    made = World(server.server, server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(params=single_kinds())
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A single server for one test alone, which may kill it, freeze it and empty it. It forgets nothing."""
    binary = embedded_binary() if request.param == "embedded" else redis_binary()
    with Server(binary, appendfsync="always") as started:
        try:
            yield started
        finally:
            started.thaw()


@pytest.fixture
async def own_world(own_server: Server) -> AsyncIterator[World]:
    made = World(own_server, own_server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        own_server.thaw()
        await made.close()
