"""What Azure says when it does not do what was asked, in few words: gone, reserved, busy, used, throttled, denied.
Everything that the SDK raises comes through here once; nobody else looks at its errors or at Azure's codes."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from service.masking import mask_text
from workers.handlers.answer_size import UnreadableAnswer

What = Literal[
    "gone", "nowhere", "reserved", "busy", "used", "locked", "denied", "credentials", "throttled", "unreadable",
    "unreachable", "other",
]  # fmt: skip
Layer = Literal["arm", "provider"]

NO_ROOM: Final = "NoRoomInBudget"
"""Our own code for a call that was not made: the budgets had nothing left for it, so Azure has refused nothing."""

RESERVED: Final = timedelta(seconds=180)
"""How long an interface is reserved where the answer does not say."""

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
    """`after` says when to come again, where it is known; `layer` whose quota was used up, Resource Manager's or the
    provider's behind it. The message is fit to be shown: no token, no signed address."""

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
    """None for what neither Azure nor the way to it has said: then the fault is ours, and is not to be dressed up."""
    # Here, and not above: the words of this module are wanted where the SDK need not be.
    from azure.core import exceptions as sdk

    match error:
        case UnreadableAnswer():
            return AzureError("unreadable", call, error.code, str(error))
        case sdk.ClientAuthenticationError() if not _body(error):
            # What azure-identity says may be long and may name what it tried, but no secret. It may have an answer of
            # its own at hand, of who gives tokens: nothing of Azure's, and its text is not shown.
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
    """The error as Azure wrote it; empty where it is no answer of Azure's."""
    found = error.error
    if found is None:
        return {}
    return {
        "code": str(found.code or ""),
        "message": str(found.message or ""),
        "details": [str(one.code or "") for one in found.details or ()],
    }


def answered(status: int, headers: Mapping[str, str], body: Mapping[str, Any], call: str) -> AzureError:
    """What an answer that is an error means. A failed operation may come with status 200: the code decides."""
    code, message = str(body.get("code", "")), str(body.get("message", ""))
    if not code and status == 429:
        # Whoever wrote it wants us to come less often.
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
    """Of several codes the more special one, in the details, says what it is about."""
    known = set(codes)
    if codes[0] == "nicreservedforanothervm":
        return "reserved"
    if "retryableerrorduetoanotheroperation" in known or codes[0] in ("retryableerror", "anotheroperationinprogress"):
        return "busy"
    if status == 429 or known & {"subscriptionrequeststhrottled", "toomanyrequests", "ratelimiting"}:
        return "throttled"
    for what, names in _table():
        # Only that very answer is a proof of absence.
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
    """A proxy's page, or half an answer. Its text is not shown: nobody knows what it repeats."""
    shown = f" (status {status})" if status else ""
    said = f"what came back{shown} is no answer of Azure; look at proxies on the way"
    return AzureError("unreadable", call, "NoAnswerOfAzure", said)


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """The header in milliseconds is the exact one, where there is one."""
    told = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("x-ms-retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return timedelta(seconds=max(0.0, float(told[name]) / unit))
        except (KeyError, ValueError):
            continue
    resets = _CLOCK.fullmatch(told.get("x-ms-user-quota-resets-after", ""))
    return timedelta(hours=int(resets[1]), minutes=int(resets[2]), seconds=float(resets[3])) if resets else None


def fit(text: str) -> str:
    """To be shown: one line, without addresses, which are signed, and without blobs that only Azure can read."""
    text = _BLOB.sub("…", _ADDRESS.sub("…", " ".join(text.split())))
    return mask_text(text)[:_LONGEST]
