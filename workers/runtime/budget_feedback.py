"""Feedback from provider responses to the shared budgets: remaining quota, throttling, pauses.

One correction per budget is sent at a time; feedback that arrives meanwhile goes with the next one.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from service.contract import Feedback, Limit, Pause
from service.engine.budgets import Budgets, LimitFeedback

UNNAMED_PAUSE = 1.0
"""Seconds for which a limit is paused when the provider named no time."""


@dataclass(slots=True)
class _PendingFeedback:
    limit: Limit
    answered: float = 0
    remaining: float = -1
    at: float = 0
    pause_until: float = 0
    refused: int = -1
    """Number of the latest reservation whose call was throttled; -1 for none."""


class BudgetFeedback:
    def __init__(self, budgets: Budgets, wake: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._budgets, self._wake = budgets, wake
        self._places: dict[str, dict[str, _PendingFeedback]] = {}
        self._sending: set[str] = set()
        self._group: asyncio.TaskGroup | None = None

    def attach(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def add(self, place: str, limit: Limit, feedback: Feedback, cost: float = 1.0, reserved: int = 0) -> None:
        pending = self._pending_for(place, limit)
        pending.answered += cost
        if isinstance(feedback, Pause):
            pending.refused = max(pending.refused, reserved)
            wait = feedback.wait.total_seconds() if feedback.wait is not None else UNNAMED_PAUSE
            pending.pause_until = max(pending.pause_until, time.monotonic() + wait)
        elif feedback.left is not None:
            pending.remaining, pending.at = feedback.left, time.monotonic()
        self._begin(place)

    def add_suspected(self, place: str, limit: Limit, reserved: int) -> None:
        """A throttled call drew on this limit too; the provider named another one."""
        pending = self._pending_for(place, limit)
        pending.refused = max(pending.refused, reserved)
        self._begin(place)

    def _pending_for(self, place: str, limit: Limit) -> _PendingFeedback:
        return self._places.setdefault(place, {}).setdefault(limit.name, _PendingFeedback(limit))

    def _begin(self, place: str) -> None:
        if place not in self._sending and self._group is not None:
            self._sending.add(place)
            sending = self._send(place)
            try:
                self._group.create_task(sending)
            except RuntimeError:
                # The task group is shutting down and accepts no new task.
                sending.close()

    async def _send(self, place: str) -> None:
        try:
            while heard := self._places.pop(place, None):
                if await self._budgets.correct(place, partial(_said, list(heard.values()))):
                    await self._wake(place)
        finally:
            self._sending.discard(place)


def _said(heard: list[_PendingFeedback]) -> list[LimitFeedback]:
    """Ages and pauses as of now."""
    now = time.monotonic()
    return [
        LimitFeedback(
            word.limit, word.answered, word.remaining,
            int((now - word.at) * 1000) if word.remaining >= 0 else 0,
            int(max(0.0, word.pause_until - now) * 1000) if word.pause_until else -1,
            int(word.refused >= 0), max(0, word.refused),
        )
        for word in heard
    ]  # fmt: skip
