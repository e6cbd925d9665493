"""Tables of objects, each as compact JSON bytes, and the history of their changes under one rising resourceVersion.
It knows nothing of verbs or kinds; whoever wants to hear of every change adds a listener."""

import asyncio
import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from standins.api.documents import Document, encode

Kind: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

# As on a real server that has just started, resourceVersion 1 is something nobody remembers.
_FIRST_VERSION: Final = 100
_SNAPSHOTS: Final = 32


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    kind: Kind
    key: str
    raw: bytes
    previous: bytes | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects at one moment, in the order of their keys; the bytes are shared with the table."""

    keys: list[str]
    objects: dict[str, bytes]

    def span(self, prefix: str) -> tuple[int, int]:
        return _span(self.keys, prefix)


@dataclass(slots=True)
class Table:
    floor: int
    objects: dict[str, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    # The version of the last change, also when that is forgotten.
    last: int = 0
    changes: list[Change] = field(default_factory=list)
    readers: "set[Reader]" = field(default_factory=set)
    snapshots: "OrderedDict[int, Snapshot]" = field(default_factory=OrderedDict)

    def within(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Objects of a namespace, or all when it is empty."""
        low, high = _span(self.keys, f"{namespace}/" if namespace else "")
        for key in self.keys[low:high]:
            yield key, self.objects[key]

    def count(self, namespace: str) -> int:
        low, high = _span(self.keys, f"{namespace}/")
        return high - low

    def since(self, version: int) -> list[Change]:
        """Changes after a version; only to be asked for versions not below the floor."""
        return self.changes[bisect.bisect_right(self.changes, version, key=lambda change: change.version) :]

    def keep_snapshot(self, version: int) -> Snapshot:
        found = self.snapshots.get(version)
        if found is None:
            latest = next(reversed(self.snapshots), None)
            unchanged = latest is not None and latest >= self.floor and not self.since(latest)
            if latest is not None and unchanged:
                found = self.snapshots[latest]
            else:
                found = Snapshot(list(self.keys), dict(self.objects))
            self.snapshots[version] = found
        self.snapshots.move_to_end(version)
        while len(self.snapshots) > _SNAPSHOTS:
            self.snapshots.popitem(last=False)
        return found

    def forget(self, version: int) -> None:
        """Running readers keep what they have not read yet: on a real server, too, a compaction spares them."""
        for reader in self.readers:
            reader.held += self.since(reader.position)
            reader.position = max(reader.position, version)
        self.changes.clear()
        self.snapshots.clear()
        self.floor = version

    def trim(self, keep: int) -> None:
        cut = len(self.changes) - keep
        self.floor = self.changes[cut - 1].version
        del self.changes[:cut]
        for reader in self.readers:
            if reader.position < self.floor:
                reader.end("slow")

    def wake(self) -> None:
        for reader in self.readers:
            reader.news.set()


class Reader:
    """Somebody who follows a table. It is behind by what it has not asked for yet, and ends when told why."""

    def __init__(self, table: Table, position: int) -> None:
        self.position = position
        self.held: list[Change] = []
        self.news = asyncio.Event()
        self.ended: Literal["", "slow", "dropped", "expired", "closed"] = ""
        self._table = table
        table.readers.add(self)

    def read(self) -> list[Change]:
        self.news.clear()
        changes = self.held + self._table.since(self.position)
        self.held = []
        if changes:
            self.position = max(self.position, changes[-1].version)
        return changes

    @property
    def latest(self) -> int:
        """The version of the last change there was, read or not."""
        return self._table.last

    def end(self, why: Literal["slow", "dropped", "expired", "closed"]) -> None:
        self.ended = why
        self.news.set()

    def leave(self) -> None:
        self._table.readers.discard(self)


@dataclass(frozen=True, slots=True)
class Saved:
    """Everything a store held at one moment; the bytes are shared with it."""

    version: int
    objects: dict[str, dict[str, bytes]]


class Store:
    def __init__(self, history: int) -> None:
        self.version = _FIRST_VERSION
        self.tables: dict[str, Table] = {}
        self.listeners: list[Callable[[str, Change], None]] = []
        self._history = history

    def table(self, name: str) -> Table:
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = Table(self.version)
        return found

    def drop(self, name: str) -> None:
        """Forgets a table with everything in it; running watches of it end."""
        table = self.tables.pop(name, None)
        if table is not None:
            for reader in table.readers:
                reader.end("dropped")

    def put(self, name: str, key: str, document: Document) -> bytes:
        table = self.table(name)
        previous = table.objects.get(key)
        raw = self._stamped(document)
        if previous is None:
            bisect.insort(table.keys, key)
        table.objects[key] = raw
        self._note(name, table, Change(self.version, "MODIFIED" if previous else "ADDED", key, raw, previous))
        return raw

    def remove(self, name: str, key: str, document: Document) -> bytes:
        """The last state goes out with the version of its removal, as the real server does it."""
        table = self.table(name)
        previous = table.objects.pop(key)
        del table.keys[bisect.bisect_left(table.keys, key)]
        raw = self._stamped(document)
        self._note(name, table, Change(self.version, "DELETED", key, raw, previous))
        return raw

    def save(self) -> Saved:
        return Saved(self.version, {name: dict(table.objects) for name, table in self.tables.items()})

    def restore(self, saved: Saved) -> None:
        """Versions handed out since are handed out again, as after the restore of an etcd."""
        self.end_readers("closed")
        self.version = saved.version
        self.tables = {
            name: Table(saved.version, dict(objects), sorted(objects)) for name, objects in saved.objects.items()
        }

    def compact(self) -> None:
        for table in self.tables.values():
            table.forget(self.version)

    def end_readers(self, why: Literal["expired", "closed"]) -> None:
        for table in self.tables.values():
            for reader in table.readers:
                reader.end(why)

    def _stamped(self, document: Document) -> bytes:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        return encode(document)

    def _note(self, name: str, table: Table, change: Change) -> None:
        table.changes.append(change)
        table.last = change.version
        if len(table.changes) > self._history + self._history // 4:
            table.trim(self._history)
        table.wake()
        for listener in self.listeners:
            listener(name, change)


def _span(keys: list[str], prefix: str) -> tuple[int, int]:
    if not prefix:
        return 0, len(keys)
    # The sign after the slash closes the range: no name can contain it.
    return bisect.bisect_left(keys, prefix), bisect.bisect_left(keys, prefix[:-1] + "0")
