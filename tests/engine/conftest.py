"""The world that each test gets, on each kind of server that the tests run on.

Tests marked `heavy` take long where a server is more than one process: there they belong to the long run.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog

from service.local.servers import Server, embedded_binary, redis_binary
from tests.engine.world import World
from tests.servers import TestServer, kinds


def single_kinds() -> list[Any]:
    """The kinds that are one process, which a test may kill and freeze."""
    marks = {kind: [pytest.mark.servers, pytest.mark.xdist_group(kind)] for kind in ("embedded", "redis")}
    return [pytest.param(kind, marks=marks[kind]) for kind in kinds() if kind in marks]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "heavy: belongs to the long run on every server but the embedded one")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = (
            item.callspec.params.get("server")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if item.get_closest_marker("heavy") and kind not in (None, "embedded"):
            item.add_marker(pytest.mark.long)


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
