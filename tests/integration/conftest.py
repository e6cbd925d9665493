"""Fixtures that several integration tests share: Kubernetes clients, AWS accounts, Cluster API clusters, identities."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.kubernetes import KubernetesClient, connect
from tests.api_servers import TestApi
from tests.integration.watched_source import watched
from tests.redis_servers import TestServer

if TYPE_CHECKING:
    from standins.aws.builder import Vpc
    from standins.aws.process import LocalAws
    from tests.aws import AwsTestAccount
    from tests.capi import CapiObjects
    from tests.integration.aws_identities import AwsIdentityFixture
    from tests.integration.capi_fixture import CapiFixture

__all__ = ["cluster", "watched"]


@pytest.fixture
async def cluster(api: TestApi, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    """Knell's client, as admin of the server of `api`."""
    async with await connect("test", api.settings(tmp_path)) as opened:
        yield opened


# Imported where they are asked for: the SDK of AWS takes longer to import than most tests take.


@pytest.fixture
async def cloud(local_aws: "LocalAws") -> "AsyncIterator[AwsTestAccount]":
    """An account for one test; the stand-in's behaviour is restored afterwards."""
    from tests.aws import account_on

    async with account_on(local_aws) as made:
        yield made


@pytest.fixture
async def clusters(
    api: TestApi,
    embedded_server: TestServer,
    local_aws: "LocalAws",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> "AsyncIterator[CapiFixture]":
    """Cluster API clusters in an account and a Namespace of the test's own."""
    from tests.integration.capi_fixture import clusters_on

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AKIA{random.randrange(10**11, 10**12)}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with clusters_on(api, embedded_server, local_aws, tmp_path) as made:
        yield made


@pytest.fixture
async def vpc(clusters: "CapiFixture") -> "Vpc":
    return await clusters.resources.vpc()


@pytest.fixture
def elsewhere(clusters: "CapiFixture", api: TestApi) -> "CapiObjects":
    """Clusters in another Namespace, which is watched, too."""
    from tests.capi import CapiObjects

    made = CapiObjects(api.kube, api.namespace())
    clusters.watch_also(made.namespace)
    return made


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What is open longer than one step of a test; it is closed before AWS and the clusters are."""
    async with AsyncExitStack() as made:
        yield made


@pytest.fixture
async def identities(
    api: TestApi, local_aws: "LocalAws", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> "AsyncIterator[AwsIdentityFixture]":
    """Identities and Secrets for AWS clients; tests that need another setup define their own."""
    from tests.integration.aws_identities import aws_identity_fixture, own_credentials

    own_credentials(monkeypatch, tmp_path)
    async with aws_identity_fixture(api, local_aws, tmp_path) as made:
        yield made
