"""Translation of errors of botocore and aiohttp into AwsError and NoAccess. Every SDK error passes through here once;
no other module looks at the SDK's error codes."""

import re
from collections.abc import Mapping
from datetime import timedelta
from traceback import walk_tb
from typing import Any, Final, Literal

from service.masking import MASK, mask_text
from workers.handlers.response_size import UnreadableResponse

ErrorCategory = Literal[
    "gone", "depends", "protected", "throttled", "denied", "unreadable", "unreachable", "unsupported", "other"
]


class AwsError(Exception):
    """An AWS call that failed. `action` is the IAM action as a policy names it (ec2:DeleteSecurityGroup): that of the
    call, or the one that a denial names. `code` is AWS's own. The message is safe to show: no credentials, no signed
    URLs. `after` says when to retry, if known; only throttled calls have it. `running` is the token of the request that
    is in the way, where Cloud Control names it: in the message it may be masked."""

    def __init__(
        self, what: ErrorCategory, action: str, code: str, message: str, *, after: timedelta | None = None,
        running: str = "",
    ) -> None:  # fmt: skip
        super().__init__(f"{action}: {code}: {message}" if message else f"{action}: {code}")
        self.what, self.action, self.code, self.message, self.after = what, action, code, message, after
        self.running = running


class PartlyRead(AwsError):
    """Some of several resources could not be read. For callers that need them all it is the first of these errors;
    `found` are those that were read and exist, `errors` the others, by id."""

    def __init__(self, found: Mapping[str, Any], errors: Mapping[str, AwsError]) -> None:
        first = next(iter(errors.values()))
        super().__init__(first.what, first.action, first.code, first.message, after=first.after)
        self.found, self.errors = found, errors


class NoAccess(Exception):
    """The identity can't be used, or not now; with `again` the cause may pass by itself."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


_GONE: Final = frozenset({
    "DBClusterNotFoundFault", "DBClusterSnapshotNotFoundFault", "DBInstanceNotFound", "DBSnapshotNotFound",
    "ListenerNotFound", "LoadBalancerNotFound", "NatGatewayNotFound", "NoSuchBucket", "NoSuchEntity", "NoSuchUpload",
    "NotFoundException", "RepositoryNotFoundException", "RequestTokenNotFoundException", "ResourceNotFoundException",
    "RuleNotFound", "TargetGroupNotFound",
})  # fmt: skip
_INVALID_ID: Final = re.compile(r"Invalid\w+\.NotFound")
_DEPENDS: Final = frozenset({
    "BucketNotEmpty", "ConcurrentModification", "DeleteConflict", "DependencyViolation",
    "EntityTemporarilyUnmodifiable", "InvalidDBClusterStateFault", "InvalidDBInstanceState",
    "InvalidGlobalClusterStateFault", "InvalidGroup.InUse", "InvalidIPAddress.InUse", "InvalidNetworkInterface.InUse",
    "InvalidSnapshot.InUse", "KMSInvalidStateException", "OperationAborted", "OperationAbortedException",
    "RepositoryNotEmptyException", "ResourceInUse", "ResourceInUseException", "VolumeInUse",
})  # fmt: skip
_PROTECTED: Final = frozenset({"OperationNotPermitted", "UnmodifiableEntity"})
_THROTTLED: Final = frozenset({
    "DependencyThrottle", "EC2ThrottledException", "RequestLimitExceeded", "RequestThrottled",
    "RequestThrottledException", "SlowDown", "ThrottledException", "Throttling", "ThrottlingException",
    "TooManyRequests", "TooManyRequestsException",
})  # fmt: skip
_DENIED: Final = frozenset({
    "AccessDenied", "AccessDeniedException", "AuthorizationError", "OptInRequired", "SubscriptionRequiredException",
    "UnauthorizedAccess", "UnauthorizedOperation",
})  # fmt: skip
# The credentials are in doubt, not the permissions. The text of these errors may repeat what was signed, session tokens
# included, so it is never shown.
_CREDENTIALS: Final = frozenset({
    "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "IncompleteSignatureException",
    "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidCredentialsException", "InvalidSignatureException",
    "InvalidToken",
    "MissingAuthenticationToken", "MissingAuthenticationTokenException", "RegionDisabledException", "RequestExpired",
    "SignatureDoesNotMatch", "TokenRefreshRequired", "UnrecognizedClientException",
})  # fmt: skip
_UNAVAILABLE: Final = frozenset({
    "HandlerInternalFailureException", "InternalError", "InternalException", "InternalFailure", "InternalServerError",
    "InternalServiceException", "NetworkFailureException", "RequestTimeout", "RequestTimeoutException",
    "ServiceInternalErrorException", "ServiceUnavailable", "ServiceUnavailableException", "Unavailable",
})  # fmt: skip
# Of Cloud Control: it can't do this with resources of the type at all.
_UNSUPPORTED: Final = frozenset({"PrivateTypeException", "TypeNotFoundException", "UnsupportedActionException"})
# Of Cloud Control: another request is in the way, and its token is in the message.
_RUNNING: Final = frozenset({"ClientTokenConflictException", "ConcurrentOperationException"})

NOT_FROM_AWS: Final = "NoAnswerOfAws"
"""Our own code for a response that AWS did not write."""

BUDGET_EXHAUSTED: Final = "NoRoomInBudget"
"""Our own code for a call that was not made because the shared budget had no tokens left."""

_MAX_LENGTH: Final = 400
_ENCODED: Final = re.compile(r"[\s.]*Encoded authorization failure message:.*", re.DOTALL)
_BLOB: Final = re.compile(r"[A-Za-z0-9+/=_-]{120,}")
_KEY: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_CLOUD_CONTROL: Final = "cloudformation:"
_DENIED_ACTION: Final = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z0-9]+)")
_UUID: Final = r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
_REQUEST_TOKENS: Final = (
    re.compile(rf"request ?token\W*({_UUID})", re.IGNORECASE),
    re.compile(f"({_UUID})", re.IGNORECASE),
)


def translate(error: Exception, action: str) -> AwsError | NoAccess | None:
    """None for an error that comes neither from AWS nor from the network: it is a bug of ours and must surface as
    one."""
    # Imported here: processes without the SDK use this module, too.
    from botocore import exceptions as sdk
    from botocore.parsers import ResponseParserError

    name = type(error).__name__
    match error:
        case UnreadableResponse():
            return AwsError("unreadable", action, error.code, str(error))
        case sdk.ClientError():
            return error_from_response(error.response, action)
        case ResponseParserError():
            return not_from_aws(action)
        case sdk.NoCredentialsError() | sdk.PartialCredentialsError() | sdk.CredentialRetrievalError():
            return NoAccess(f"{action}: there are no credentials to ask with ({name})")
        case sdk.BaseEndpointResolverError() | sdk.EndpointProviderError() | sdk.InvalidRegionError():
            return AwsError("unreachable", action, "UnknownEndpoint", sanitize(str(error)))
        case sdk.ReadTimeoutError() | sdk.ConnectTimeoutError() | TimeoutError():
            return AwsError("unreachable", action, "NoAnswerInTime", sanitize(str(error)) or "no answer in time")
        case sdk.ConnectionError() | sdk.HTTPClientError() | sdk.IncompleteReadError() | OSError():
            return AwsError("unreachable", action, "NoConnection", sanitize(str(error)))
        case sdk.BotoCoreError():
            return AwsError("other", action, name, sanitize(str(error)))
        case _ if _while_parsing(error):
            return not_from_aws(action)
        case _:
            return None


def _while_parsing(error: Exception) -> bool:
    """Whether the SDK's parser raised it: markup that is no AWS response fails there with any type of error."""
    parsers = ("botocore.parsers", "aiobotocore.parsers")
    return any(frame.f_globals.get("__name__") in parsers for frame, _ in walk_tb(error.__traceback__))


def error_from_response(response: Mapping[str, Any], action: str) -> AwsError | NoAccess:
    """Translates an error response; `response` is a ClientError's."""
    said = response.get("Error", {})
    code = str(said.get("Code", "")).removeprefix("Client.").removeprefix("Server.")
    message = str(said.get("Message", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    what = categorize(code, status, message)
    if what == "credentials":
        return NoAccess(
            f"{action}: {code}: AWS does not accept the credentials; see whether they are still valid, whether the "
            f"region is enabled for the account, and whether the clock of this machine is right"
        )
    if what == "unreadable":
        return not_from_aws(action, status)
    if what == "denied" and action.startswith(_CLOUD_CONTROL):
        action = denied_action(message, action)
    return AwsError(what, action, code, sanitize(message), running=running_request(code, message))


def denied_action(message: str, action: str) -> str:
    """The action that a denial names: a handler of Cloud Control calls other services. Else that of the call."""
    found = _DENIED_ACTION.search(message)
    return found[1] if found is not None else action


def running_request(code: str, message: str) -> str:
    """The token of the request that Cloud Control names as being in the way; empty if it names none. The identifier of
    the resource may look like one as well, so what follows the word comes first."""
    if code in _RUNNING:
        for pattern in _REQUEST_TOKENS:
            if (found := pattern.search(message)) is not None:
                return found[1]
    return ""


def not_from_aws(action: str, status: int = 0) -> AwsError:
    """A proxy's page, or a truncated response. Its text is not shown because it may repeat secrets."""
    shown = f" (status {status})" if status else ""
    return AwsError(
        "unreadable", action, NOT_FROM_AWS, f"what came back{shown} is no answer of AWS; look at proxies on the way"
    )


def categorize(code: str, status: int = 0, message: str = "") -> ErrorCategory | Literal["credentials"]:
    if code in _THROTTLED or status == 429:
        return "throttled"
    if code == "AuthFailure":
        # EC2 returns this for credentials that it can't validate, and for resources of another account.
        return "credentials" if "credential" in message.lower() else "denied"
    if code in _CREDENTIALS:
        return "credentials"
    if code in _DENIED:
        return "denied"
    if code in _GONE or _INVALID_ID.fullmatch(code):
        return "gone"
    if code in _PROTECTED:
        return "protected"
    if code in _DEPENDS:
        return "depends"
    if code in _UNSUPPORTED:
        return "unsupported"
    # The SDK uses the HTTP status where it found no code: then AWS did not write this response.
    if not code or code.isdigit() or code == "Unknown":
        return "unreadable"
    if code in _UNAVAILABLE or status >= 500:
        return "unreachable"
    return "other"


def sanitize(text: str) -> str:
    """One line without keys and encoded blobs, safe to show."""
    text = _ENCODED.sub("", " ".join(text.split()))
    text = _KEY.sub(MASK, _BLOB.sub("…", text))
    return mask_text(text)[:_MAX_LENGTH]
