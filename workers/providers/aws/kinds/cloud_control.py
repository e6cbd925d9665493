"""Resources of any type that Cloud Control supports, removed by type and identifier. AWS carries out a deletion as a
request of its own, which is followed until it ends: its end is no proof, only GetResource proves absence. No such
resource is found by tags, so a target names it."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from service.contract import Blocked, Pending, Refused, Throttled, Verdict
from workers.providers.aws.cloud_control_ids import NOTES, split_cloud_control_id
from workers.providers.aws.errors import AwsError, denied_action, sanitize
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, KindStep
from workers.providers.aws.reading.cloud_control import NAME, PROFILE_TAGS, read_resources
from workers.removal import Accepted

READ: Final = "cloudcontrol.GetResource"
DELETE: Final = "cloudcontrol.DeleteResource"
FOLLOW: Final = "cloudcontrol.GetResourceRequestStatus"
DELETE_ACTION: Final = "cloudformation:DeleteResource"

CHECKS_BEFORE_GROWTH: Final = 2
LONGEST_CHECK: Final = timedelta(minutes=5)
"""Requests take seconds to hours: the delay between two checks of one doubles after so many, up to this."""

LONGEST_RETRY_AFTER: Final = timedelta(hours=1)
"""At most so far is AWS's own time for the next check believed: it is compared with the clock of this machine."""

FIRST_REPEAT: Final = timedelta(seconds=5)
LONGEST_REPEAT: Final = timedelta(minutes=5)
"""Delay before a new request after one that failed because of something else; it doubles with each request."""

_DEPENDENCY: Final = re.compile(
    r"DeleteConflict|depend|in use|InUse|being used|attached|detach|not empty|Status Code: 409", re.IGNORECASE
)
_PROTECTION: Final = re.compile(r"protect", re.IGNORECASE)


class ProgressEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """A request as Cloud Control describes it."""

    request_token: str
    operation_status: str
    operation: str = "DELETE"
    error_code: str = ""
    status_message: str = ""
    retry_after: datetime | None = None

    @property
    def words(self) -> str:
        return sanitize(f"{self.error_code}: {self.status_message}".strip(": "))


def client_token(job: str, deletes: int) -> str:
    """The token of a DeleteResource: the same for a call that is repeated after a crash, another one once a request of
    the job was recorded."""
    return f"knell-{hashlib.sha256(f'{job} {deletes}'.encode()).hexdigest()}"


def parse_event(answer: Mapping[str, Any], action: str) -> ProgressEvent:
    """Raises AwsError."""
    try:
        event = msgspec.convert(answer.get("ProgressEvent"), ProgressEvent)
    except msgspec.ValidationError:
        event = None
    if event is None or not event.request_token:
        raise AwsError("unreadable", action, "NoProgressEvent", "the answer does not describe the request")
    return event


def check_delay(first: timedelta, checks: int) -> timedelta:
    """When to check a request again after so many checks."""
    factor: int = 2 ** min(10, checks // CHECKS_BEFORE_GROWTH)
    return min(max(first, LONGEST_CHECK), first * factor)


def repeat_delay(requests: int) -> timedelta:
    """How long a job waits after so many requests that failed because of something else."""
    factor: int = 2 ** min(10, max(0, requests - 1))
    return min(LONGEST_REPEAT, FIRST_REPEAT * factor)


async def _delete(attempt: AwsAttempt) -> Accepted | Verdict:
    id_ = split_cloud_control_id(attempt.resource.id)
    token = client_token(attempt.job.id, attempt.progress.deletes)
    try:
        answer = await attempt.client.call(
            "cloudcontrol", "delete_resource", TypeName=id_.type, Identifier=id_.identifier, ClientToken=token
        )
    except AwsError as error:
        if error.running:
            # That of an attempt whose answer was lost, or of another client.
            first = check_delay(attempt.settings.check_after, 0)
            return Accepted(f"a request is under way: {error.code}", first, FOLLOW, error.running)
        if error.code == "ConcurrentOperationException":
            return Blocked(f"another request is under way: {error.message}")
        if error.code == "ClientTokenConflictException":
            # The next delete gets another one.
            return Accepted(f"its request was made before: {error.message}")
        raise
    event, note = parse_event(answer, DELETE_ACTION), NOTES.get(id_.type)
    words = f"its deletion was requested ({note})" if note else "its deletion was requested"
    return Accepted(words, _next_check(attempt, event, 0), FOLLOW, event.request_token)


# ---- the request


async def _follow(attempt: AwsAttempt) -> Verdict:
    token = attempt.resume
    if not token:
        return _read_again(attempt, "its request is not known")
    try:
        answer = await attempt.client.call("cloudcontrol", "get_resource_request_status", RequestToken=token)
    except AwsError as error:
        if error.what == "gone":
            return _read_again(attempt, "AWS does not know its request any more")
        raise
    event = parse_event(answer, "cloudformation:GetResourceRequestStatus")
    match event.operation_status:
        case "PENDING" | "IN_PROGRESS" | "CANCEL_IN_PROGRESS":
            progress = attempt.progress._replace(checks=attempt.progress.checks + 1)
            after = _next_check(attempt, event, progress.checks)
            words = f"AWS carries out its {_operation(event)} ({event.operation_status})"
            return Pending(after, words, lane=attempt.lane(FOLLOW), resume=str(progress))
        case "SUCCESS":
            return _read_again(attempt, f"AWS has carried out its {_operation(event)}")
        case "FAILED" | "CANCEL_COMPLETE" if event.operation != "DELETE":
            return _read_again(attempt, f"the {_operation(event)} that was under way has ended: {event.words}")
        case "FAILED" if event.error_code == "NotFound":
            return _read_again(attempt, f"said to be gone: {event.words}")
        case "FAILED" | "CANCEL_COMPLETE" if attempt.job.record.verdict != "check":
            # It was reported by the last attempt, which the job has waited for.
            return attempt.move_to(
                DELETE, f"its deletion is requested again, after {event.words or 'it was cancelled'}"
            )
        case "FAILED":
            return _failed(attempt, event)
        case "CANCEL_COMPLETE":
            why = "the request to delete it was cancelled; it is requested again unless its job is abandoned"
            return Blocked(why, until=LONGEST_REPEAT, person=True)
        case other:
            raise AwsError("other", DELETE_ACTION, "UnknownStatus", f"its request has the unknown status {other[:50]}")


def _failed(attempt: AwsAttempt, event: ProgressEvent) -> Verdict:
    """Ends the attempt. The next one finds the same failure, and requests the deletion again."""
    after, said = repeat_delay(attempt.progress.deletes), event.status_message
    match event.error_code:
        case "Throttling":
            # By the service behind Cloud Control, whose limit is not the one that the lane draws on.
            return Throttled(after, event.words, unasked=True)
        case "AccessDenied" | "UnauthorizedTaggingOperation":
            return Refused(f"{denied_action(said, DELETE_ACTION)} is denied to its handler ({event.words})")
        case "NotUpdatable":
            return Refused(f"it is protected: {event.words}")
        case "ResourceConflict" | "NotStabilized":
            return Blocked(event.words, until=after)
        case "GeneralServiceException" | "InvalidRequest" if _PROTECTION.search(said):
            return Refused(f"it is protected: {event.words}")
        case "GeneralServiceException" | "InvalidRequest" if _DEPENDENCY.search(said):
            return Blocked(event.words, until=after)
        case code:
            raise AwsError("other", DELETE_ACTION, code or "Failed", sanitize(said))


def _read_again(attempt: AwsAttempt, detail: str) -> Pending:
    """To the lane where its absence is proven."""
    progress = attempt.progress._replace(checks=0, state="")
    return Pending(attempt.settings.check_after, detail, lane=attempt.lane(READ), resume=str(progress))


def _next_check(attempt: AwsAttempt, event: ProgressEvent, checks: int) -> timedelta:
    after = check_delay(attempt.settings.check_after, checks)
    if event.retry_after is None:
        return after
    named = event.retry_after if event.retry_after.tzinfo else event.retry_after.replace(tzinfo=UTC)
    return max(after, min(LONGEST_RETRY_AFTER, named - datetime.now(UTC)))


def _operation(event: ProgressEvent) -> str:
    return "deletion" if event.operation == "DELETE" else event.operation.lower()[:20]


CLOUD_CONTROL = AwsKind(
    name=NAME,
    service="cloudcontrol",
    delete_operation=DELETE,
    check_operation=READ,
    # ARNs do not tell it: it has resources of any type.
    arn=("", ""),
    id_pattern="(?!)",
    read=read_resources,
    read_operations=(READ,),
    rare_operations=(PROFILE_TAGS,),
    in_vpc=False,
    in_tagging_api=False,
    tagged_by_arn=True,
    delete=_delete,
    dependency_codes=frozenset({"NotStabilizedException", "ResourceConflictException"}),
    # Of instances, which are shown for a while.
    deleting_states=frozenset({"shutting-down"}),
    absent_states=frozenset({"terminated"}),
    steps={FOLLOW: KindStep(run=_follow, checks_ownership=False)},
)
