"""The stage that stories of nodes on Azure run on: one stand-in per test process, a subscription for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from service.local.azure import LocalAzure
from tests.clusters import TestApi
from tests.scenarios.azure.stage import Stage, opened
from tests.servers import TestServer


@pytest.fixture(scope="session")
def azure() -> Iterator[LocalAzure]:
    running = LocalAzure().start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch, azure: LocalAzure) -> None:
    """The only one that the service finds is the one that the stand-in serves."""
    for name, value in azure.identity().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def stage(
    api: TestApi, embedded_server: TestServer, azure: LocalAzure, identity: None, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with opened(api, embedded_server.settings(), azure, tmp_path) as made:
        yield made
