"""Fixture for scenarios on AWS: an account of the test's own, to which the credentials of the service lead."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from standins.aws import AwsBehaviour, LocalAws
from standins.aws.builder import REGION, AwsBuilder
from tests.integration.aws_identities import own_credentials


@pytest.fixture
async def own_account(
    local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AwsBuilder]:
    """The builder of its resources; the stand-in behaves as by default."""
    account = str(uuid.uuid4().int)[-12:]
    own_credentials(monkeypatch, tmp_path, account)
    await local_aws.behave(**msgspec.to_builtins(AwsBehaviour()))
    async with AwsBuilder(local_aws.address, account=account, region=REGION) as builder:
        yield builder
