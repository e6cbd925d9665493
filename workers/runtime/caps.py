"""How many jobs of a lane may be in the air at once, over all workers.

The number itself is the size of the lane's lease set; here is only what the settings allow.
"""

from fnmatch import fnmatchcase

from service.settings import WorkerSettings


class Caps:
    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._known: dict[str, int] = {}

    def of(self, lane: str) -> int:
        cap = self._known.get(lane)
        if cap is None:
            patterns = self._settings.lane_caps.items()
            cap = next((cap for pattern, cap in patterns if fnmatchcase(lane, pattern)), self._settings.lane_cap)
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[lane] = cap
        return cap
