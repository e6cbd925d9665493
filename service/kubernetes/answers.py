"""Turns what a server answered, or failed to answer, into one of our errors. Statuses are read here and nowhere else.
Texts are masked on the way, for a proxy or a webhook may repeat what it was sent."""

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
from service.kubernetes.exchange import MalformedAnswer, UnusableAnswer
from service.masking import mask_text

_LONGEST_TEXT: Final = 600
_DEFAULT_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(minutes=5)
# What the server says when an object in its store can't be decoded or converted to the version we ask for.
_BROKEN_WORDS: Final = ("conversion webhook", "convert", "unable to decode", "StorageReadError", "StoreReadError")


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


def problem(code: int, headers: Mapping[str, str], body: bytes, asked: str) -> ClusterError:
    """The error for an answer that is not a success. `asked` says by whom and for what, without a query."""
    status = read_status(body)
    said = (status.message if status else None) or body[:_LONGEST_TEXT].decode(errors="replace") or f"status {code}"
    return judged(code, status, f"{asked}: {shown(said)}", headers)


def judged(code: int, status: Status | None, text: str, headers: Mapping[str, str]) -> ClusterError:
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
            return TooMany(text, _wait(status, headers) or _DEFAULT_WAIT)
        case 503:
            wait = _wait(status, headers)
            return Unavailable(text) if wait is None else TooMany(text, wait)
        case _ if 300 <= code < 400:
            return Unavailable(f"{text} (redirects are not followed)")
        case _ if 400 <= code < 500 and code != 408:
            return Invalid(text)
        case _ if code == 500 and _broken(status):
            return Unreadable(text)
        case _:
            return Unavailable(text)


def no_answer(error: BaseException, asked: str) -> ClusterError:
    """For a connection that could not be made or broke, a time that ran out, and an answer that was not read."""
    match error:
        case UnusableAnswer():
            return Unreadable(f"{asked}: {error}")
        case ssl.SSLCertVerificationError():
            said = "the server's certificate is not trusted; check the certificate authority in the kubeconfig"
        case TimeoutError():
            said = "no answer in time"
        case MalformedAnswer():
            said = str(error)
        case OSError() if error.strerror:
            said = f"no connection: {shown(error.strerror)}"
        case _:
            said = f"the connection broke ({type(error).__name__})"
    return Unavailable(f"{asked}: {said}")


def shown(text: str) -> str:
    return mask_text(text.strip()[:_LONGEST_TEXT])


def _wait(status: Status | None, headers: Mapping[str, str]) -> timedelta | None:
    told = headers.get("Retry-After", "")
    if told.isascii() and told.isdigit():
        return min(timedelta(seconds=int(told[:6])), _LONGEST_WAIT)
    if status is not None and status.details is not None and status.details.retry > 0:
        return min(timedelta(seconds=status.details.retry), _LONGEST_WAIT)
    return None


def _broken(status: Status | None) -> bool:
    if status is None:
        return False
    said = f"{status.reason or ''} {status.message or ''}"
    return any(word in said for word in _BROKEN_WORDS)
