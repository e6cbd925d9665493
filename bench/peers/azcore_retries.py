"""Retries as in the Azure SDK for Go by default: four attempts, after what the response says or a wait that grows.

With it a program in Python calls as often, and as soon after a refusal, as one in Go does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

ATTEMPTS: Final = 4
FIRST_WAIT: Final = 0.8
LONGEST_WAIT: Final = 60.0
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any = None

    @property
    def wait(self) -> float | None:
        """Seconds for which it says to wait."""
        for name, unit in (("x-ms-retry-after-ms", 1000.0), ("Retry-After", 1.0)):
            if name in self.headers:
                return float(self.headers[name]) / unit
        return None


class AzcoreRetries:
    """Its own waits are shortened by `scale`, as the subscription's time is; those that answers tell are in our seconds
    already."""

    def __init__(self, scale: float = 1.0, draw: Callable[[], float] = random.random) -> None:
        self._scale, self._draw = scale, draw

    async def of(self, call: Callable[[], Awaitable[Answered]]) -> Answered:
        """What the last attempt was answered."""
        for attempt in range(1, ATTEMPTS):
            answer = await call()
            if answer.status not in PASSING:
                return answer
            await asyncio.sleep(answer.wait if answer.wait is not None else self.wait_after(attempt))
        return await call()

    def wait_after(self, attempt: int) -> float:
        """Seconds; attempts are counted from one. Jitter lies between 0.8 and 1.3."""
        wait = FIRST_WAIT * (2.0**attempt - 1) * (self._draw() / 2 + 0.8)
        return min(wait, LONGEST_WAIT) / self._scale
