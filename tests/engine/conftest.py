"""The world that each test gets, on each kind of server."""

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from service.local.servers.binaries import redis_binary
from service.local.servers.cluster import Cluster
from service.local.servers.sentinel import Sentinels
from service.local.servers.single import Server
from tests.engine.world import AnyServer, World


@pytest.fixture(scope="session", params=["embedded"])
def server(request) -> Iterator[AnyServer]:
    with Server() as s:
        yield s

@pytest.fixture(autouse=True)
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))

@pytest.fixture
async def world(server: AnyServer) -> AsyncIterator[World]:
    made = World(server, server.settings(prefix="t"))
    await made.arrive()
    yield made
    await made.close()
    with server.admin() as c: c.flushall()
