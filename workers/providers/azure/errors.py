"""Azure errors: translation of SDK exceptions and Azure error codes to AzureError, and of AzureError to verdicts.
No other module looks at SDK exceptions or Azure's codes."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from service.contract import Blocked, Refused, Throttled, Verdict
from service.masking import mask_text
from workers.handlers.response_size import UnreadableResponse
from workers.providers.azure.model import AzureScope

What = Literal[
    "gone", "nowhere", "reserved", "busy", "used", "locked", "denied", "credentials", "throttled", "unreadable",
    "unreachable", "other",
]  # fmt: skip
Layer = Literal["arm", "provider"]

NO_ROOM: Final = "NoRoomInBudget"
"""Our own code for a call that was not made, because the budget had no tokens for it; Azure throttled nothing."""

RESERVED: Final = timedelta(seconds=180)
"""How long an interface is reserved if the response does not say."""

ROLE: Final = "deploy/azure/role-definition.json"
BUSY: Final = timedelta(seconds=10)
"""How long to wait for another operation if Azure does not say."""

_LONGEST: Final = 400
_RESERVED: Final = re.compile(r"(?:retry after|for) ([0-9]+(?:\.[0-9]+)?) seconds", re.IGNORECASE)
_CLOCK: Final = re.compile(r"(\d+):(\d+):(\d+(?:\.\d+)?)")
_ADDRESS: Final = re.compile(r"https?://\S+")
_BLOB: Final = re.compile(r"[A-Za-z0-9+/=_%.-]{160,}")

_GONE: Final = frozenset({"resourcenotfound"})
_NOWHERE: Final = frozenset({
    "resourcegroupnotfound", "subscriptionnotfound", "invalidsubscriptionid", "invalidauthenticationtokentenant",
    "subscriptionnotregistered", "readonlydisabledsubscription",
})  # fmt: skip
_USED: Final = frozenset({
    "nicinuse", "publicipaddresscannotbedeleted", "inusesubnetcannotbedeleted", "cannotdeleteresource",
    "inusenetworksecuritygroupcannotbedeleted", "operationnotallowed", "attacheddisk", "resourceinuse",
})  # fmt: skip
_BUSY: Final = frozenset({
    "anotheroperationinprogress", "retryableerror", "retryableerrorduetoanotheroperation", "operationpreempted",
    "conflict", "referencedresourcenotprovisioned",
})  # fmt: skip
_DENIED: Final = frozenset({
    "authorizationfailed", "linkedauthorizationfailed", "denyassignmentauthorizationfailed", "forbidden",
    "requestdisallowedbypolicy",
})  # fmt: skip


class AzureError(Exception):
    """`after` is when to retry, if known; `layer` is whose quota was exhausted, Resource Manager's or the provider's.
    The message can be shown: it contains no token and no signed address."""

    def __init__(
        self,
        what: What,
        call: str,
        code: str,
        message: str = "",
        *,
        after: timedelta | None = None,
        layer: Layer = "provider",
    ) -> None:
        super().__init__(f"{call}: {code}: {message}" if message else f"{call}: {code}")
        self.what, self.call, self.code, self.message, self.after, self.layer = what, call, code, message, after, layer


def translated(error: Exception, call: str) -> AzureError | None:
    """None for exceptions that come neither from Azure nor from the network: those are bugs, and are raised
    unchanged."""
    # Imported here: this module is used in processes without the SDK.
    from azure.core import exceptions as sdk

    match error:
        case UnreadableResponse():
            return AzureError("unreadable", call, error.code, str(error))
        case sdk.ClientAuthenticationError() if not _body(error):
            # azure-identity's message may be long and name what it tried, but no secret. A response of the token
            # service is not Azure's, and its text is not shown.
            return AzureError("credentials", call, "NoCredentials", fit(str(error.message)))
        case sdk.HttpResponseError() if error.response is not None:
            response: Any = error.response
            return answered(error.status_code or 0, response.headers, _body(error), call)
        case sdk.ServiceRequestError() | sdk.ServiceResponseError() | sdk.IncompleteReadError():
            return AzureError("unreachable", call, "NoConnection", fit(str(error)))
        case TimeoutError():
            return AzureError("unreachable", call, "NoAnswerInTime", fit(str(error)) or "no answer in time")
        case sdk.DecodeError() | sdk.DeserializationError() | json.JSONDecodeError():
            return no_answer_of_azure(call)
        case sdk.AzureError():
            return AzureError("other", call, type(error).__name__, fit(str(error)))
        case OSError():
            return AzureError("unreachable", call, "NoConnection", fit(str(error)))
        case _:
            return None


def _body(error: Any) -> Mapping[str, Any]:
    """The error as Azure wrote it; empty if the response is not from Azure."""
    found = error.error
    if found is None:
        return {}
    return {
        "code": str(found.code or ""),
        "message": str(found.message or ""),
        "details": [str(one.code or "") for one in found.details or ()],
    }


def answered(status: int, headers: Mapping[str, str], body: Mapping[str, Any], call: str) -> AzureError:
    """Translates an error response. A failed operation may have status 200: the code decides."""
    code, message = str(body.get("code", "")), str(body.get("message", ""))
    if not code and status == 429:
        # From a proxy, perhaps; throttling in any case.
        return AzureError("throttled", call, "429", after=retry_after(headers))
    if not code:
        return no_answer_of_azure(call, status)
    codes = [one.lower() for one in (code, *body.get("details", ()))]
    after = retry_after(headers)
    if codes[0] == "nicreservedforanothervm":
        named = _RESERVED.search(message)
        after = timedelta(seconds=float(named[1])) if named is not None else after or RESERVED
    layer: Layer = "arm" if codes[0] == "subscriptionrequeststhrottled" else "provider"
    return AzureError(_meaning(status, codes), call, code, fit(message), after=after, layer=layer)


def _meaning(status: int, codes: list[str]) -> What:
    """Of several codes, the more specific one in the details decides."""
    known = set(codes)
    if codes[0] == "nicreservedforanothervm":
        return "reserved"
    if "retryableerrorduetoanotheroperation" in known or codes[0] in ("retryableerror", "anotheroperationinprogress"):
        return "busy"
    if status == 429 or known & {"subscriptionrequeststhrottled", "toomanyrequests", "ratelimiting"}:
        return "throttled"
    for what, names in _table():
        # Only exactly this response proves absence.
        if codes[0] in names and (what != "gone" or status == 404):
            return what
    if status == 401:
        return "credentials"
    if status == 403:
        return "denied"
    return "unreachable" if status >= 500 else "other"


def _table() -> Iterator[tuple[What, frozenset[str]]]:
    yield "nowhere", _NOWHERE
    yield "gone", _GONE
    yield "used", _USED
    yield "busy", _BUSY
    yield "locked", frozenset({"scopelocked"})
    yield "denied", _DENIED


def no_answer_of_azure(call: str, status: int = 0) -> AzureError:
    """A proxy's page, or a truncated response. Its text is not shown, because it may repeat anything."""
    shown = f" (status {status})" if status else ""
    said = f"what came back{shown} is no answer of Azure; look at proxies on the way"
    return AzureError("unreadable", call, "NoAnswerOfAzure", said)


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """The header in milliseconds is preferred, being exact."""
    told = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("x-ms-retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return timedelta(seconds=max(0.0, float(told[name]) / unit))
        except (KeyError, ValueError):
            continue
    resets = _CLOCK.fullmatch(told.get("x-ms-user-quota-resets-after", ""))
    return timedelta(hours=int(resets[1]), minutes=int(resets[2]), seconds=float(resets[3])) if resets else None


def fit(text: str) -> str:
    """Text that can be shown: one line, without addresses (which may be signed) and without opaque blobs."""
    text = _BLOB.sub("…", _ADDRESS.sub("…", " ".join(text.split())))
    return mask_text(text)[:_LONGEST]


def verdict_for(error: AzureError, where: AzureScope, setting: str) -> Verdict:
    """Verdict for the job that the error stopped; `setting` is the one that names its group. Errors without a verdict
    are raised, as a failed attempt."""
    match error.what:
        case "throttled":
            return Throttled(error.after, str(error), unasked=error.code == NO_ROOM)
        case "reserved":
            return Blocked(str(error), until=error.after)
        case "busy":
            return Blocked(str(error), until=error.after or BUSY)
        case "used":
            return Blocked(str(error))
        case "locked":
            return Refused(f"it is locked, and goes once the lock is lifted: {error}")
        case "denied":
            return Refused(f"{error}; allow it, as {ROLE} does")
        case "nowhere":
            return Refused(
                f"{error}; that says nothing about the resource: see whether {setting} names the right subscription "
                f"and group ({where.subscription}, {where.group}), or give it up by `knell jobs abandon`"
            )
        case "credentials":
            # The token service may be unavailable for a moment; backoff covers the case that it always is.
            return Blocked(f"{error}; give the process an identity that may act there", person=True)
        case _:
            raise error.with_traceback(None)
