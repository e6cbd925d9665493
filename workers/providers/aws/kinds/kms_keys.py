"""KMS keys. They are scheduled for deletion, never deleted at once, and can be restored until the recovery window ends:
a key that is scheduled counts as gone. Keys that AWS manages are refused."""

from typing import Any, Final, NamedTuple

from service.contract import Blocked, Refused, Verdict
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.kinds.recovery_window import recovery_days
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each
from workers.removal import Accepted

NAME: Final = "aws.kms-key"


class KeyFacts(NamedTuple):
    """`manager` is who manages it; `replicas` are the regions with replicas of a primary key."""

    manager: str
    replicas: tuple[str, ...] = ()


async def _describe(client: AwsClient, key: str) -> dict[str, Any]:
    answer = await client.call("kms", "describe_key", KeyId=key)
    found: dict[str, Any] = answer.get("KeyMetadata") or {}
    if found.get("KeyId") != key or found.get("AWSAccountId") not in (None, client.account):
        # An alias leads to any key, and an ARN to one of another account.
        raise AwsError("unreadable", "kms:DescribeKey", "OtherIds", f"the answer is not about key {key}")
    return found


async def _exists(client: AwsClient, key: str) -> AwsResource:
    return _parse(await _describe(client, key), {})


async def _read(client: AwsClient, key: str) -> AwsResource:
    found = await _describe(client, key)
    if found.get("KeyManager") == "AWS":
        # Its tags can't be read, and do not matter.
        return _parse(found, {})
    pages = client.pages("kms", "list_resource_tags", "Tags", KeyId=key)
    return _parse(found, {tag["TagKey"]: tag.get("TagValue", "") async for page in pages for tag in page})


def _parse(item: dict[str, Any], tags: dict[str, str]) -> AwsResource:
    several = item.get("MultiRegionConfiguration") or {}
    primary = several.get("MultiRegionKeyType") == "PRIMARY"
    replicas = tuple(one["Region"] for one in several.get("ReplicaKeys") or ()) if primary else ()
    return AwsResource(
        kind=NAME,
        id=item["KeyId"],
        tags=tags,
        state=item.get("KeyState") or "",
        made=item.get("CreationDate"),
        facts=KeyFacts(item.get("KeyManager") or "", replicas),
    )


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    key, facts = attempt.resource.id, attempt.resource.facts
    if facts.manager != "CUSTOMER":
        return Refused(f"key {key} is managed by {facts.manager or 'an unknown party'}, not by its account")
    if facts.replicas:
        return Blocked(f"key {key} has replicas in {', '.join(facts.replicas)}, which must be deleted before it")
    return None


async def _delete(attempt: AwsAttempt) -> Accepted:
    days = recovery_days(attempt.settings)
    await attempt.client.call("kms", "schedule_key_deletion", KeyId=attempt.resource.id, PendingWindowInDays=days)
    return Accepted(f"scheduled for deletion in {days} days")


KMS_KEY = AwsKind(
    name=NAME,
    service="kms",
    delete_operation="kms.ScheduleKeyDeletion",
    check_operation="kms.DescribeKey",
    arn=("kms", "key"),
    read=read_each(_read),
    read_operations=("kms.DescribeKey", "kms.ListResourceTags"),
    exists=read_each(_exists),
    in_vpc=False,
    in_tagging_api=False,
    precheck=_precheck,
    delete=_delete,
    absent_states=frozenset({"PendingDeletion"}),
    # Of a primary key whose replicas are scheduled for deletion as well.
    deleting_states=frozenset({"PendingReplicaDeletion"}),
)
