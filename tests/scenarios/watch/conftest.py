"""Fixtures for scenarios of the whole service: on the shared control plane, or on one that a test may restart."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from standins.controlplane import ControlPlane
from standins.redis_servers import LocalRedis
from tests.api_servers import need_real
from tests.redis_servers import TestServer
from tests.scenarios.watch.watch_scenario import WatchScenario, opened


@pytest.fixture
async def scenario(plane: ControlPlane, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[WatchScenario]:
    """On the shared control plane and the shared Valkey: neither may be stopped or emptied."""
    async with opened(plane, embedded_server.settings(), tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def own_plane() -> Iterator[ControlPlane]:
    """For stories that restart or compact it, one after the other: they belong to one xdist group."""
    need_real()
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
async def own_plane_scenario(
    own_plane: ControlPlane, embedded_server: TestServer, tmp_path: Path
) -> AsyncIterator[WatchScenario]:
    """Its control plane may be broken."""
    async with opened(own_plane, embedded_server.settings(), tmp_path) as made:
        yield made


@pytest.fixture
def valkey() -> Iterator[LocalRedis]:
    """A Valkey that may be emptied and frozen."""
    server = LocalRedis().start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
async def own_valkey_scenario(plane: ControlPlane, valkey: LocalRedis, tmp_path: Path) -> AsyncIterator[WatchScenario]:
    """Its Valkey may lose everything."""
    async with opened(plane, valkey.settings(), tmp_path) as made:
        yield made
