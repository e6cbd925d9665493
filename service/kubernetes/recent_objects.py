"""Cache of objects that the watch side has just seen going, for a planner in the same process, which saves a read.
Before anything is deleted the object is read again in any case."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from service.kubernetes.objects import KubeObject

FRESH: Final = timedelta(seconds=5)
"""How long an object may be used: it is as old as a read whose response took that long."""

MOST: Final = 2048
"""Objects that are cached; of more, the oldest are dropped, and the planner reads them."""


class RecentObjects:
    """Each object can be taken once. They have no raw JSON."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str, str], tuple[float, KubeObject]] = {}

    def note(self, cluster: str, resource: str, seen: KubeObject) -> None:
        """`cluster` is its uid."""
        key = cluster, resource, seen.uid
        # Removed first, so that the latest are last.
        self._seen.pop(key, None)
        self._seen[key] = self._clock(), seen.without_raw()
        if len(self._seen) > MOST:
            del self._seen[next(iter(self._seen))]

    def forget(self, cluster: str, resource: str, uid: str) -> None:
        """To be called when it has changed."""
        self._seen.pop((cluster, resource, uid), None)

    def take(self, cluster: str, resource: str, uid: str) -> KubeObject | None:
        at, seen = self._seen.pop((cluster, resource, uid), (0.0, None))
        return seen if seen is not None and self._clock() - at <= FRESH.total_seconds() else None
