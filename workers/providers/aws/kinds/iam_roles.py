"""IAM roles, identified by name. Managed policies are detached and inline policies deleted first, each in a step of its
own; a role in an instance profile is blocked. Roles that are linked to a service, or reserved, are refused."""

from typing import Final, NamedTuple

from service.contract import Blocked, Verdict
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

NAME: Final = "aws.iam-role"
DELETE: Final = "iam.DeleteRole"
DELETE_INLINE: Final = "iam.DeleteRolePolicy"

_ATTACHED: Final = "iam.ListAttachedRolePolicies"
_INLINE: Final = "iam.ListRolePolicies"
_PROFILES: Final = "iam.ListInstanceProfilesForRole"


class RoleFacts(NamedTuple):
    """`id` tells it from other roles of the name."""

    id: str
    path: str


async def _read(client: AwsClient, name: str) -> AwsResource:
    answer = await client.call("iam", "get_role", RoleName=name)
    found = require_same(answer.get("Role"), "RoleName", name, "iam:GetRole")
    return AwsResource(
        kind=NAME,
        id=name,
        tags=tags_of(found),
        made=found.get("CreateDate"),
        facts=RoleFacts(found["RoleId"], found["Path"]),
    )


async def _obstacle(attempt: AwsAttempt) -> Verdict | None:
    """What nothing is changed before."""
    if (refused := reserved(attempt, attempt.resource.facts.path)) is not None:
        return refused
    name = attempt.resource.id
    profiles = await iam_list(attempt.client, "list_instance_profiles_for_role", "InstanceProfiles", RoleName=name)
    if not profiles:
        return None
    names = some_of([one["InstanceProfileName"] for one in profiles])
    return Blocked(f"role {name} is in instance profile {names}: remove it from there, or delete that first")


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    if (obstacle := await _obstacle(attempt)) is not None:
        return obstacle
    if attached := await _attached(attempt):
        return attempt.move_to(DETACH_FROM_ROLE, f"policies are detached first: {some_of(attached)}")
    if inline := await _inline(attempt):
        return attempt.move_to(DELETE_INLINE, f"inline policies are deleted first: {some_of(inline)}")
    return None


async def _attached(attempt: AwsAttempt) -> list[str]:
    found = await iam_list(
        attempt.client, "list_attached_role_policies", "AttachedPolicies", RoleName=attempt.resource.id
    )
    return [one["PolicyArn"] for one in found]


async def _inline(attempt: AwsAttempt) -> list[str]:
    return await iam_list(attempt.client, "list_role_policies", "PolicyNames", RoleName=attempt.resource.id)


async def _detach(attempt: AwsAttempt) -> Verdict:
    if (obstacle := await _obstacle(attempt)) is not None:
        return obstacle
    attached = await _attached(attempt)
    if not attached:
        return attempt.move_to(DELETE, "no managed policy is attached")
    attempt = await attempt.refreshed()
    await attempt.clear()
    await unless_gone(
        attempt.client.call("iam", "detach_role_policy", RoleName=attempt.resource.id, PolicyArn=attached[0])
    )
    return attempt.move_to(DETACH_FROM_ROLE if attached[1:] else DELETE, f"detached policy {attached[0]}")


async def _delete_inline(attempt: AwsAttempt) -> Verdict:
    if (obstacle := await _obstacle(attempt)) is not None:
        return obstacle
    inline = await _inline(attempt)
    if not inline:
        return attempt.move_to(DELETE, "it has no inline policy")
    attempt = await attempt.refreshed()
    await attempt.clear()
    await unless_gone(
        attempt.client.call("iam", "delete_role_policy", RoleName=attempt.resource.id, PolicyName=inline[0])
    )
    return attempt.move_to(DELETE_INLINE if inline[1:] else DELETE, f"deleted inline policy {inline[0]}")


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("iam", "delete_role", RoleName=attempt.resource.id)


IAM_ROLE = AwsKind(
    name=NAME,
    service="iam",
    delete_operation=DELETE,
    check_operation="iam.GetRole",
    arn=("iam", "role"),
    id_pattern=r".+",
    read=read_each(_read),
    read_operations=("iam.GetRole",),
    in_vpc=False,
    in_tagging_api=False,
    incarnation=lambda resource: resource.facts.id,
    tag_calls=TagCalls(
        add="tag_role", remove="untag_role", ids="RoleName", max_ids=1, one_id=True,
        added=lambda key, value: {"Tags": [{"Key": key, "Value": value}]},
        removed=lambda key, _value: {"TagKeys": [key]},
    ),
    lookup_operations=(_PROFILES, _ATTACHED, _INLINE),
    precheck=_precheck,
    delete=_delete,
    steps={
        DETACH_FROM_ROLE: KindStep(run=_detach, read_operations=(_PROFILES, _ATTACHED)),
        DELETE_INLINE: KindStep(run=_delete_inline, read_operations=(_PROFILES, _INLINE)),
    },
)  # fmt: skip
