"""One watch: raw lines from the server, of which only type and metadata are decoded.
It ends when the server ends it, and raises when it expired, broke or fell silent; what comes next is the caller's."""

import asyncio
import random
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Final, Literal

import msgspec

from service.kubernetes.answers import judged, no_answer, read_status, shown
from service.kubernetes.calls import Calls
from service.kubernetes.decoding import UNDECODABLE, decode_member, vaguely
from service.kubernetes.errors import ClusterError, Expired, Silent, Unavailable, Unreadable
from service.kubernetes.exchange import Stream
from service.kubernetes.objects import Change, Served

# The server ends a watch after a time of our choosing; spread, so that a fleet does not come back all at once.
_SHORTEST, _LONGEST = timedelta(minutes=5), timedelta(minutes=10)
# Far beyond what etcd takes as one object; a line longer than that is no object.
_LONGEST_LINE: Final = 64 * 1024 * 1024
_FIRST_ANSWER: Final = timedelta(seconds=60)
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class _Line(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _BookmarkMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMetadata


_lines: Final = msgspec.json.Decoder(_Line)
_bookmarks: Final = msgspec.json.Decoder(_Bookmark)


class Scope(msgspec.Struct, frozen=True):
    """What is watched."""

    served: Served
    namespace: str | None
    selector: str
    metadata_only: bool


async def watch(calls: Calls, scope: Scope, resource_version: str, silence: timedelta) -> AsyncGenerator[Change, None]:
    path = scope.served.path(scope.namespace)
    asked = calls.asked("watch of", path)
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(round(random.uniform(_SHORTEST.total_seconds(), _LONGEST.total_seconds()))),
    }
    if scope.selector:
        query["labelSelector"] = scope.selector
    accept = _METADATA if scope.metadata_only else "application/json"
    lines = _Lines(asked)
    async with calls.stream(path, query, accept, min(silence, _FIRST_ANSWER)) as stream:
        # While nobody takes the changes nothing is read, and the server feels the back pressure.
        while chunk := await _chunk(stream, silence, asked):
            for line in lines.complete(chunk):
                yield _change(line, asked, scope)


class _Lines:
    """Lines of any length out of chunks. A beginning that the server never finishes is no event; the next watch brings
    it whole."""

    def __init__(self, asked: str) -> None:
        self._asked = asked
        self._begun: list[bytes] = []
        self._size = 0

    def complete(self, chunk: bytes) -> list[bytes]:
        *ends, rest = chunk.split(b"\n")
        if ends and self._begun:
            ends[0] = b"".join((*self._begun, ends[0]))
            self._begun.clear()
            self._size = 0
        if rest:
            self._begun.append(rest)
            self._size += len(rest)
        if self._size > _LONGEST_LINE:
            raise Unreadable(f"{self._asked}: a line of more than {_LONGEST_LINE} bytes")
        return [line for line in ends if line.strip()]


async def _chunk(stream: Stream, silence: timedelta, asked: str) -> bytes:
    failure: ClusterError
    limit = asyncio.timeout(silence.total_seconds())
    try:
        async with limit:
            return await stream.read()
    except (OSError, ValueError) as error:
        # A connection may have run out of time by itself, which is a break and no silence.
        if limit.expired():
            failure = Silent(f"{asked}: nothing came for {silence.total_seconds():g} s")
        else:
            failure = no_answer(error, asked)
    raise failure


def _change(line: bytes, asked: str, scope: Scope) -> Change:
    try:
        event = _lines.decode(line)
    except UNDECODABLE as error:
        raise Unavailable(f"{asked}: a line that is no event: {error}") from None
    if event.type == "ERROR":
        raise _error(event.object, asked)
    if event.type == "BOOKMARK":
        try:
            return Change(kind="BOOKMARK", resource_version=_bookmarks.decode(event.object).metadata.resource_version)
        except UNDECODABLE as error:
            raise Unavailable(f"{asked}: a bookmark that can't be read: {error}") from None
    try:
        seen = decode_member(event.object, scope.served, scope.namespace)
    except Unreadable as error:
        vague = vaguely(event.object)
        known = vague if vague.uid and vague.name else None
        return Change(kind=event.type, resource_version=vague.resource_version, seen=known, unreadable=str(error))
    return Change(kind=event.type, resource_version=seen.resource_version, seen=seen)


def _error(body: msgspec.Raw, asked: str) -> ClusterError:
    status = read_status(body)
    if status is None:
        return Unavailable(f"{asked}: the server ended it with an error that can't be read")
    # Some servers leave the code out and give only the reason.
    code = 410 if status.reason in ("Expired", "Gone") else status.code
    text = f"{asked}: {shown(status.message or status.reason or 'error')}"
    found = judged(code, status, text, {})
    return found if isinstance(found, (Expired, Unreadable)) else Unavailable(text)
