"""Secrets of Secrets Manager, identified by ARN. They are deleted with a recovery window, never at once, and can be
restored until it ends: a secret with a deletion date counts as gone. Those that another service manages are refused."""

from typing import Any, Final, NamedTuple

from service.contract import Blocked, Refused, Verdict
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.kinds.recovery_window import recovery_days
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each
from workers.providers.aws.reading.ec2 import tags_of
from workers.removal import Accepted

NAME: Final = "aws.secret"
SCHEDULED: Final = "scheduled for deletion"


class SecretFacts(NamedTuple):
    """`manager` is the service that manages it, `primary` the region that a replica is copied from, `replicas` those
    that it is copied to."""

    manager: str
    primary: str
    replicas: tuple[str, ...]


async def _read(client: AwsClient, arn: str) -> AwsResource:
    found = await client.call("secretsmanager", "describe_secret", SecretId=arn)
    if found.get("ARN") != arn:
        # A part of an ARN leads to any secret of that name.
        raise AwsError("unreadable", "secretsmanager:DescribeSecret", "OtherIds", f"the answer is not about {arn}")
    return _parse(found, client.scope.region)


def _parse(item: dict[str, Any], region: str) -> AwsResource:
    primary = item.get("PrimaryRegion") or region
    replicas = tuple(one["Region"] for one in item.get("ReplicationStatus") or ()) if primary == region else ()
    return AwsResource(
        kind=NAME,
        id=item["ARN"],
        tags=tags_of(item),
        state=SCHEDULED if item.get("DeletedDate") else "",
        made=item.get("CreatedDate"),
        facts=SecretFacts(item.get("OwningService") or "", "" if primary == region else primary, replicas),
    )


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    arn, facts = attempt.resource.id, attempt.resource.facts
    if facts.manager:
        return Refused(f"{arn} is managed by the service {facts.manager}, which deletes it")
    if facts.primary:
        return Blocked(f"{arn} is a replica of the secret in {facts.primary}: remove it there", person=True)
    if facts.replicas:
        return Blocked(f"{arn} has replicas in {', '.join(facts.replicas)}: remove them first", person=True)
    return None


async def _delete(attempt: AwsAttempt) -> Accepted:
    days = recovery_days(attempt.settings)
    await attempt.client.call(
        "secretsmanager", "delete_secret", SecretId=attempt.resource.id, RecoveryWindowInDays=days
    )
    return Accepted(f"scheduled for deletion in {days} days")


SECRET = AwsKind(
    name=NAME,
    service="secretsmanager",
    delete_operation="secretsmanager.DeleteSecret",
    check_operation="secretsmanager.DescribeSecret",
    arn=("secretsmanager", "secret"),
    arn_separator=":",
    id_pattern=r"[^:]+",
    id_is_arn=True,
    read=read_each(_read),
    read_operations=("secretsmanager.DescribeSecret",),
    in_vpc=False,
    in_tagging_api=False,
    precheck=_precheck,
    delete=_delete,
    # Replicas that were added since they were read.
    dependency_codes=frozenset({"InvalidRequestException"}),
    absent_states=frozenset({SCHEDULED}),
)
