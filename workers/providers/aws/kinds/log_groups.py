"""CloudWatch log groups, identified by name. A service that still writes to one may create it again."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from service.contract import Verdict
from service.sources.aws import partition_of
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.kinds.deletion_protection import DeletionProtection
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each
from workers.providers.aws.reading.ec2 import Item

NAME: Final = "aws.log-group"
DELETE: Final = "logs.DeleteLogGroup"
LIFT: Final = "logs.PutLogGroupDeletionProtection"


class LogGroupFacts(NamedTuple):
    """`made` is the creation time in milliseconds, as AWS has it."""

    made: int
    protected: bool


async def _describe(client: AwsClient, name: str) -> Item | None:
    """There is no read by name. Lists by prefix are sorted, so the group itself is the first one of its own prefix."""
    async for page in client.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=name):
        names = [str(one["logGroupName"]) for one in page]
        if not all(one.startswith(name) for one in names):
            raise AwsError("unreadable", "logs:DescribeLogGroups", "OtherIds", "the answer has other log groups")
        if name in names:
            return page[names.index(name)]
        if names and names == sorted(names):
            # Further pages have longer names.
            return None
    return None


async def _exists(client: AwsClient, name: str) -> AwsResource | None:
    found = await _describe(client, name)
    return None if found is None else _parse(found, {})


async def _read(client: AwsClient, name: str) -> AwsResource | None:
    found = await _describe(client, name)
    if found is None:
        return None
    region = client.scope.region
    arn = f"arn:{partition_of(region)}:logs:{region}:{client.account}:log-group:{name}"
    answer = await client.call("logs", "list_tags_for_resource", resourceArn=arn)
    tags = answer.get("tags")
    if not isinstance(tags, dict):
        raise AwsError("unreadable", "logs:ListTagsForResource", "NoTags", "an answer without tags is not an empty one")
    return _parse(found, tags)


def _parse(item: Item, tags: dict[str, str]) -> AwsResource:
    made = int(item["creationTime"])
    return AwsResource(
        kind=NAME,
        id=item["logGroupName"],
        tags=tags,
        made=datetime.fromtimestamp(made / 1000, UTC),
        facts=LogGroupFacts(made, bool(item.get("deletionProtectionEnabled"))),
    )


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    if attempt.resource.facts.protected:
        return _PROTECTION.verdict(attempt, "deletionProtectionEnabled is true")
    return None


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("logs", "delete_log_group", logGroupName=attempt.resource.id)


async def _switch_off(attempt: AwsAttempt) -> None:
    await attempt.client.call(
        "logs", "put_log_group_deletion_protection", logGroupIdentifier=attempt.resource.id,
        deletionProtectionEnabled=False,
    )  # fmt: skip


_PROTECTION = DeletionProtection(LIFT, DELETE, "deletionProtectionEnabled", _switch_off)

LOG_GROUP = AwsKind(
    name=NAME,
    service="logs",
    delete_operation=DELETE,
    check_operation="logs.DescribeLogGroups",
    arn=("logs", "log-group"),
    arn_separator=":",
    read=read_each(_read),
    read_operations=("logs.DescribeLogGroups", "logs.ListTagsForResource"),
    exists=read_each(_exists),
    in_vpc=False,
    in_tagging_api=False,
    incarnation=lambda resource: str(resource.facts.made),
    precheck=_precheck,
    delete=_delete,
    steps={LIFT: _PROTECTION.step},
)
