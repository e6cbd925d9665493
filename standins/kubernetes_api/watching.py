"""Watch: one stream of JSON lines per client, read from the history of a table at the client's own pace.
With a selector, an object that stops matching is sent as deleted, and one that begins to match as added."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from standins.kubernetes_api import statuses
from standins.kubernetes_api.documents import decode, encode
from standins.kubernetes_api.representation import Representation
from standins.kubernetes_api.selectors import ListSelector
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.store import ChangeType, StoredChange, Table, TableReader

_BEFORE_THE_END: Final = 2.0
_LONGEST: Final = timedelta(minutes=60)


@dataclass(frozen=True, slots=True)
class ServedWatch:
    view: Representation
    namespace: str
    selector: ListSelector
    version: str
    timeout: timedelta | None
    bookmarks: bool
    bookmark_every: timedelta

    def starting_version(self) -> int | None:
        """None for a watch that begins with all existing objects. Raises StatusError."""
        if self.version in ("", "0"):
            return None
        try:
            return int(self.version)
        except ValueError:
            why = f'strconv.ParseUint: parsing "{self.version}": invalid syntax'
            raise statuses.internal(f'resourceVersion: Invalid value: "{self.version}": {why}') from None


def too_old(state: ClusterState, watch: ServedWatch) -> bool:
    """Whether it would begin before the start of the history. Raises StatusError."""
    version = watch.starting_version()
    return version is not None and version < state.store.table(watch.view.resource.stored_in).floor


async def lines(state: ClusterState, watch: ServedWatch) -> AsyncIterator[bytes]:
    """Batches of whole lines, until the watch ends."""
    table = state.store.table(watch.view.resource.stored_in)
    version = watch.starting_version()
    if too_old(state, watch):
        # After the checks of permission and syntax the real server reports every error within the stream.
        yield _error(statuses.expired(f"too old resource version: {version} ({table.floor})"))
        return
    reader = TableReader(table, state.store.version if version is None else version)
    try:
        if version is None:
            first = b"".join(_everything(watch, table))
            if first:
                yield first
        async for batch in _follow(watch, reader):
            yield batch
    finally:
        reader.leave()


async def _follow(watch: ServedWatch, reader: TableReader) -> AsyncIterator[bytes]:
    clock = asyncio.get_running_loop().time
    timeout = watch.timeout or _LONGEST * random.uniform(0.5, 1)
    deadline = clock() + timeout.total_seconds()
    bookmark = _next_bookmark(watch, clock(), deadline)
    begun: int | None = None
    while True:
        if reader.ended in ("", "dropped"):
            batch = b"".join(_shown(watch, reader.read()))
            if batch:
                yield batch
        begun = reader.position if begun is None else begun
        if reader.ended == "expired":
            yield _error(statuses.expired("The resourceVersion for the provided watch is too old."))
        if reader.ended or clock() >= deadline:
            return
        if clock() >= bookmark:
            # As on a real server: no bookmark before a change after the watch has caught up.
            if reader.latest > begun:
                yield b'{"type":"BOOKMARK","object":' + watch.view.bookmark(reader.latest) + b"}\n"
            bookmark = _next_bookmark(watch, clock(), deadline)
            continue
        try:
            async with asyncio.timeout_at(min(deadline, bookmark)):
                await reader.changed.wait()
        except TimeoutError:
            continue


def _next_bookmark(watch: ServedWatch, now: float, deadline: float) -> float:
    if not watch.bookmarks:
        return float("inf")
    regular = now + watch.bookmark_every.total_seconds()
    last = deadline - _BEFORE_THE_END
    return min(regular, last) if last > now else regular


def _everything(watch: ServedWatch, table: Table) -> Iterator[bytes]:
    namespace = watch.namespace if watch.view.resource.namespaced else ""
    for _, raw in table.within(namespace):
        if watch.selector.everything or watch.selector.matches(raw):
            yield _line("ADDED", watch.view.whole(raw))


def _shown(watch: ServedWatch, changes: list[StoredChange]) -> Iterator[bytes]:
    prefix = f"{watch.namespace}/" if watch.namespace and watch.view.resource.namespaced else ""
    for change in changes:
        if not change.key.startswith(prefix):
            continue
        if watch.selector.everything:
            yield _line(change.kind, watch.view.whole(change.raw))
            continue
        before = change.previous is not None and watch.selector.matches(change.previous)
        after = change.kind != "DELETED" and watch.selector.matches(change.raw)
        if after:
            yield _line("MODIFIED" if before else "ADDED", watch.view.whole(change.raw))
        elif before and change.previous is not None:
            # The last state that matched, with the version of the change.
            last = decode(change.previous)
            last["metadata"]["resourceVersion"] = str(change.version)
            yield _line("DELETED", watch.view.whole(encode(last)))


def _line(kind: ChangeType, shown: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + shown + b"}\n"


def _error(refusal: statuses.StatusError) -> bytes:
    return b'{"type":"ERROR","object":' + encode(refusal.body) + b"}\n"
