"""Fixtures for scenarios of clusters on AWS: one stand-in per test process, an account for each test."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from standins.aws import LocalAws
from tests.api_servers import TestApi
from tests.integration.aws_identities import own_credentials
from tests.redis_servers import TestServer
from tests.scenarios.aws.aws_scenario import AwsScenario, opened


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The one that the service's own credentials lead to; no other test has it."""
    number = str(uuid.uuid4().int)[-12:]
    own_credentials(monkeypatch, tmp_path, number)
    return number


@pytest.fixture
async def scenario(
    api: TestApi, embedded_server: TestServer, local_aws: LocalAws, account: str, tmp_path: Path
) -> AsyncIterator[AwsScenario]:
    async with opened(api, embedded_server.settings(), local_aws, account, tmp_path) as made:
        yield made
