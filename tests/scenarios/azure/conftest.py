"""The stage that stories of nodes on Azure run on: one stand-in per test process, a subscription for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from standins.azure import LocalAzure
from standins.servers import Server
from tests.clusters import TestApi
from tests.scenarios.azure.stage import Stage, opened
from tests.servers import TestServer


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch, local_azure: LocalAzure) -> None:
    """The only one that the service finds is the one that the stand-in serves."""
    _identified(monkeypatch, local_azure)


def _identified(monkeypatch: pytest.MonkeyPatch, azure: LocalAzure) -> None:
    for name, value in azure.identity().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def stage(
    api: TestApi, embedded_server: TestServer, local_azure: LocalAzure, identity: None, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with opened(api, embedded_server.settings(), local_azure, tmp_path) as made:
        yield made


@pytest.fixture
def valkey() -> Iterator[Server]:
    """A Valkey of the test's own that may be killed: what it has answered is on disk."""
    with Server(appendfsync="always") as server:
        yield server


@pytest.fixture
async def lasting(
    api: TestApi, valkey: Server, local_azure: LocalAzure, identity: None, tmp_path: Path
) -> AsyncIterator[Stage]:
    """A stage on that Valkey."""
    async with opened(api, valkey.settings(), local_azure, tmp_path) as made:
        yield made


@pytest.fixture
async def vast(
    api: TestApi, embedded_server: TestServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Stage]:
    """A stage with a stand-in of its own, for so much that others would be slow where it had been."""
    async with LocalAzure() as own:
        _identified(monkeypatch, own)
        async with opened(api, embedded_server.settings(), own, tmp_path) as made:
            yield made
