"""Fixtures for scenarios of nodes on Azure: one stand-in per test process, a subscription for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from standins.azure import LocalAzure
from standins.redis_servers import LocalRedis
from tests.api_servers import TestApi
from tests.redis_servers import TestServer
from tests.scenarios.azure.azure_scenario import AzureScenario, opened


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch, local_azure: LocalAzure) -> None:
    """The only one that the service finds is the one that the stand-in serves."""
    _identified(monkeypatch, local_azure)


def _identified(monkeypatch: pytest.MonkeyPatch, azure: LocalAzure) -> None:
    for name, value in azure.identity().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def scenario(
    api: TestApi, embedded_server: TestServer, local_azure: LocalAzure, identity: None, tmp_path: Path
) -> AsyncIterator[AzureScenario]:
    async with opened(api, embedded_server.settings(), local_azure, tmp_path) as made:
        yield made


@pytest.fixture
def valkey() -> Iterator[LocalRedis]:
    """A Valkey of the test's own that may be killed: what it has answered is on disk."""
    with LocalRedis(appendfsync="always") as server:
        yield server


@pytest.fixture
async def durable_scenario(
    api: TestApi, valkey: LocalRedis, local_azure: LocalAzure, identity: None, tmp_path: Path
) -> AsyncIterator[AzureScenario]:
    """A stage on that Valkey."""
    async with opened(api, valkey.settings(), local_azure, tmp_path) as made:
        yield made


@pytest.fixture
async def large_scenario(
    api: TestApi, embedded_server: TestServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[AzureScenario]:
    """A stage with a stand-in of its own, for so much that others would be slow where it had been."""
    async with LocalAzure() as own:
        _identified(monkeypatch, own)
        async with opened(api, embedded_server.settings(), own, tmp_path) as made:
            yield made
