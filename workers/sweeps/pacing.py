"""Keeps a sweep from telling more at once than planners have done in a moment.
Events are planned in the order in which they came: one that somebody waits for must not stand behind thousands."""

import asyncio
import time
from datetime import timedelta
from typing import Final

from service.engine.installation import Installation

MOST: Final = 100
"""So few events may be waiting for their plans when more are added."""

PATIENCE: Final = timedelta(seconds=10)
_LOOK: Final = 0.1


class Pacing:
    """Of one pass."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._full = False

    async def room(self) -> bool:
        """Waits for it a while. Once there was none there is none in this pass: a later one tells the rest."""
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while not self._full and await self._unplanned() > MOST:
            self._full = time.monotonic() > deadline
            await asyncio.sleep(_LOOK)
        return not self._full

    async def _unplanned(self) -> int:
        """An event is in the stream until it is planned."""
        lengths = [await shard.caller.command("XLEN", f"{shard.stem}events") for shard in self._installation.shards]
        return sum(map(int, lengths))
