"""The world that each test gets, on each kind of server that the tests run on.

Tests marked `heavy` take long where a server is more than one process: there they belong to the long run.
"""

import logging
from collections.abc import AsyncIterator

import pytest
import structlog

from tests.engine.world import World
from tests.servers import TestServer


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "heavy: belongs to the long run on every server but the embedded one")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = getattr(item, "callspec", None) and item.callspec.params.get("server")
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
