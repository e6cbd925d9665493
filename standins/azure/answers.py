"""Answers as the wire has them, and spans of time as a caller is told them: in its own seconds, not in the clock's.
A client must be able to tell them from Azure's own in nothing that it could rely on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from standins.clock import Clock

_JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """`code` is an error's, for the journal."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = ""


def answered(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, msgspec.json.encode(document), {"Content-Type": _JSON, **(headers or {})})


def empty(status: int, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, b"", dict(headers or {}))


def failed(
    status: int,
    code: str,
    message: str,
    *,
    details: Sequence[Mapping[str, Any]] | None = None,
    retry_after: str = "",
) -> Answer:
    error: dict[str, Any] = {"code": code, "message": message}
    if details is not None:
        error["details"] = details
    headers = {"Content-Type": _JSON}
    if retry_after:
        headers["Retry-After"] = retry_after
    if status < 500:
        headers["x-ms-failure-cause"] = "gateway"
    return Answer(status, msgspec.json.encode({"error": error}), headers, code)


def page_of_a_proxy(status: int) -> Answer:
    page = b"<html><head><title>Sign in</title></head><body>You are not on the internet yet.</body></html>"
    return Answer(status, page, {"Content-Type": "text/html"}, "html")


def seconds(clock: Clock, span: float) -> str:
    """A span of the clock as callers count it: whole seconds while the clock is theirs, else to the millisecond."""
    if clock.rate in (0.0, 1.0):
        return str(math.ceil(span - 1e-9))
    told = math.ceil(clock.ours(span) * 1000 - 1e-6) / 1000
    return f"{told:.3f}".rstrip("0").rstrip(".")
