"""The last look before a destructive call: is anything paused, is the lease still ours?

Checks that come at the same moment share one read, so a batch costs one round trip and not one for each job.
"""

import asyncio
import time

from service.contract import Draw, place_of
from service.stream.calls import Caller
from service.stream.keys import Keys
from workers.handlers.protocol import NotCleared
from workers.runtime.clock import ServerClock


class Gate:
    """Pauses of one shard, read fresh."""

    def __init__(self, caller: Caller, keys: Keys, shard: int, clock: ServerClock) -> None:
        self._caller, self._keys, self._clock = caller, keys, clock
        self._paused_key = keys.of(shard, "paused")
        self._waiting: dict[str, asyncio.Task[NotCleared | None]] = {}
        self._local: dict[tuple[str, str], float] = {}

    def paused_here(self, lane: str, limit: str, until: float) -> None:
        """An answer in this process named a pause: it holds at once, before the budget has been told."""
        # A limit has the same name in every account: only that of this place is paused.
        key = place_of(lane), limit
        self._local[key] = max(self._local.get(key, 0.0), until)

    async def check(self, lane: str, draws: tuple[Draw, ...]) -> None:
        for draw in draws:
            rest = self._local.get((place_of(lane), draw.limit.name), 0.0) - time.monotonic()
            if rest > 0:
                raise NotCleared(f"{draw.limit.name} is paused", int(rest * 1000) + 1)
        task = self._waiting.get(lane)
        if task is None:
            task = asyncio.ensure_future(self._read(lane, draws))
            self._waiting[lane] = task
        stop = await asyncio.shield(task)
        if stop is not None:
            raise NotCleared(str(stop), stop.wait_ms)

    async def _read(self, lane: str, draws: tuple[Draw, ...]) -> NotCleared | None:
        # Whoever asks from now on may not rely on an answer that is already on its way.
        await asyncio.sleep(0)
        self._waiting.pop(lane, None)
        reads = [self._caller.command("HMGET", self._paused_key, "*", lane)]
        if draws:
            fields = [f"{draw.limit.name}|pause" for draw in draws]
            reads.append(self._caller.command("HMGET", self._keys.budget(place_of(lane)), *fields))
        by_hand, *budget = await asyncio.gather(*reads)
        if any(by_hand):
            return NotCleared("paused by hand")
        if budget:
            rest = max((float(until) for until in budget[0] if until), default=0.0) - self._clock.now_ms()
            if rest > 0:
                return NotCleared("the budget is paused", int(rest) + 1)
        return None
