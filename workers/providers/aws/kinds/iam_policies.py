"""Managed IAM policies of an account, identified by ARN. Versions beside the default one are deleted first. An attached
policy blocks its deletion, or is detached first, only if the settings allow it. Policies of AWS are refused."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from service.contract import Blocked, Verdict
from workers.providers.aws.client.paging import require_list
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, KindStep
from workers.providers.aws.kinds.iam_entities import (
    DETACH_FROM_ROLE,
    iam_list,
    require_same,
    reserved,
    some_of,
    unless_gone,
)
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each
from workers.providers.aws.reading.ec2 import tags_of
from workers.providers.aws.services import TagCalls

NAME: Final = "aws.iam-policy"
DELETE: Final = "iam.DeletePolicy"
DELETE_VERSION: Final = "iam.DeletePolicyVersion"
DETACH_FROM_USER: Final = "iam.DetachUserPolicy"
DETACH_FROM_GROUP: Final = "iam.DetachGroupPolicy"

_ENTITIES: Final = "iam.ListEntitiesForPolicy"
_VERSIONS: Final = "iam.ListPolicyVersions"
_LISTS: Final = (
    ("role", "PolicyRoles", "RoleName"),
    ("user", "PolicyUsers", "UserName"),
    ("group", "PolicyGroups", "GroupName"),
)
_LANES: Final = {"role": DETACH_FROM_ROLE, "user": DETACH_FROM_USER, "group": DETACH_FROM_GROUP}


class PolicyFacts(NamedTuple):
    """`id` tells it from other policies of the ARN."""

    id: str
    path: str


class Entity(NamedTuple):
    """A role, user or group that a policy is attached to."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


async def _read(client: AwsClient, arn: str) -> AwsResource:
    answer = await client.call("iam", "get_policy", PolicyArn=arn)
    found = require_same(answer.get("Policy"), "Arn", arn, "iam:GetPolicy")
    return AwsResource(
        kind=NAME,
        id=arn,
        tags=tags_of(found),
        made=found.get("CreateDate"),
        facts=PolicyFacts(found["PolicyId"], found["Path"]),
    )


async def _entities(attempt: AwsAttempt, usage: str) -> list[Entity]:
    """What it is attached to as a policy (PermissionsPolicy), or whose boundary it is (PermissionsBoundary). A page has
    three lists."""
    found, marker, seen = list[Entity](), "", set[str]()
    while True:
        arguments = {"Marker": marker} if marker else {}
        answer = await attempt.client.call(
            "iam", "list_entities_for_policy", PolicyArn=attempt.resource.id, PolicyUsageFilter=usage, **arguments
        )
        for type_, key, name in _LISTS:
            items = require_list(answer, key, "iam", "list_entities_for_policy")
            found += [Entity(type_, one[name]) for one in items]
        marker = str(answer.get("Marker") or "") if answer.get("IsTruncated") else ""
        if not marker:
            return found
        if marker in seen:
            action = "iam:ListEntitiesForPolicy"
            raise AwsError("unreadable", action, "PagesInACircle", "the list comes back to a page that it had")
        seen.add(marker)


async def _old_versions(attempt: AwsAttempt) -> list[str]:
    found = await iam_list(attempt.client, "list_policy_versions", "Versions", PolicyArn=attempt.resource.id)
    return [one["VersionId"] for one in found if not one["IsDefaultVersion"]]


async def _obstacle(attempt: AwsAttempt) -> Verdict | None:
    """What nothing is changed before."""
    if (refused := reserved(attempt, attempt.resource.facts.path)) is not None:
        return refused
    if bounded := await _entities(attempt, "PermissionsBoundary"):
        return Blocked(
            f"it is the permissions boundary of {some_of([str(one) for one in bounded])}, which could do more without "
            f"it: give them another one",
            person=True,
        )
    return None


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    if (obstacle := await _obstacle(attempt)) is not None:
        return obstacle
    if attached := await _entities(attempt, "PermissionsPolicy"):
        names = some_of([str(one) for one in attached])
        if not attempt.settings.detach_policies:
            return Blocked(
                f"it is attached to {names}: detach it, or let Knell do it (setting aws.detach_policies)", person=True
            )
        return attempt.move_to(_LANES[attached[0].type], f"it is detached first from {names}")
    if versions := await _old_versions(attempt):
        return attempt.move_to(DELETE_VERSION, f"older versions are deleted first: {some_of(versions)}")
    return None


def _detach_from(type_: str, detach: Callable[[AwsAttempt, str], Awaitable[None]]) -> KindStep:
    """One entity of this type."""

    async def run(attempt: AwsAttempt) -> Verdict:
        if not attempt.settings.detach_policies:
            return attempt.move_to(DELETE, "it is not to be detached any more")
        if (obstacle := await _obstacle(attempt)) is not None:
            return obstacle
        attached = await _entities(attempt, "PermissionsPolicy")
        mine = next((one for one in attached if one.type == type_), None)
        if mine is None:
            return attempt.move_to(DELETE, f"no {type_} has it")
        attempt = await attempt.refreshed()
        await attempt.clear()
        await unless_gone(detach(attempt, mine.name))
        return attempt.move_to(DELETE if len(attached) == 1 else _LANES[type_], f"detached from {mine}")

    return KindStep(run=run, read_operations=(_ENTITIES, _ENTITIES), setting="detach_policies")


async def _from_role(attempt: AwsAttempt, name: str) -> None:
    await attempt.client.call("iam", "detach_role_policy", RoleName=name, PolicyArn=attempt.resource.id)


async def _from_user(attempt: AwsAttempt, name: str) -> None:
    await attempt.client.call("iam", "detach_user_policy", UserName=name, PolicyArn=attempt.resource.id)


async def _from_group(attempt: AwsAttempt, name: str) -> None:
    await attempt.client.call("iam", "detach_group_policy", GroupName=name, PolicyArn=attempt.resource.id)


async def _delete_version(attempt: AwsAttempt) -> Verdict:
    if (obstacle := await _obstacle(attempt)) is not None:
        return obstacle
    versions = await _old_versions(attempt)
    if not versions:
        return attempt.move_to(DELETE, "it has no older version")
    attempt = await attempt.refreshed()
    await attempt.clear()
    await unless_gone(
        attempt.client.call("iam", "delete_policy_version", PolicyArn=attempt.resource.id, VersionId=versions[0])
    )
    return attempt.move_to(DELETE_VERSION if versions[1:] else DELETE, f"deleted version {versions[0]}")


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("iam", "delete_policy", PolicyArn=attempt.resource.id)


IAM_POLICY = AwsKind(
    name=NAME,
    service="iam",
    delete_operation=DELETE,
    check_operation="iam.GetPolicy",
    # The account in the ARN of a policy of AWS is `aws`, and no claim's.
    arn=("iam", "policy"),
    id_pattern=r".+",
    id_is_arn=True,
    read=read_each(_read),
    read_operations=("iam.GetPolicy",),
    in_vpc=False,
    in_tagging_api=False,
    incarnation=lambda resource: resource.facts.id,
    tag_calls=TagCalls(
        add="tag_policy", remove="untag_policy", ids="PolicyArn", max_ids=1, one_id=True,
        added=lambda key, value: {"Tags": [{"Key": key, "Value": value}]},
        removed=lambda key, _value: {"TagKeys": [key]},
    ),
    lookup_operations=(_ENTITIES, _ENTITIES, _VERSIONS),
    precheck=_precheck,
    delete=_delete,
    steps={
        DELETE_VERSION: KindStep(run=_delete_version, read_operations=(_ENTITIES, _VERSIONS)),
        DETACH_FROM_ROLE: _detach_from("role", _from_role),
        DETACH_FROM_USER: _detach_from("user", _from_user),
        DETACH_FROM_GROUP: _detach_from("group", _from_group),
    },
)  # fmt: skip
