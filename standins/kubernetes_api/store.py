"""Object store: tables of objects as JSON bytes, and the history of their changes under one rising resourceVersion.
It knows nothing of verbs or resources; listeners are called on every change."""

import asyncio
import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from standins.kubernetes_api.documents import Document, encode

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

# As on a real server that has just started, resourceVersion 1 is too old.
_FIRST_VERSION: Final = 100
_SNAPSHOTS: Final = 32


@dataclass(frozen=True, slots=True)
class StoredChange:
    version: int
    kind: ChangeType
    key: str
    raw: bytes
    previous: bytes | None


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """All objects of a table at one version, ordered by key; the bytes are shared with the table."""

    keys: list[str]
    objects: dict[str, bytes]

    def span(self, prefix: str) -> tuple[int, int]:
        return _span(self.keys, prefix)


@dataclass(slots=True)
class Table:
    floor: int
    objects: dict[str, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    # The version of the last change, even if the change itself was compacted.
    last: int = 0
    changes: list[StoredChange] = field(default_factory=list)
    readers: "set[TableReader]" = field(default_factory=set)
    snapshots: "OrderedDict[int, TableSnapshot]" = field(default_factory=OrderedDict)

    def within(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Objects of a namespace, or all when it is empty."""
        low, high = _span(self.keys, f"{namespace}/" if namespace else "")
        for key in self.keys[low:high]:
            yield key, self.objects[key]

    def count(self, namespace: str) -> int:
        low, high = _span(self.keys, f"{namespace}/")
        return high - low

    def since(self, version: int) -> list[StoredChange]:
        """Changes after a version, which must not be below the floor."""
        return self.changes[bisect.bisect_right(self.changes, version, key=lambda change: change.version) :]

    def keep_snapshot(self, version: int) -> TableSnapshot:
        found = self.snapshots.get(version)
        if found is None:
            latest = next(reversed(self.snapshots), None)
            unchanged = latest is not None and latest >= self.floor and not self.since(latest)
            if latest is not None and unchanged:
                found = self.snapshots[latest]
            else:
                found = TableSnapshot(list(self.keys), dict(self.objects))
            self.snapshots[version] = found
        self.snapshots.move_to_end(version)
        while len(self.snapshots) > _SNAPSHOTS:
            self.snapshots.popitem(last=False)
        return found

    def forget(self, version: int) -> None:
        """Drops the history. Running readers keep the changes they have not read, as on a real server."""
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
            reader.changed.set()


class TableReader:
    """Reader of the changes of a table, at a position of its own. `ended` says why it was ended."""

    def __init__(self, table: Table, position: int) -> None:
        self.position = position
        self.held: list[StoredChange] = []
        self.changed = asyncio.Event()
        self.ended: Literal["", "slow", "dropped", "expired", "closed"] = ""
        self._table = table
        table.readers.add(self)

    def read(self) -> list[StoredChange]:
        self.changed.clear()
        changes = self.held + self._table.since(self.position)
        self.held = []
        if changes:
            self.position = max(self.position, changes[-1].version)
        return changes

    @property
    def latest(self) -> int:
        """The version of the last change, read or not."""
        return self._table.last

    def end(self, why: Literal["slow", "dropped", "expired", "closed"]) -> None:
        self.ended = why
        self.changed.set()

    def leave(self) -> None:
        self._table.readers.discard(self)


@dataclass(frozen=True, slots=True)
class SavedState:
    """All objects of a store at one version; the bytes are shared with the store."""

    version: int
    objects: dict[str, dict[str, bytes]]


class ObjectStore:
    def __init__(self, history: int) -> None:
        self.version = _FIRST_VERSION
        self.tables: dict[str, Table] = {}
        self.listeners: list[Callable[[str, StoredChange], None]] = []
        self._history = history

    def table(self, name: str) -> Table:
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = Table(self.version)
        return found

    def drop(self, name: str) -> None:
        """Drops a table with all its objects and ends its readers."""
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
        self._record(name, table, StoredChange(self.version, "MODIFIED" if previous else "ADDED", key, raw, previous))
        return raw

    def remove(self, name: str, key: str, document: Document) -> bytes:
        """The DELETED change carries the last state with the version of the removal, as on the real server."""
        table = self.table(name)
        previous = table.objects.pop(key)
        del table.keys[bisect.bisect_left(table.keys, key)]
        raw = self._stamped(document)
        self._record(name, table, StoredChange(self.version, "DELETED", key, raw, previous))
        return raw

    def save(self) -> SavedState:
        return SavedState(self.version, {name: dict(table.objects) for name, table in self.tables.items()})

    def restore(self, saved: SavedState) -> None:
        """Goes back to a saved state. Versions assigned since are assigned again, as after an etcd restore."""
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

    def _record(self, name: str, table: Table, change: StoredChange) -> None:
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
    # `0` follows the slash in ASCII and closes the range.
    return bisect.bisect_left(keys, prefix), bisect.bisect_left(keys, prefix[:-1] + "0")
