"""Translation of HTTP responses and connection failures to ClusterErrors; status codes are read here and nowhere else.
Texts are masked, because a proxy or a webhook may repeat the request."""

import ssl
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from service.kubernetes.errors import (
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    TooMany,
    Unauthorized,
    Unavailable,
    Unreadable,
)
from service.kubernetes.http_messages import MalformedResponse, UnusableResponse
from service.masking import mask_text

_LONGEST_TEXT: Final = 600
_DEFAULT_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(minutes=5)
# In messages about a stored object that can't be decoded, or not converted to the requested version.
_BROKEN_OBJECT_WORDS: Final = (
    "conversion webhook",
    "convert",
    "unable to decode",
    "StorageReadError",
    "StoreReadError",
)


class Details(msgspec.Struct):
    name: str = ""
    group: str = ""
    kind: str = ""
    retry: int = msgspec.field(default=0, name="retryAfterSeconds")


class Status(msgspec.Struct):
    kind: str = ""
    reason: str | None = None
    message: str | None = None
    code: int = 0
    details: Details | None = None


_statuses: Final = msgspec.json.Decoder(Status, strict=False)


def read_status(body: bytes | msgspec.Raw) -> Status | None:
    """None for anything that is not a Status, such as the plain text of a 404 for a path that is not served."""
    try:
        status = _statuses.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return status if status.kind == "Status" else None


def response_error(code: int, headers: Mapping[str, str], body: bytes, request_text: str) -> ClusterError:
    """The error for a response that is no success. `request_text` names cluster, method and path, without the query."""
    status = read_status(body)
    message = (status.message if status else None) or body[:_LONGEST_TEXT].decode(errors="replace") or f"status {code}"
    error = status_error(code, status, f"{request_text}: {masked_excerpt(message)}", headers)
    error.answer = masked_excerpt(message)
    return error


def status_error(code: int, status: Status | None, text: str, headers: Mapping[str, str]) -> ClusterError:
    match code:
        case 401:
            return Unauthorized(f"{text} (check the token or certificate of this cluster's settings)")
        case 403:
            return Forbidden(f"{text} (grant it in the role, or look at the admission rules)")
        case 404 if status is not None and status.details is not None and status.details.name:
            return NotFound(text, name=status.details.name, kind=status.details.kind)
        case 404:
            return NotServed(f"{text} (the resource is not served there)")
        case 409:
            return Conflict(text)
        case 410:
            return Expired(text)
        case 429:
            return TooMany(text, _retry_after(status, headers) or _DEFAULT_WAIT)
        case 503:
            wait = _retry_after(status, headers)
            return Unavailable(text) if wait is None else TooMany(text, wait)
        case _ if 300 <= code < 400:
            return Unavailable(f"{text} (redirects are not followed)")
        case _ if 400 <= code < 500 and code != 408:
            return Invalid(text)
        case _ if code == 500 and _is_stored_object_broken(status):
            return Unreadable(text)
        case _:
            return Unavailable(text)


def connection_error(error: BaseException, request_text: str) -> ClusterError:
    """For a connection that failed or broke, a timeout, or a response that was not read."""
    match error:
        case UnusableResponse():
            return Unreadable(f"{request_text}: {error}")
        case ssl.SSLCertVerificationError():
            message = "the server's certificate is not trusted; check the certificate authority in the kubeconfig"
        case TimeoutError():
            message = "no answer in time"
        case MalformedResponse():
            message = str(error)
        case OSError() if error.strerror:
            message = f"no connection: {masked_excerpt(error.strerror)}"
        case _:
            message = f"the connection broke ({type(error).__name__})"
    return Unavailable(f"{request_text}: {message}")


def masked_excerpt(text: str) -> str:
    return mask_text(text.strip()[:_LONGEST_TEXT])


def _retry_after(status: Status | None, headers: Mapping[str, str]) -> timedelta | None:
    header = headers.get("Retry-After", "")
    if header.isascii() and header.isdigit():
        return min(timedelta(seconds=int(header[:6])), _LONGEST_WAIT)
    if status is not None and status.details is not None and status.details.retry > 0:
        return min(timedelta(seconds=status.details.retry), _LONGEST_WAIT)
    return None


def _is_stored_object_broken(status: Status | None) -> bool:
    if status is None:
        return False
    message = f"{status.reason or ''} {status.message or ''}"
    return any(word in message for word in _BROKEN_OBJECT_WORDS)
