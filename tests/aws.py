"""AWS accounts for tests: one stand-in process per test run, and a separate account for each test.
Each test sets the behaviour and the clock of the stand-in that it needs at its start."""

import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from aiobotocore.config import AioConfig
from botocore.exceptions import ClientError

from standins.aws import AwsBehaviour, LocalAws
from standins.aws.builder import REGION, AwsBuilder, credentials, session


class AwsTestAccount:
    """One test's account: `builder` builds in it, `client` is what a program under test would use."""

    def __init__(self, aws: LocalAws, builder: AwsBuilder, start: int) -> None:
        self.aws, self.builder, self.account = aws, builder, builder.account
        self._start = start
        self.open = contextlib.AsyncExitStack()

    async def client(self, service: str, *, account: str = "", region: str = REGION, **keys: str) -> Any:
        keys = keys or credentials(account or self.account)
        config = AioConfig(retries={"total_max_attempts": 1}, read_timeout=60)
        made = session().create_client(
            service, region_name=region, endpoint_url=self.aws.address, config=config, **keys
        )
        return await self.open.enter_async_context(made)

    async def requests(self, action: str = "") -> list[tuple[int, str]]:
        """Status and code of what was asked in this test, in order."""
        entries = await self.aws.requests(action, self._start)
        return [(one.status, one.code) for one in entries if one.account == self.account]


@contextlib.asynccontextmanager
async def account_on(aws: LocalAws) -> AsyncIterator[AwsTestAccount]:
    account = str(random.randrange(10**11, 10**12))
    await aws.behave(**msgspec.to_builtins(AwsBehaviour()))
    await aws.set_rate(1.0)
    start = len(await aws.journal())
    async with AwsBuilder(aws.address, account=account) as builder:
        made = AwsTestAccount(aws, builder, start)
        async with made.open:
            yield made


@contextlib.contextmanager
def refusal(code: str, status: int = 400) -> Iterator[None]:
    """What is done inside is refused by AWS with this code."""
    with pytest.raises(ClientError) as raised:
        yield
    assert raised.value.response["Error"]["Code"] == code
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


async def described(client: Any, operation: str, key: str, **given: Any) -> list[Any]:
    """All items of a describe call, over all its pages."""
    if not client.can_paginate(operation):
        return list((await getattr(client, operation)(**given))[key])
    return [one async for page in client.get_paginator(operation).paginate(**given) for one in page[key]]
