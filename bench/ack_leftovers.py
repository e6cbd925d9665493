"""Tables and queues that ACK left behind: the resources in an AWS account, and their objects on the API server.

ACK itself does not run: nothing else deletes them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from bench import objects
from bench.aws_account import BenchAccount
from bench.objects import DELETED_AT_ONCE, each
from service.sources.ack import CONTROLLER_TAG, NAMESPACE_TAG
from standins.aws.builder import AwsBuilder
from tests.ack import QUEUES, TABLES, body, status
from tests.kube import Crd

KINDS: Final = (TABLES, QUEUES)
_MADE_AT_ONCE: Final = 8


@dataclass(frozen=True)
class AckLeftover:
    """A resource, and what its object says of it. `identifier` is that of Cloud Control."""

    crd: Crd
    name: str
    identifier: str
    arn: str
    spec: dict[str, str]
    fields: dict[str, str]


# ---- the account


def fill(account: BenchAccount, namespace: str, count: int) -> list[AckLeftover]:
    """As many tables as queues, with ACK's own tags."""
    turn = uuid.uuid4().hex[:6]
    names = [f"ack-{turn}-{number:05}" for number in range(count // 2)]
    found: list[AckLeftover] = []

    async def made() -> None:
        async with AwsBuilder(account.address, account=account.number, region=account.region) as builder:
            tables, queues = await builder.client("dynamodb"), await builder.client("sqs")

            async def leave(name: str) -> None:
                found.append(await _table(tables, name, namespace))
                found.append(await _queue(queues, name, namespace))

            await each(names, leave, _MADE_AT_ONCE)

    asyncio.run(made())
    return found


async def _table(dynamodb: Any, name: str, namespace: str) -> AckLeftover:
    made = await dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        Tags=[{"Key": key, "Value": value} for key, value in _tags(TABLES, namespace).items()],
    )
    return AckLeftover(TABLES, name, name, made["TableDescription"]["TableArn"], {"tableName": name}, {})


async def _queue(sqs: Any, name: str, namespace: str) -> AckLeftover:
    url = (await sqs.create_queue(QueueName=name, tags=_tags(QUEUES, namespace)))["QueueUrl"]
    said = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return AckLeftover(QUEUES, name, url, said["Attributes"]["QueueArn"], {"queueName": name}, {"queueURL": url})


def _tags(crd: Crd, namespace: str) -> dict[str, str]:
    return {NAMESPACE_TAG: namespace, CONTROLLER_TAG: f"{service_of(crd)}-v1.5.0"}


def service_of(crd: Crd) -> str:
    return crd.group.partition(".")[0]


# ---- the API server


async def define(session: aiohttp.ClientSession) -> None:
    """Unless they are there."""
    await objects.define_crds(session, KINDS)


async def create(
    session: aiohttp.ClientSession, namespace: str, account: BenchAccount, leftovers: Sequence[AckLeftover]
) -> dict[Crd, list[str]]:
    """An object of each, which its controller has reported as synced. Returns their uids."""
    uids: dict[Crd, list[str]] = {crd: [] for crd in KINDS}

    async def one(left: AckLeftover) -> None:
        said = status(left.arn, account=account.number, region=account.region, **left.fields)
        path = left.crd.path(namespace)
        made = await objects.answer(session, "POST", path, body(left.crd, left.name, left.spec, None))
        await objects.answer(session, "PATCH", f"{path}/{left.name}/status", {"status": said})
        uids[left.crd].append(made["metadata"]["uid"])

    await each(leftovers, one)
    return uids


async def delete(session: aiohttp.ClientSession, namespace: str, leftovers: Sequence[AckLeftover]) -> float:
    """Epoch seconds of the first call. Without finalizers the objects are gone at once."""
    began = time.time()
    paths = [left.crd.path(namespace, left.name) for left in leftovers]
    await each(paths, lambda path: objects.answer(session, "DELETE", path), DELETED_AT_ONCE)
    return began
