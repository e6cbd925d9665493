"""Fixtures of the engine's tests: an installation for each test, on each kind of server that the tests run on."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from standins.redis_servers import LocalRedis, embedded_binary, redis_binary
from tests.engine.engine_under_test import EngineUnderTest
from tests.redis_servers import TestServer, kinds


def single_kinds() -> list[str]:
    """The kinds that are one process, which a test may kill and freeze."""
    return [kind for kind in kinds() if kind in ("embedded", "redis")]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    """An installation of its own on a server that others use, too."""
    made = EngineUnderTest(server.server, server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(params=single_kinds())
def own_server(request: pytest.FixtureRequest) -> Iterator[LocalRedis]:
    """A single server for one test alone, which may kill it, freeze it and empty it. It forgets nothing."""
    binary = embedded_binary() if request.param == "embedded" else redis_binary()
    with LocalRedis(binary, appendfsync="always") as started:
        try:
            yield started
        finally:
            started.thaw()


@pytest.fixture
async def own_engine(own_server: LocalRedis) -> AsyncIterator[EngineUnderTest]:
    made = EngineUnderTest(own_server, own_server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        own_server.thaw()
        await made.close()
