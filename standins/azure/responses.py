"""ARM responses and errors in Azure's wire format.
Durations are converted from the stand-in's clock to the seconds in which the caller waits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from standins.clock import Clock

_JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ArmResponse:
    """`code` is the error code, for the journal."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = ""


def answered(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> ArmResponse:
    return ArmResponse(status, msgspec.json.encode(document), {"Content-Type": _JSON, **(headers or {})})


def empty(status: int, headers: Mapping[str, str] | None = None) -> ArmResponse:
    return ArmResponse(status, b"", dict(headers or {}))


def failed(
    status: int,
    code: str,
    message: str,
    *,
    details: Sequence[Mapping[str, Any]] | None = None,
    retry_after: str = "",
) -> ArmResponse:
    error: dict[str, Any] = {"code": code, "message": message}
    if details is not None:
        error["details"] = details
    headers = {"Content-Type": _JSON}
    if retry_after:
        headers["Retry-After"] = retry_after
    if status < 500:
        headers["x-ms-failure-cause"] = "gateway"
    return ArmResponse(status, msgspec.json.encode({"error": error}), headers, code)


def proxy_page(status: int) -> ArmResponse:
    page = b"<html><head><title>Sign in</title></head><body>You are not on the internet yet.</body></html>"
    return ArmResponse(status, page, {"Content-Type": "text/html"}, "html")


def seconds(clock: Clock, span: float) -> str:
    """A duration of the clock in real seconds: whole ones while the rate is 1, otherwise to the millisecond."""
    if clock.rate in (0.0, 1.0):
        return str(math.ceil(span - 1e-9))
    real = math.ceil(clock.ours(span) * 1000 - 1e-6) / 1000
    return f"{real:.3f}".rstrip("0").rstrip(".")
