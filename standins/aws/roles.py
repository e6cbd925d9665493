"""AssumeRole as AWS judges it: a role that trusts the caller, with the external id that it wants.
moto hands out any role to anybody; keys that it issued are remembered with the account they are of."""

import re

from standins.aws.answers import Answer, failed
from standins.aws.behaviour import Behaviour
from standins.aws.calls import WEB_IDENTITY, Call
from standins.aws.moto_side import role_of_key
from standins.clock import Clock

_KEY = re.compile(rb"<AccessKeyId>([^<]+)</AccessKeyId>")
_ASSUMING = ("AssumeRole", WEB_IDENTITY)


class Roles:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By access key: the account, and when it ends.
        self.accounts: dict[str, str] = {}
        self._until: dict[str, float] = {}

    def refused(self, call: Call, behaviour: Behaviour) -> Answer | None:
        if call.service != "sts" or call.action not in _ASSUMING or not behaviour.roles:
            return None
        arn = call.text("RoleArn")
        role = behaviour.roles.get(arn)
        caller = WEB_IDENTITY if call.action == WEB_IDENTITY else role_of_key(call)
        trusted = role is not None and (not role.principals or {call.account, caller} & set(role.principals))
        if role is not None and trusted and role.external_id in ("", call.text("ExternalId")):
            return None
        who = caller or f"arn:{call.partition}:iam::{call.account}:user/knell"
        words = f"User: {who} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        return failed(call, "AccessDenied", words, 403)

    def expired(self, call: Call) -> Answer | None:
        until = self._until.get(call.key)
        if until is None or self._clock.now() < until:
            return None
        words = "The security token included in the request is expired"
        if call.service == "ec2":
            return failed(call, "RequestExpired", words)
        if call.service in ("tagging", "eks"):
            return failed(call, "ExpiredTokenException", words)
        return failed(call, "ExpiredToken", words, 403)

    def issued(self, call: Call, answer: Answer) -> Answer:
        key = _KEY.search(answer.body)
        if answer.status == 200 and key is not None:
            name = key.group(1).decode()
            self.accounts[name] = call.text("RoleArn").split(":")[4]
            self._until[name] = self._clock.now() + (call.number("DurationSeconds") or 3600)
        return answer
