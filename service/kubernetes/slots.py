"""How many calls to one server are made side by side, and how many of them about one kind of object.
A kind whose calls hang, such as one with a conversion webhook that is down, must not use up the turns of all others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE: Final = 32
OF_ONE_KIND: Final = 24


class Slots:
    def __init__(self, at_once: int = AT_ONCE, of_one_kind: int = OF_ONE_KIND) -> None:
        self._all, self._each = asyncio.Semaphore(at_once), of_one_kind
        self._kinds: dict[str, _Kind] = {}

    @asynccontextmanager
    async def of(self, path: str) -> AsyncIterator[None]:
        """A turn for a call of that path; the kind's own comes first, so that who waits for it is in nobody's way."""
        name = kind_in(path)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind(self._each)
        kind.users += 1
        try:
            async with kind.turns, self._all:
                yield
        finally:
            kind.users -= 1
            if not kind.users:
                del self._kinds[name]


class _Kind:
    def __init__(self, each: int) -> None:
        self.turns = asyncio.Semaphore(each)
        self.users = 0


def kind_in(path: str) -> str:
    """Group and plural of what a path is about, in whatever namespace and version; of other paths the path itself."""
    parts = path.split("/")
    if len(parts) > 3 and parts[1] == "apis":
        group, rest = parts[2], parts[4:]
    elif len(parts) > 2 and parts[1] == "api":
        group, rest = "", parts[3:]
    else:
        return path
    # A Namespace is an object, too: only what comes after its name is of another kind.
    plural = rest[2] if len(rest) > 2 and rest[0] == "namespaces" else rest[0] if rest else ""
    return f"{plural}.{group}"
