"""Deletion protection of log groups, which moto lacks. It is on for all of them or for none, and off once it was
switched off."""

import msgspec

from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import AwsCall
from standins.aws.moto_backends import backend_of
from standins.aws.responses import AwsResponse, failed, succeeded_in_json


def delete(call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse | None:
    """None leaves the request to moto."""
    name = call.text("logGroupName")
    if _is_protected(call, name, behaviour):
        message = f"Log group {name} can not be deleted because deletion protection is enabled."
        return failed(call, "ValidationException", message)
    return None


def switch(call: AwsCall) -> AwsResponse:
    group = backend_of(call, "logs").groups.get(call.text("logGroupIdentifier"))
    if group is None:
        return failed(call, "ResourceNotFoundException", "The specified log group does not exist.")
    group.protection = bool(call.params.get("deletionProtectionEnabled"))
    return succeeded_in_json({})


def described(call: AwsCall, answer: AwsResponse, behaviour: AwsBehaviour) -> AwsResponse:
    """Called with moto's response."""
    if answer.status != 200:
        return answer
    document = msgspec.json.decode(answer.body)
    for one in document["logGroups"]:
        one["deletionProtectionEnabled"] = _is_protected(call, one["logGroupName"], behaviour)
    return AwsResponse(200, msgspec.json.encode(document), answer.headers)


def _is_protected(call: AwsCall, name: str, behaviour: AwsBehaviour) -> bool:
    group = backend_of(call, "logs").groups.get(name)
    return group is not None and bool(getattr(group, "protection", behaviour.protected_log_groups))
