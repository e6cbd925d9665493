"""Looks that are made so that nobody has to wait: at once when something changed, and again a moment later.
Without them everything is looked at as well, only later; so trouble with one is told, and does no harm."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

AGAIN: Final = (1.0, 4.0)
"""Seconds until the next looks: who was just judging it may still have seen the old marks, and holds it afterwards."""

_TROUBLE: Final = 5.0


async def look_when_due(
    source: str, changed: asyncio.Event, due: Callable[[], Iterable[float]], look: Callable[[], Awaitable[None]]
) -> None:
    """Until cancelled; `due` are the moments, by the monotonic clock, at which there is something to look at."""
    while True:
        first = min(due(), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if first is None else max(0.0, first - time.monotonic())):
                await changed.wait()
        changed.clear()
        try:
            await look()
        except Exception:
            log.exception("what is held could not be looked at anew", source=source)
            await asyncio.sleep(_TROUBLE)
