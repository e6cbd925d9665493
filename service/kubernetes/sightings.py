"""Objects that the watch side of this process has just seen going, for the planner in the same process.
A plan may begin from what the server said a moment ago: before anything is destroyed, the object is read again."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from service.kubernetes.objects import Seen

FRESH: Final = timedelta(seconds=5)
"""How long a sighting serves. It is as old as a reading whose answer took that long."""

MOST: Final = 2048
"""Sightings that are kept; of more, the oldest are forgotten, and their objects are read."""


class Sightings:
    """Each serves once. Without their text: who needs that reads the object."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str, str], tuple[float, Seen]] = {}

    def note(self, cluster: str, resource: str, seen: Seen) -> None:
        """`cluster` is its uid."""
        key = cluster, resource, seen.uid
        # Taken out first: the latest stand last.
        self._seen.pop(key, None)
        self._seen[key] = self._clock(), seen.without_raw()
        if len(self._seen) > MOST:
            del self._seen[next(iter(self._seen))]

    def forget(self, cluster: str, resource: str, uid: str) -> None:
        """It has changed since."""
        self._seen.pop((cluster, resource, uid), None)

    def take(self, cluster: str, resource: str, uid: str) -> Seen | None:
        at, seen = self._seen.pop((cluster, resource, uid), (0.0, None))
        return seen if seen is not None and self._clock() - at <= FRESH.total_seconds() else None
