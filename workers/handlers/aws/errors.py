"""What AWS says when it does not do what was asked, in few words: gone, depends, throttled, denied, unreadable, other.
Everything that botocore and aiohttp raise comes through here once; nobody else looks at error codes of the SDK."""

import re
from collections.abc import Mapping
from datetime import timedelta
from traceback import walk_tb
from typing import Any, Final, Literal

from service.masking import MASK, mask_text
from workers.handlers.answer_size import UnreadableAnswer

What = Literal["gone", "depends", "protected", "throttled", "denied", "unreadable", "unreachable", "other"]


class AwsError(Exception):
    """`action` is the IAM action that was tried, as a policy names it (ec2:DeleteSecurityGroup); `code` is AWS's own.
    The message is fit to be shown: no credential, no signed address, no account secret. `after` says when to come
    again, where it is known: only what is throttled has it."""

    def __init__(self, what: What, action: str, code: str, message: str, *, after: timedelta | None = None) -> None:
        super().__init__(f"{action}: {code}: {message}" if message else f"{action}: {code}")
        self.what, self.action, self.code, self.message, self.after = what, action, code, message, after


class NoAccess(Exception):
    """Nothing may be done as this identity, or not now; with `again` it may pass by itself."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


_GONE: Final = frozenset({
    "ListenerNotFound", "LoadBalancerNotFound", "NatGatewayNotFound", "ResourceNotFoundException", "RuleNotFound",
    "TargetGroupNotFound",
})  # fmt: skip
_INVALID_ID: Final = re.compile(r"Invalid\w+\.NotFound")
_DEPENDS: Final = frozenset({
    "DependencyViolation", "InvalidGroup.InUse", "InvalidIPAddress.InUse", "InvalidNetworkInterface.InUse",
    "InvalidSnapshot.InUse", "ResourceInUse", "ResourceInUseException", "VolumeInUse",
})  # fmt: skip
_PROTECTED: Final = frozenset({"OperationNotPermitted"})
_THROTTLED: Final = frozenset({
    "DependencyThrottle", "EC2ThrottledException", "RequestLimitExceeded", "RequestThrottled",
    "RequestThrottledException", "SlowDown", "ThrottledException", "Throttling", "ThrottlingException",
    "TooManyRequests", "TooManyRequestsException",
})  # fmt: skip
_DENIED: Final = frozenset({
    "AccessDenied", "AccessDeniedException", "AuthorizationError", "OptInRequired", "SubscriptionRequiredException",
    "UnauthorizedAccess", "UnauthorizedOperation",
})  # fmt: skip
# Not what may be done is in doubt but who asks. Texts of these answers may repeat what was signed, session tokens
# included, so none is ever shown.
_CREDENTIALS: Final = frozenset({
    "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "IncompleteSignatureException",
    "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSignatureException", "InvalidToken",
    "MissingAuthenticationToken", "MissingAuthenticationTokenException", "RegionDisabledException", "RequestExpired",
    "SignatureDoesNotMatch", "TokenRefreshRequired", "UnrecognizedClientException",
})  # fmt: skip
_AWAY: Final = frozenset({
    "InternalError", "InternalException", "InternalFailure", "InternalServerError", "InternalServiceException",
    "RequestTimeout", "RequestTimeoutException", "ServiceUnavailable", "ServiceUnavailableException", "Unavailable",
})  # fmt: skip

NO_ANSWER: Final = "NoAnswerOfAws"
"""Our own code for what somebody else has written."""

NO_ROOM: Final = "NoRoomInBudget"
"""Our own code for a call that was not made: the budgets had nothing left for it, so AWS has refused nothing."""

_LONGEST: Final = 400
_ENCODED: Final = re.compile(r"[\s.]*Encoded authorization failure message:.*", re.DOTALL)
_BLOB: Final = re.compile(r"[A-Za-z0-9+/=_-]{120,}")
_KEY: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")


def translated(error: Exception, action: str) -> AwsError | NoAccess | None:
    """None for what neither AWS nor the way to it has said: then the fault is ours, and is not to be dressed up."""
    # Here, and not above: the words of this module are wanted where the SDK need not be.
    from botocore import exceptions as sdk
    from botocore.parsers import ResponseParserError

    name = type(error).__name__
    match error:
        case UnreadableAnswer():
            return AwsError("unreadable", action, error.code, str(error))
        case sdk.ClientError():
            return answered(error.response, action)
        case ResponseParserError():
            return no_answer_of_aws(action)
        case sdk.NoCredentialsError() | sdk.PartialCredentialsError() | sdk.CredentialRetrievalError():
            return NoAccess(f"{action}: there are no credentials to ask with ({name})")
        case sdk.BaseEndpointResolverError() | sdk.EndpointProviderError() | sdk.InvalidRegionError():
            return AwsError("unreachable", action, "UnknownEndpoint", fit(str(error)))
        case sdk.ReadTimeoutError() | sdk.ConnectTimeoutError() | TimeoutError():
            return AwsError("unreachable", action, "NoAnswerInTime", fit(str(error)) or "no answer in time")
        case sdk.ConnectionError() | sdk.HTTPClientError() | sdk.IncompleteReadError() | OSError():
            return AwsError("unreachable", action, "NoConnection", fit(str(error)))
        case sdk.BotoCoreError():
            return AwsError("other", action, name, fit(str(error)))
        case _ if _while_parsing(error):
            return no_answer_of_aws(action)
        case _:
            return None


def _while_parsing(error: Exception) -> bool:
    """Well-formed markup that is no answer of AWS fails somewhere in the parsers, with whatever error comes first."""
    parsers = ("botocore.parsers", "aiobotocore.parsers")
    return any(frame.f_globals.get("__name__") in parsers for frame, _ in walk_tb(error.__traceback__))


def answered(response: Mapping[str, Any], action: str) -> AwsError | NoAccess:
    """What an answer that is an error means; `response` as a ClientError holds it."""
    said = response.get("Error", {})
    code = str(said.get("Code", "")).removeprefix("Client.").removeprefix("Server.")
    message = str(said.get("Message", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    what = meaning(code, status, message)
    if what == "credentials":
        return NoAccess(
            f"{action}: {code}: AWS does not accept the credentials; see whether they are still valid, whether the "
            f"region is enabled for the account, and whether the clock of this machine is right"
        )
    if what == "unreadable":
        return no_answer_of_aws(action, status)
    return AwsError(what, action, code, fit(message))


def no_answer_of_aws(action: str, status: int = 0) -> AwsError:
    """A proxy's page, or half an answer. Its text is not shown: nobody knows what it repeats."""
    shown = f" (status {status})" if status else ""
    return AwsError(
        "unreadable", action, NO_ANSWER, f"what came back{shown} is no answer of AWS; look at proxies on the way"
    )


def meaning(code: str, status: int = 0, message: str = "") -> What | Literal["credentials"]:
    if code in _THROTTLED or status == 429:
        return "throttled"
    if code == "AuthFailure":
        # EC2 says this of credentials that it can't validate, and of things that belong to somebody else.
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
    # The SDK puts the status in the place of a code that it did not find: then AWS did not write this answer.
    if not code or code.isdigit() or code == "Unknown":
        return "unreadable"
    if code in _AWAY or status >= 500:
        return "unreachable"
    return "other"


def fit(text: str) -> str:
    """To be shown: one line, without keys and without blobs that only AWS can read."""
    text = _ENCODED.sub("", " ".join(text.split()))
    text = _KEY.sub(MASK, _BLOB.sub("…", text))
    return mask_text(text)[:_LONGEST]
