"""Checks of IAM and KMS beyond moto's: policies that are attached, are a boundary or have versions; keys that are
scheduled for deletion already."""

from typing import Any

import msgspec

from standins.aws.calls import AwsCall
from standins.aws.moto_backends import backend_of
from standins.aws.responses import AwsResponse, failed, xml


def policy_in_use(call: AwsCall) -> AwsResponse | None:
    """For DeletePolicy."""
    iam, arn = backend_of(call, "iam"), call.text("PolicyArn")
    one = iam.managed_policies.get(arn)
    if one is None:
        return None
    if one.attachment_count or any(_bounded(iam, arn).values()):
        return failed(call, "DeleteConflict", "Cannot delete a policy attached to entities.", 409)
    if len(one.versions) > 1:
        message = "This policy has more than one version. Before you delete a policy, you must delete its versions."
        return failed(call, "DeleteConflict", message, 409)
    return None


def bounded_entities(call: AwsCall) -> AwsResponse | None:
    """ListEntitiesForPolicy for boundaries; moto knows no PolicyUsageFilter. None leaves the request to moto."""
    iam, arn = backend_of(call, "iam"), call.text("PolicyArn")
    if call.text("PolicyUsageFilter") != "PermissionsBoundary" or arn not in iam.managed_policies:
        return None
    inner = "".join(f"<{key}>{xml(names, 'member')}</{key}>" for key, names in _bounded(iam, arn).items())
    body = (
        f'<ListEntitiesForPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><ListEntitiesForPolicyResult>'
        f"{inner}<IsTruncated>false</IsTruncated></ListEntitiesForPolicyResult><ResponseMetadata><RequestId>0"
        f"</RequestId></ResponseMetadata></ListEntitiesForPolicyResponse>"
    )
    return AwsResponse(200, body.encode(), {"Content-Type": "text/xml"})


def key_scheduled(call: AwsCall) -> AwsResponse | None:
    """For ScheduleKeyDeletion."""
    one = backend_of(call, "kms").keys.get(call.text("KeyId"))
    if one is None:
        return None
    if one.key_state == "PendingDeletion":
        return failed(call, "KMSInvalidStateException", f"{one.arn} is pending deletion.")
    if not 7 <= int(call.params.get("PendingWindowInDays", 30)) <= 30:
        return failed(call, "ValidationException", "PendingWindowInDays must be between 7 and 30.")
    return None


def key_described(call: AwsCall, answer: AwsResponse) -> AwsResponse:
    """Called with moto's response: the key that it makes for the alias of a service is managed by AWS."""
    if answer.status != 200 or not call.text("KeyId").startswith("alias/aws/"):
        return answer
    document = msgspec.json.decode(answer.body)
    backend_of(call, "kms").keys[document["KeyMetadata"]["KeyId"]].key_manager = "AWS"
    document["KeyMetadata"]["KeyManager"] = "AWS"
    return AwsResponse(200, msgspec.json.encode(document), answer.headers)


def _bounded(iam: Any, arn: str) -> dict[str, list[dict[str, str]]]:
    roles = [{"RoleName": one.name, "RoleId": one.id} for one in iam.roles.values() if _boundary(one) == arn]
    users = [{"UserName": one.name, "UserId": one.id} for one in iam.users.values() if _boundary(one) == arn]
    return {"PolicyRoles": roles, "PolicyUsers": users, "PolicyGroups": []}


def _boundary(entity: Any) -> str:
    """moto has none of users."""
    return str(getattr(entity, "permissions_boundary_arn", None) or "")
