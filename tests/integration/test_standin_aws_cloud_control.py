"""Cloud Control of the stand-in for AWS: reads and deletions of every type that it has, requests and their tokens, and
how a deletion fails."""

from typing import Any

import msgspec
import pytest

from standins.aws import AwsFault
from tests.aws import AwsTestAccount, refusal
from tests.cloud_control_types import (
    CLOUD_CONTROL_TYPES,
    WITHOUT_TAGS,
    NewByIdentifier,
    nodegroup_of,
    protected_table,
)
from tests.engine.waiting import until

pytestmark = pytest.mark.long

TAGS = {"owner": "a test"}
QUEUE = "AWS::SQS::Queue"
HOUR = 3600.0


class Requests:
    """Cloud Control in one account of the stand-in."""

    def __init__(self, cloud: AwsTestAccount, client: Any, new: NewByIdentifier) -> None:
        self.cloud, self.client, self.new = cloud, client, new

    async def create(self, type_: str) -> str:
        return await CLOUD_CONTROL_TYPES[type_](self.new)

    async def properties(self, type_: str, identifier: str) -> dict[str, Any]:
        found = await self.client.get_resource(TypeName=type_, Identifier=identifier)
        assert found["ResourceDescription"]["Identifier"] == identifier
        shown: dict[str, Any] = msgspec.json.decode(found["ResourceDescription"]["Properties"])
        return shown

    async def delete(self, type_: str, identifier: str, **given: str) -> dict[str, Any]:
        answer = await self.client.delete_resource(TypeName=type_, Identifier=identifier, **given)
        event: dict[str, Any] = answer["ProgressEvent"]
        return event

    async def status(self, event: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.get_resource_request_status(RequestToken=event["RequestToken"])
        shown: dict[str, Any] = answer["ProgressEvent"]
        return shown

    async def ended(self, event: dict[str, Any]) -> dict[str, Any]:
        async def look() -> dict[str, Any]:
            now = await self.status(event)
            return {} if now["OperationStatus"] in ("PENDING", "IN_PROGRESS") else now

        return await until("the request has ended", look)


@pytest.fixture
async def requests(cloud: AwsTestAccount) -> Requests:
    # However often a request is looked at until it has ended.
    await cloud.aws.behave(cloud_control_takes=0.2, buckets=False)
    new = NewByIdentifier(cloud, await cloud.builder.vpc(), TAGS)
    return Requests(cloud, await cloud.client("cloudcontrol"), new)


async def test_the_journal_says_which_request_ended_with_its_resource_gone(requests: Requests) -> None:
    since = len(await requests.cloud.aws.journal())
    queue = await requests.create(QUEUE)
    for _ in range(2):
        await requests.ended(await requests.delete(QUEUE, queue))
    entries = [one for one in await requests.cloud.aws.journal(since) if one.what == "ended"]
    assert [one.code for one in entries if one.ids == (QUEUE, queue)] == ["", "NotFound"]


@pytest.mark.parametrize("type_", CLOUD_CONTROL_TYPES)
async def test_every_type_is_read_with_its_tags_and_deleted(requests: Requests, type_: str) -> None:
    await requests.cloud.aws.behave(cloud_control_takes=HOUR)
    identifier = await requests.create(type_)
    shown = await requests.properties(type_, identifier)
    (tags,) = [value for name, value in shown.items() if name.endswith("Tags")] or [{}]
    as_map = tags if isinstance(tags, dict) else {one["Key"]: one["Value"] for one in tags}
    assert as_map == ({} if type_ in WITHOUT_TAGS else TAGS)
    parts = identifier.split("|") if "|" in identifier else [identifier]
    assert set(parts) <= {value for value in shown.values() if isinstance(value, str)}
    event = await requests.delete(type_, identifier)
    assert event["OperationStatus"] == "PENDING"
    # It exists while its request runs.
    await requests.properties(type_, identifier)
    await requests.cloud.aws.advance(HOUR)
    ended = await requests.ended(event)
    assert (ended["OperationStatus"], ended.get("StatusMessage")) == ("SUCCESS", None)
    with refusal("ResourceNotFoundException"):
        await requests.properties(type_, identifier)


async def test_a_deletion_is_one_request_however_often_its_client_token_is_sent(requests: Requests) -> None:
    queue = await requests.create(QUEUE)
    await requests.cloud.aws.behave(cloud_control_takes=1000)
    event = await requests.delete(QUEUE, queue, ClientToken="one")
    again = await requests.delete(QUEUE, queue, ClientToken="one")
    assert again["RequestToken"] == event["RequestToken"]
    with refusal("ConcurrentOperationException"):
        await requests.delete(QUEUE, queue, ClientToken="two")
    with refusal("ClientTokenConflictException"):
        await requests.delete(QUEUE, await requests.create(QUEUE), ClientToken="one")
    await requests.cloud.aws.behave(cloud_control_token_conflicts=True)
    with refusal("ClientTokenConflictException"):
        await requests.delete(QUEUE, queue, ClientToken="one")
    listed = await requests.client.list_resource_requests()
    assert [one["RequestToken"] for one in listed["ResourceRequestStatusSummaries"]] == [event["RequestToken"]]


async def test_client_tokens_and_requests_are_forgotten(requests: Requests) -> None:
    queue, aws = await requests.create(QUEUE), requests.cloud.aws
    first = await requests.delete(QUEUE, queue, ClientToken="one")
    await requests.ended(first)
    await aws.advance(37 * 3600)
    second = await requests.delete(QUEUE, queue, ClientToken="one")
    assert second["RequestToken"] != first["RequestToken"]
    await aws.advance(6 * 24 * 3600)
    with refusal("RequestTokenNotFoundException"):
        await requests.status(first)
    await requests.status(second)


async def test_a_request_can_be_cancelled_while_it_runs(requests: Requests) -> None:
    await requests.cloud.aws.behave(cloud_control_takes=1000, cloud_control_retry_after=30)
    queue = await requests.create(QUEUE)
    event = await requests.delete(QUEUE, queue)
    assert event["RetryAfter"] > event["EventTime"]
    await requests.client.cancel_resource_request(RequestToken=event["RequestToken"])
    assert (await requests.status(event))["OperationStatus"] == "CANCEL_COMPLETE"
    with refusal("ConcurrentModificationException"):
        await requests.client.cancel_resource_request(RequestToken=event["RequestToken"])
    await requests.cloud.aws.advance(2000)
    await requests.properties(QUEUE, queue)
    chosen = {"OperationStatuses": ["FAILED"]}
    listed = await requests.client.list_resource_requests(ResourceRequestStatusFilter=chosen)
    assert listed["ResourceRequestStatusSummaries"] == []


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_missing_resource_fails_at_once_or_later(requests: Requests, accepted: bool) -> None:
    await requests.cloud.aws.behave(cloud_control_accepts_missing=accepted)
    if not accepted:
        with refusal("ResourceNotFoundException"):
            await requests.delete("AWS::DynamoDB::Table", "missing")
        return
    ended = await requests.ended(await requests.delete("AWS::DynamoDB::Table", "missing"))
    assert (ended["OperationStatus"], ended["ErrorCode"]) == ("FAILED", "NotFound")


async def test_what_is_in_use_fails_with_a_conflict(requests: Requests) -> None:
    cluster = await requests.create("AWS::EKS::Cluster")
    await nodegroup_of(requests.new, cluster)
    for type_, identifier in (("AWS::EC2::VPC", requests.new.vpc.id), ("AWS::EKS::Cluster", cluster)):
        ended = await requests.ended(await requests.delete(type_, identifier))
        assert (ended["OperationStatus"], ended["ErrorCode"]) == ("FAILED", "ResourceConflict"), type_
    table = await protected_table(requests.new)
    ended = await requests.ended(await requests.delete("AWS::DynamoDB::Table", table))
    assert ended["ErrorCode"] == "InvalidRequest"
    assert "DeletionProtection" in ended["StatusMessage"]


async def test_handlers_fail_as_a_fault_says(requests: Requests) -> None:
    handler = "cloudcontrol.Handler"
    for fault, code in (
        (AwsFault(what="throttle", action=handler), "Throttling"),
        (AwsFault(what="deny", action=handler, code="sqs:DeleteQueue"), "AccessDenied"),
        (AwsFault(what="error", action=handler, code="NetworkFailure", message="no"), "NetworkFailure"),
    ):
        await requests.cloud.aws.set_faults(fault)
        ended = await requests.ended(await requests.delete(QUEUE, await requests.create(QUEUE)))
        assert (ended["OperationStatus"], ended["ErrorCode"]) == ("FAILED", code)


async def test_types_that_it_does_not_have_are_refused(requests: Requests) -> None:
    for type_, code in (
        ("AWS::DocDB::DBCluster", "UnsupportedActionException"),
        ("AWS::No::Such", "TypeNotFoundException"),
    ):
        with refusal(code):
            await requests.properties(type_, "a")
        with refusal(code):
            await requests.delete(type_, "a")


async def test_all_calls_share_one_bucket(requests: Requests) -> None:
    await requests.cloud.aws.behave(buckets=True)
    await requests.cloud.aws.set_rate(0)
    queue, throttled = await requests.create(QUEUE), 0
    for number in range(40):
        try:
            if number % 2:
                await requests.properties(QUEUE, queue)
            else:
                await requests.client.list_resource_requests()
        except requests.client.exceptions.ThrottlingException:
            throttled += 1
    assert throttled == 10


@pytest.mark.parametrize("type_", CLOUD_CONTROL_TYPES)
async def test_every_type_is_tagged_by_its_arn(requests: Requests, type_: str) -> None:
    from workers.providers.aws.cloud_control_ids import CloudControlId, arn_of

    identifier = await requests.create(type_)
    shown = await requests.properties(type_, identifier)
    arn = shown.get("Arn") or arn_of(CloudControlId(type_, identifier), requests.cloud.account, "eu-west-1")
    tagging = await requests.cloud.client("resourcegroupstaggingapi")
    answer = await tagging.tag_resources(ResourceARNList=[arn, "arn:aws:sqs:::none"], Tags={"kept": "yes"})
    assert list(answer["FailedResourcesMap"]) == ["arn:aws:sqs:::none"]
    if type_ not in WITHOUT_TAGS:
        assert "kept" in str(await requests.properties(type_, identifier))
    await tagging.untag_resources(ResourceARNList=[arn], TagKeys=["kept"])
    assert await requests.properties(type_, identifier) == shown
