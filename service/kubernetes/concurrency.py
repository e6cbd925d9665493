"""Limits of concurrent calls to one server, in all and per kind of object. A kind whose calls hang, such as one with a
conversion webhook that is down, must not use up the slots of all others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE: Final = 32
PER_KIND: Final = 24


class CallLimits:
    def __init__(self, at_once: int = AT_ONCE, per_kind: int = PER_KIND) -> None:
        self._all, self._per_kind = asyncio.Semaphore(at_once), per_kind
        self._kinds: dict[str, _KindLimit] = {}

    @asynccontextmanager
    async def slot(self, path: str) -> AsyncIterator[None]:
        """Waits for a slot of the kind first, so that waiting for it occupies no slot of the others."""
        name = kind_in(path)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _KindLimit(self._per_kind)
        kind.users += 1
        try:
            async with kind.slots, self._all:
                yield
        finally:
            kind.users -= 1
            if not kind.users:
                del self._kinds[name]


class _KindLimit:
    def __init__(self, per_kind: int) -> None:
        self.slots = asyncio.Semaphore(per_kind)
        self.users = 0


def kind_in(path: str) -> str:
    """Plural and group of the resource of a path, whatever its namespace and version; other paths are returned as they
    are."""
    parts = path.split("/")
    if len(parts) > 3 and parts[1] == "apis":
        group, rest = parts[2], parts[4:]
    elif len(parts) > 2 and parts[1] == "api":
        group, rest = "", parts[3:]
    else:
        return path
    # A Namespace is an object, too: another kind comes only after its name.
    plural = rest[2] if len(rest) > 2 and rest[0] == "namespaces" else rest[0] if rest else ""
    return f"{plural}.{group}"
