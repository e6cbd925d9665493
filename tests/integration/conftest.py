"""Fixtures of the tests that need servers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.cluster import Cluster, connect
from tests.clusters import TestApi
from tests.integration.watched import watched

__all__ = ["cluster", "watched"]


@pytest.fixture
async def cluster(api: TestApi, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Our client, as the admin of the server that `api` is."""
    async with await connect("test", api.settings(tmp_path)) as opened:
        yield opened
