"""Immutable versions of resources, and an index that keeps those of one kind and subscription ordered by id.
Every change makes a new version, so Resource Graph can serve an older state without copies."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

import msgspec

from standins.azure.resources import NewResource, ResourceKind, id_of


class StoredResource(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`key` is its id in small letters. `version` grows with every change of anything. `stamp` is when it was made, by
    the wall clock: callers compare it with theirs. `holder` is the id of what it is attached to, `operation` of what
    deletes it."""

    kind: ResourceKind
    key: str
    version: int
    stamp: float
    state: str
    guid: str
    spec: NewResource
    holder: str = ""
    operation: str = ""

    @property
    def id(self) -> str:
        return id_of(self.spec.subscription, self.spec.group, self.kind, self.spec.name)


_FEW: Final = 64


class ResourceIndex:
    def __init__(self) -> None:
        self._resources: dict[str, StoredResource] = {}
        self._keys: list[str] = []
        self._new: list[str] = []

    def __len__(self) -> int:
        return len(self._resources)

    def get(self, key: str) -> StoredResource | None:
        return self._resources.get(key)

    def put(self, resource: StoredResource) -> None:
        if resource.key not in self._resources:
            self._new.append(resource.key)
        self._resources[resource.key] = resource

    def remove(self, key: str) -> None:
        if self._resources.pop(key, None) is not None:
            keys = self._ordered()
            del keys[bisect_left(keys, key)]

    def after(self, key: str, count: int, *, within: str = "") -> list[StoredResource]:
        """So many that follow a key, all of whose keys begin with `within`."""
        keys = self._ordered()
        start = bisect_right(keys, key) if key >= within and key else bisect_left(keys, within)
        return [self._resources[one] for one in keys[start : start + count] if one.startswith(within)]

    def __iter__(self) -> Iterator[StoredResource]:
        resources = self._resources
        return (resources[key] for key in self._ordered())

    def _ordered(self) -> list[str]:
        if len(self._new) > _FEW:
            self._keys += self._new
            self._keys.sort()
        else:
            for key in self._new:
                insort(self._keys, key)
        self._new.clear()
        return self._keys
