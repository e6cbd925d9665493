"""Streaming HTTP responses (watches): lines of JSON, of which only type and metadata are decoded. A watch ends when the
server ends it, and raises when it expired (410), broke or stalled; the caller decides what follows."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Final, Literal

import msgspec

from service.kubernetes.api_calls import ApiCalls
from service.kubernetes.decoding import UNDECODABLE, decode_identity, decode_item
from service.kubernetes.errors import ClusterError, Expired, Unavailable, Unreadable, WatchStalled
from service.kubernetes.http_messages import ResponseStream
from service.kubernetes.objects import ServedResource, WatchEvent
from service.kubernetes.responses import connection_error, masked_excerpt, read_status, status_error

# timeoutSeconds of a watch, at random, so that many watches do not reconnect at once.
_SHORTEST, _LONGEST = timedelta(minutes=5), timedelta(minutes=10)
# Far more than etcd accepts as one object.
_LONGEST_LINE: Final = 64 * 1024 * 1024
_FIRST_BYTE: Final = timedelta(seconds=60)
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class _WatchLine(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _BookmarkMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMetadata


_lines: Final = msgspec.json.Decoder(_WatchLine)
_bookmarks: Final = msgspec.json.Decoder(_Bookmark)


class WatchRequest(msgspec.Struct, frozen=True):
    """What is watched."""

    served: ServedResource
    namespace: str | None
    selector: str
    metadata_only: bool


async def watch(
    calls: ApiCalls,
    request: WatchRequest,
    resource_version: str,
    silence: timedelta,
    opened: Callable[[], None] = lambda: None,
) -> AsyncGenerator[WatchEvent, None]:
    """`opened` is called when the server has accepted it, which is long before the first event if nothing changes."""
    path = request.served.path(request.namespace)
    request_text = calls.describe("watch of", path)
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(round(random.uniform(_SHORTEST.total_seconds(), _LONGEST.total_seconds()))),
    }
    if request.selector:
        query["labelSelector"] = request.selector
    accept = _METADATA if request.metadata_only else "application/json"
    lines = _LineBuffer(request_text)
    async with calls.stream(path, query, accept, min(silence, _FIRST_BYTE)) as stream:
        opened()
        # Nothing is read while the caller processes events: back pressure for the server.
        while chunk := await _read_chunk(stream, silence, request_text):
            for line in lines.complete(chunk):
                yield _decode_event(line, request_text, request)


class _LineBuffer:
    """Splits chunks into lines of any length. An incomplete last line is dropped; the next watch sends it again."""

    def __init__(self, request_text: str) -> None:
        self._request_text = request_text
        self._partial: list[bytes] = []
        self._size = 0

    def complete(self, chunk: bytes) -> list[bytes]:
        *ends, rest = chunk.split(b"\n")
        if ends and self._partial:
            ends[0] = b"".join((*self._partial, ends[0]))
            self._partial.clear()
            self._size = 0
        if rest:
            self._partial.append(rest)
            self._size += len(rest)
        if self._size > _LONGEST_LINE:
            raise Unreadable(f"{self._request_text}: a line of more than {_LONGEST_LINE} bytes")
        return [line for line in ends if line.strip()]


async def _read_chunk(stream: ResponseStream, silence: timedelta, request_text: str) -> bytes:
    failure: ClusterError
    limit = asyncio.timeout(silence.total_seconds())
    try:
        async with limit:
            return await stream.read()
    except (OSError, ValueError) as error:
        # A timeout of the connection itself is a broken connection, not a stalled watch.
        if limit.expired():
            failure = WatchStalled(f"{request_text}: nothing came for {silence.total_seconds():g} s")
        else:
            failure = connection_error(error, request_text)
    raise failure


def _decode_event(line: bytes, request_text: str, request: WatchRequest) -> WatchEvent:
    try:
        event = _lines.decode(line)
    except UNDECODABLE as error:
        raise Unavailable(f"{request_text}: a line that is no event: {error}") from None
    if event.type == "ERROR":
        raise _watch_error(event.object, request_text)
    if event.type == "BOOKMARK":
        try:
            return WatchEvent(
                kind="BOOKMARK", resource_version=_bookmarks.decode(event.object).metadata.resource_version
            )
        except UNDECODABLE as error:
            raise Unavailable(f"{request_text}: a bookmark that can't be read: {error}") from None
    try:
        seen = decode_item(event.object, request.served, request.namespace)
    except Unreadable as error:
        identity = decode_identity(event.object)
        known = identity if identity.uid and identity.name else None
        return WatchEvent(
            kind=event.type, resource_version=identity.resource_version, seen=known, unreadable=str(error)
        )
    return WatchEvent(kind=event.type, resource_version=seen.resource_version, seen=seen)


def _watch_error(body: msgspec.Raw, request_text: str) -> ClusterError:
    status = read_status(body)
    if status is None:
        return Unavailable(f"{request_text}: the server ended it with an error that can't be read")
    # Some servers send a reason without a code.
    code = 410 if status.reason in ("Expired", "Gone") else status.code
    text = f"{request_text}: {masked_excerpt(status.message or status.reason or 'error')}"
    found = status_error(code, status, text, {})
    return found if isinstance(found, (Expired, Unreadable)) else Unavailable(text)
