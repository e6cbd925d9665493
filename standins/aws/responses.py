"""AWS responses in wire format: XML results of EC2 and ELB, and errors in the format of each service."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from xml.sax.saxutils import escape

import msgspec

from standins.aws.calls import AwsCall

_XML: Final = "text/xml;charset=UTF-8"
_JSON: Final = "application/x-amz-json-1.1"
_SPACES: Final = {
    "ec2": "http://ec2.amazonaws.com/doc/2016-11-15/",
    "elb": "http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/",
    "elbv2": "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
    "iam": "https://iam.amazonaws.com/doc/2010-05-08/",
    "rds": "http://rds.amazonaws.com/doc/2014-10-31/",
    "sts": "https://sts.amazonaws.com/doc/2011-06-15/",
}
# Error codes and statuses of each service for a denied call and for a throttled one.
_DENIED: Final = {
    "ec2": ("UnauthorizedOperation", 403),
    "elb": ("AccessDenied", 403),
    "elbv2": ("AccessDenied", 403),
    "sts": ("AccessDenied", 403),
    "tagging": ("AccessDeniedException", 400),
    "eks": ("AccessDeniedException", 403),
    "cloudcontrol": ("AccessDeniedException", 400),
    "ecr": ("AccessDeniedException", 400),
    "kms": ("AccessDeniedException", 400),
    "logs": ("AccessDeniedException", 400),
    "secretsmanager": ("AccessDeniedException", 400),
}
_THROTTLED: Final = {
    "ec2": ("RequestLimitExceeded", 503, "Request limit exceeded."),
    "elb": ("Throttling", 400, "Rate exceeded"),
    "elbv2": ("Throttling", 400, "Rate exceeded"),
    "sts": ("Throttling", 400, "Rate exceeded"),
    "tagging": ("ThrottledException", 400, "Rate exceeded"),
    "eks": ("ThrottlingException", 429, "Rate exceeded"),
    "cloudcontrol": ("ThrottlingException", 400, "Rate exceeded"),
    "s3": ("SlowDown", 503, "Please reduce your request rate."),
    "ecr": ("ThrottlingException", 400, "Rate exceeded"),
    "kms": ("ThrottlingException", 400, "Rate exceeded"),
    "logs": ("ThrottlingException", 400, "Rate exceeded"),
    "secretsmanager": ("ThrottlingException", 400, "Rate exceeded"),
}
IN_JSON: Final = ("tagging", "eks", "cloudcontrol", "ecr", "kms", "logs", "secretsmanager")
"""Services whose errors are JSON."""
_IAM: Final = {
    "elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing", "tagging": "tag", "cloudcontrol": "cloudformation",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AwsResponse:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = ""


def failed(call: AwsCall, code: str, message: str, status: int = 400) -> AwsResponse:
    request = str(uuid.uuid4())
    if call.service in IN_JSON:
        body = msgspec.json.encode({"__type": code, "message": message})
        return AwsResponse(
            status, body, {"Content-Type": _JSON, "x-amzn-ErrorType": code, "x-amzn-RequestId": request}, code
        )
    error = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    if call.service == "s3":
        text = f"<Error>{error}<RequestId>{request}</RequestId></Error>"
    elif call.service == "ec2":
        text = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request}</RequestID></Response>"
    else:
        side = "Sender" if status < 500 else "Receiver"
        space = f' xmlns="{_SPACES[call.service]}"' if call.service in _SPACES else ""
        text = (
            f"<ErrorResponse{space}><Error><Type>{side}</Type>{error}</Error>"
            f"<RequestId>{request}</RequestId></ErrorResponse>"
        )
    headers = {"Content-Type": _XML, "x-amz-request-id": request} if call.service == "s3" else {"Content-Type": _XML}
    return AwsResponse(status, text.encode(), headers, code)


def denied(call: AwsCall) -> AwsResponse:
    code, status = _DENIED.get(call.service, ("AccessDenied", 403))
    message = denied_message(call, f"{_IAM.get(call.service, call.service)}:{call.action}")
    if call.service == "ec2":
        blob = "4c9QxYzEncodedAuthorizationMessage" * 8
        message = (
            f"You are not authorized to perform this operation. {message}. Encoded authorization failure message: "
        )
        message += blob
    return failed(call, code, message, status)


def denied_message(call: AwsCall, action: str) -> str:
    who = f"arn:{call.partition}:iam::{call.account}:user/knell"
    return f"User: {who} is not authorized to perform: {action} because no identity-based policy allows it"


def throttled(call: AwsCall) -> AwsResponse:
    code, status, message = _THROTTLED.get(call.service, ("Throttling", 400, "Rate exceeded"))
    return failed(call, code, message, status)


def proxy_page(status: int) -> AwsResponse:
    # The SDK recognises a page that begins with <html>; most pages do not.
    body = b"<!DOCTYPE html>\n<html><head><title>Server Error</title></head><body><h1>Something went wrong<br></body>"
    return AwsResponse(status, body, {"Content-Type": "text/html"}, "html")


def succeeded(call: AwsCall, result: Mapping[str, Any] | None = None) -> AwsResponse:
    """`result` as the SDK returns it; list members are named as in the protocol of the service."""
    request = str(uuid.uuid4())
    name = f"{call.action}Response"
    if call.service == "ec2":
        inner = xml(result, "item") if result is not None else "<return>true</return>"
        text = f"<requestId>{request}</requestId>{inner}"
    else:
        inner = xml(result or {}, "member")
        text = f"<{call.action}Result>{inner}</{call.action}Result>"
        text += f"<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata>"
    body = f'<{name} xmlns="{_SPACES[call.service]}">{text}</{name}>'
    return AwsResponse(200, body.encode(), {"Content-Type": _XML})


def succeeded_in_json(result: Mapping[str, Any]) -> AwsResponse:
    return AwsResponse(200, msgspec.json.encode(result), {"Content-Type": _JSON, "x-amzn-RequestId": str(uuid.uuid4())})


def xml(value: Any, member: str) -> str:
    if isinstance(value, Mapping):
        parts = ((key, one) for key, one in value.items() if one is not None)
        return "".join(f"<{key}>{xml(one, member)}</{key}>" for key, one in parts)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(f"<{member}>{xml(one, member)}</{member}>" for one in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(str(value))
