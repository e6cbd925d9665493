"""Resources of one kind and subscription in the order of their ids, as lists and queries walk them.
The order is kept when it is asked for, so that tens of thousands can be made at once and a page costs no sorting."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

from standins.azure.thing import Thing

_FEW: Final = 64


class Shelf:
    def __init__(self) -> None:
        self._things: dict[str, Thing] = {}
        self._keys: list[str] = []
        self._new: list[str] = []

    def __len__(self) -> int:
        return len(self._things)

    def get(self, key: str) -> Thing | None:
        return self._things.get(key)

    def put(self, thing: Thing) -> None:
        if thing.key not in self._things:
            self._new.append(thing.key)
        self._things[thing.key] = thing

    def remove(self, key: str) -> None:
        if self._things.pop(key, None) is not None:
            keys = self._ordered()
            del keys[bisect_left(keys, key)]

    def after(self, key: str, count: int, *, within: str = "") -> list[Thing]:
        """So many that follow a key, all of whose keys begin with `within`."""
        keys = self._ordered()
        start = bisect_right(keys, key) if key >= within and key else bisect_left(keys, within)
        return [self._things[one] for one in keys[start : start + count] if one.startswith(within)]

    def __iter__(self) -> Iterator[Thing]:
        things = self._things
        return (things[key] for key in self._ordered())

    def _ordered(self) -> list[str]:
        if len(self._new) > _FEW:
            self._keys += self._new
            self._keys.sort()
        else:
            for key in self._new:
                insort(self._keys, key)
        self._new.clear()
        return self._keys
