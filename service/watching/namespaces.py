"""The marks of Namespaces, which are policy, too: what they were when an observed object was last known to live.
A Namespace often goes with its objects, and then nobody else could tell what was said there."""

import time
from collections.abc import Iterable

from service.engine.inventory import Inventory, NamespaceMarks
from service.kubernetes import Cluster, ClusterError, NotFound, TooMany, Unavailable
from service.watching.proving import each
from service.watching.reporting import Report


class Namespaces:
    def __init__(self, cluster: Cluster, store: Inventory, report: Report) -> None:
        self._cluster, self._store, self._report = cluster, store, report
        self._read: set[str] = set()

    def begin(self) -> None:
        """A list begins: all are read anew."""
        self._read.clear()

    async def note(self, names: Iterable[str]) -> None:
        """Once for each list, and when one is met for the first time."""
        fresh = {name for name in names if name and name not in self._read}
        await self._store.note_marks(await self._live(fresh))
        self._read |= fresh

    async def last(self, names: Iterable[str]) -> dict[str, NamespaceMarks | None]:
        """As they are now, or, with the Namespace gone as well, as they were."""
        wanted = {name for name in names if name}
        live = await self._live(wanted)
        return {name: live.get(name) or await self._store.marks(name) for name in wanted}

    async def _live(self, names: set[str]) -> dict[str, NamespaceMarks]:
        found: dict[str, NamespaceMarks] = {}

        async def look(name: str) -> None:
            if (marks := await self._look(name)) is not None:
                found[name] = marks

        await each(names, look)
        return found

    async def _look(self, name: str) -> NamespaceMarks | None:
        """None where it is gone or can't be read: what was remembered before stays."""
        try:
            return NamespaceMarks(await self._cluster.namespace_marks(name), int(time.time() * 1000))
        except (Unavailable, TooMany):
            raise
        except NotFound:
            return None
        except ClusterError as error:
            self._report.warned("marks of a Namespace can't be read", namespace=name, reason=str(error))
            return None
