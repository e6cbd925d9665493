"""AssumeRole with trust policies: the role must trust the caller and the external id must match.
moto issues keys for any role; here issued keys are remembered with their account and expiry."""

import re

from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import WEB_IDENTITY, AwsCall
from standins.aws.moto_backends import role_of_key
from standins.aws.responses import IN_JSON, AwsResponse, failed
from standins.clock import Clock

_KEY = re.compile(rb"<AccessKeyId>([^<]+)</AccessKeyId>")
_ASSUMING = ("AssumeRole", WEB_IDENTITY)


class RoleChecks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By access key: the account, and the expiry.
        self.accounts: dict[str, str] = {}
        self._until: dict[str, float] = {}

    def refused(self, call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse | None:
        if call.service != "sts" or call.action not in _ASSUMING or not behaviour.roles:
            return None
        arn = call.text("RoleArn")
        role = behaviour.roles.get(arn)
        caller = WEB_IDENTITY if call.action == WEB_IDENTITY else role_of_key(call)
        trusted = role is not None and (not role.principals or {call.account, caller} & set(role.principals))
        if role is not None and trusted and role.external_id in ("", call.text("ExternalId")):
            return None
        who = caller or f"arn:{call.partition}:iam::{call.account}:user/knell"
        message = f"User: {who} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        return failed(call, "AccessDenied", message, 403)

    def expired(self, call: AwsCall) -> AwsResponse | None:
        until = self._until.get(call.key)
        if until is None or self._clock.now() < until:
            return None
        message = "The security token included in the request is expired"
        if call.service == "ec2":
            return failed(call, "RequestExpired", message)
        if call.service in IN_JSON:
            return failed(call, "ExpiredTokenException", message)
        return failed(call, "ExpiredToken", message, 403)

    def issued(self, call: AwsCall, answer: AwsResponse) -> AwsResponse:
        key = _KEY.search(answer.body)
        if answer.status == 200 and key is not None:
            name = key.group(1).decode()
            self.accounts[name] = call.text("RoleArn").split(":")[4]
            self._until[name] = self._clock.now() + (call.number("DurationSeconds") or 3600)
        return answer
