"""Waits for a state with a deadline; the failure says which state was not reached.

Nothing here sleeps for a time that a test guessed: it checks, and checks again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from redis.exceptions import TimeoutError as ServerSilentError

T = TypeVar("T")
STEP = 0.01
PATIENCE = timedelta(seconds=100)


async def until(what: str, look: Callable[[], Awaitable[T]], within: timedelta = PATIENCE, *, step: float = STEP) -> T:
    """The first answer that is true in itself; what was seen last stands in the failure. A server that a busy machine
    keeps from answering in time is asked again."""
    deadline = time.monotonic() + within.total_seconds()
    while True:
        seen: object
        try:
            seen = answer = await look()
            if answer:
                return answer
        except ServerSilentError as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within.total_seconds():g} s in vain until {what}; last seen: {seen!r}")
        await asyncio.sleep(step)


async def stays(what: str, look: Callable[[], Awaitable[bool]], during: timedelta, *, step: float = STEP) -> None:
    """A state that must not change for a while: the only way to see that nothing happens."""
    end = time.monotonic() + during.total_seconds()
    while time.monotonic() < end:
        assert await look(), f"it did not stay so that {what}"
        await asyncio.sleep(step)


async def at_once(seen: T) -> T:
    """What is known without asking anybody, in the shape that `until` and `stays` look at."""
    return seen
