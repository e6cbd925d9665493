"""Fixtures of the tests that need servers."""

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.cluster import Cluster, connect
from tests.clusters import TestApi
from tests.integration.watched import watched
from tests.servers import TestServer

if TYPE_CHECKING:
    from service.local.aws.process import LocalAws
    from tests.integration.clustered import Clustered

__all__ = ["cluster", "watched"]


@pytest.fixture
async def cluster(api: TestApi, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Our client, as the admin of the server that `api` is."""
    async with await connect("test", api.settings(tmp_path)) as opened:
        yield opened


# Imported where they are asked for: the SDK of AWS takes longer to import than most tests take.


@pytest.fixture(scope="session")
def local_aws() -> "Iterator[LocalAws]":
    """The stand-in for AWS."""
    from tests.integration.clustered import running_aws

    with running_aws() as aws:
        yield aws


@pytest.fixture
async def clustered(
    api: TestApi,
    embedded_server: TestServer,
    local_aws: "LocalAws",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> "AsyncIterator[Clustered]":
    """Cluster API clusters in an account and a Namespace of the test's own."""
    from tests.integration.clustered import clusters_on

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AKIA{random.randrange(10**11, 10**12)}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with clusters_on(api, embedded_server, local_aws, tmp_path) as made:
        yield made
