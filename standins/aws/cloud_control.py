"""Cloud Control of the AWS stand-in, on top of moto's resources: reads, and deletions as requests of their own that
take time. A resource exists until its request ends, and the handler of its type decides how that ends."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, Final

import msgspec

from standins.aws.behaviour import AwsBehaviour, AwsFault
from standins.aws.calls import AwsCall
from standins.aws.cloud_control_types import TYPES, UNSUPPORTED, CloudControlType, HandlerFailed
from standins.aws.journal import AwsJournal
from standins.aws.responses import AwsResponse, denied_message, failed, succeeded_in_json
from standins.clock import Clock

CLIENT_TOKEN_LIVES: Final = 36 * 3600.0
REQUEST_LIVES: Final = 7 * 24 * 3600.0
_RUNNING: Final = ("PENDING", "IN_PROGRESS")
_PAGE: Final = 20

FindFaults = Callable[[AwsCall], list[AwsFault]]


@dataclass(slots=True)
class ResourceRequest:
    """A request to delete a resource. `begins` and `ends` are times of the clock."""

    call: AwsCall
    type: str
    identifier: str
    token: str
    client_token: str
    begins: float
    ends: float
    status: str = "PENDING"
    code: str = ""
    message: str = ""

    def shown(self, clock: Clock, retry_after: float) -> dict[str, Any]:
        running = self.status in _RUNNING
        event = {
            "TypeName": self.type, "Identifier": self.identifier, "RequestToken": self.token, "Operation": "DELETE",
            "OperationStatus": self.status, "EventTime": clock.real(self.begins if running else self.ends),
        }  # fmt: skip
        if self.code:
            event |= {"ErrorCode": self.code, "StatusMessage": self.message}
        if running and retry_after > 0:
            event["RetryAfter"] = clock.real(clock.now() + retry_after)
        return event


class CloudControl:
    """`faults` finds those of a call. A handler is asked as cloudcontrol.Handler: `error` fails it with the `code` of a
    handler, `deny` and `throttle` with theirs."""

    def __init__(self, clock: Clock, journal: AwsJournal, faults: FindFaults) -> None:
        self._clock, self._journal, self._faults = clock, journal, faults
        # By account and region, in the order of their arrival.
        self._requests: dict[tuple[str, str], dict[str, ResourceRequest]] = {}

    # ---- resources

    def get_resource(self, call: AwsCall) -> AwsResponse:
        type_ = self._type(call)
        if isinstance(type_, AwsResponse):
            return type_
        identifier = call.text("Identifier")
        found = type_.find(call, identifier)
        if found is None:
            return _not_found(call)
        shown = msgspec.json.encode(type_.properties(call, identifier, found)).decode()
        description = {"Identifier": identifier, "Properties": shown}
        return succeeded_in_json({"TypeName": call.text("TypeName"), "ResourceDescription": description})

    def delete_resource(self, call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse:
        type_ = self._type(call)
        if isinstance(type_, AwsResponse):
            return type_
        type_name, identifier, client_token = (call.text(name) for name in ("TypeName", "Identifier", "ClientToken"))
        known = self._known(call)
        if client_token and (before := self._with_client_token(call, client_token)) is not None:
            if behaviour.cloud_control_token_conflicts or (before.type, before.identifier) != (type_name, identifier):
                said = f"ClientToken was used by another resource request, RequestToken: {before.token}"
                return failed(call, "ClientTokenConflictException", said)
            return self._progress(before, behaviour)
        for other in known.values():
            if other.status in _RUNNING and (other.type, other.identifier) == (type_name, identifier):
                said = f"{type_name}|{identifier}: another operation is in progress, RequestToken: {other.token}"
                return failed(call, "ConcurrentOperationException", said)
        if not behaviour.cloud_control_accepts_missing and type_.find(call, identifier) is None:
            return _not_found(call)
        begins = self._clock.now()
        takes = behaviour.cloud_control_times.get(type_name, behaviour.cloud_control_takes)
        made = ResourceRequest(
            call, type_name, identifier, str(uuid.uuid4()), client_token, begins, begins + takes
        )  # fmt: skip
        known[made.token] = made
        self._clock.after(takes / 4, lambda _at: _start(made))
        self._clock.after(takes, lambda _at: self._finish(made))
        return self._progress(made, behaviour)

    def _type(self, call: AwsCall) -> CloudControlType | AwsResponse:
        name = call.text("TypeName")
        if name in UNSUPPORTED:
            return failed(call, "UnsupportedActionException", f"Resource type {name} does not support {call.action}")
        found = TYPES.get(name)
        return found or failed(call, "TypeNotFoundException", f"The type '{name}' cannot be found.")

    # ---- requests

    def status(self, call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse:
        found = self._known(call).get(call.text("RequestToken"))
        return self._progress(found, behaviour) if found is not None else _no_request(call)

    def cancel(self, call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse:
        found = self._known(call).get(call.text("RequestToken"))
        if found is None:
            return _no_request(call)
        if found.status not in _RUNNING:
            return failed(call, "ConcurrentModificationException", f"The request is {found.status} already.")
        found.status = "CANCEL_COMPLETE"
        return self._progress(found, behaviour)

    def requests(self, call: AwsCall) -> AwsResponse:
        """Newest first, in pages."""
        wanted = call.params.get("ResourceRequestStatusFilter") or {}
        operations, statuses = wanted.get("Operations") or ["DELETE"], wanted.get("OperationStatuses")
        found = [
            one.shown(self._clock, 0)
            for one in reversed(self._known(call).values())
            if "DELETE" in operations and (not statuses or one.status in statuses)
        ]
        first, size = call.number("NextToken") or 0, call.number("MaxResults") or _PAGE
        rest = {"NextToken": str(first + size)} if len(found) > first + size else {}
        return succeeded_in_json({"ResourceRequestStatusSummaries": found[first : first + size], **rest})

    def _known(self, call: AwsCall) -> dict[str, ResourceRequest]:
        """Those of the account and region that have not expired."""
        held, now = self._requests.setdefault((call.account, call.region), {}), self._clock.now()
        for token in [token for token, one in held.items() if one.begins + REQUEST_LIVES < now]:
            del held[token]
        return held

    def _with_client_token(self, call: AwsCall, client_token: str) -> ResourceRequest | None:
        since = self._clock.now() - CLIENT_TOKEN_LIVES
        mine = (one for one in self._known(call).values() if one.client_token == client_token and one.begins > since)
        return next(mine, None)

    def _progress(self, one: ResourceRequest, behaviour: AwsBehaviour) -> AwsResponse:
        return succeeded_in_json({"ProgressEvent": one.shown(self._clock, behaviour.cloud_control_retry_after)})

    def _finish(self, one: ResourceRequest) -> None:
        if one.status not in _RUNNING:
            return
        one.ends = self._clock.now()
        try:
            self._fail(one)
            TYPES[one.type].run_delete(one.call, one.identifier)
        except HandlerFailed as error:
            one.status, one.code, one.message = "FAILED", error.code, error.message
        else:
            one.status = "SUCCESS"
        self._journal.ended((one.type, one.identifier), one.code, one.ends, self._clock.real(one.ends))

    def _fail(self, one: ResourceRequest) -> None:
        """Raises HandlerFailed if a fault says so."""
        asked = changed(one.call, action="Handler")
        for fault in self._faults(asked):
            match fault.what:
                case "throttle":
                    raise HandlerFailed("Throttling", "Rate exceeded (Service: Knell, Status Code: 400)")
                case "deny":
                    raise HandlerFailed("AccessDenied", denied_message(asked, fault.code or "service:Delete"))
                case "error":
                    raise HandlerFailed(fault.code, fault.message)


def _start(one: ResourceRequest) -> None:
    if one.status == "PENDING":
        one.status = "IN_PROGRESS"


def _not_found(call: AwsCall) -> AwsResponse:
    said = f"Resource of type '{call.text('TypeName')}' with identifier '{call.text('Identifier')}' was not found."
    return failed(call, "ResourceNotFoundException", said)


def _no_request(call: AwsCall) -> AwsResponse:
    return failed(
        call, "RequestTokenNotFoundException", f"Request with token {call.text('RequestToken')} was not found"
    )
