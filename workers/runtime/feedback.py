"""What answers said about quotas, gathered and passed on to the budgets that all workers share.

One correction for each place is under way at a time; what comes meanwhile goes with the next.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from service.contract import Feedback, Limit, Pause
from service.engine.budgets import Budgets, Said

UNNAMED_PAUSE = 1.0
"""Seconds to stay away from a limit whose refusal named no time."""


@dataclass(slots=True)
class _Gathered:
    limit: Limit
    answered: float = 0
    remaining: float = -1
    at: float = 0
    pause_until: float = 0
    refused: int = -1
    """The number of the last reservation of which a call was refused."""


class Reports:
    def __init__(self, budgets: Budgets, wake: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._budgets, self._wake = budgets, wake
        self._places: dict[str, dict[str, _Gathered]] = {}
        self._sending: set[str] = set()
        self._group: asyncio.TaskGroup | None = None

    def attach(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def hear(self, place: str, limit: Limit, feedback: Feedback, cost: float = 1.0, reserved: int = 0) -> None:
        gathered = self._gathered(place, limit)
        gathered.answered += cost
        if isinstance(feedback, Pause):
            gathered.refused = max(gathered.refused, reserved)
            wait = feedback.wait.total_seconds() if feedback.wait is not None else UNNAMED_PAUSE
            gathered.pause_until = max(gathered.pause_until, time.monotonic() + wait)
        elif feedback.left is not None:
            gathered.remaining, gathered.at = feedback.left, time.monotonic()
        self._begin(place)

    def doubt(self, place: str, limit: Limit, reserved: int) -> None:
        """A call was refused that drew on this limit and on one that was told of."""
        gathered = self._gathered(place, limit)
        gathered.refused = max(gathered.refused, reserved)
        self._begin(place)

    def _gathered(self, place: str, limit: Limit) -> _Gathered:
        return self._places.setdefault(place, {}).setdefault(limit.name, _Gathered(limit))

    def _begin(self, place: str) -> None:
        if place not in self._sending and self._group is not None:
            self._sending.add(place)
            sending = self._send(place)
            try:
                self._group.create_task(sending)
            except RuntimeError:
                # A worker that is torn down takes on nothing more, and an answer may come in that very moment.
                sending.close()

    async def _send(self, place: str) -> None:
        try:
            while heard := self._places.pop(place, None):
                if await self._budgets.correct(place, partial(_said, list(heard.values()))):
                    await self._wake(place)
        finally:
            self._sending.discard(place)


def _said(heard: list[_Gathered]) -> list[Said]:
    """What was heard, as old as it is now."""
    now = time.monotonic()
    return [
        Said(
            word.limit, word.answered, word.remaining,
            int((now - word.at) * 1000) if word.remaining >= 0 else 0,
            int(max(0.0, word.pause_until - now) * 1000) if word.pause_until else -1,
            int(word.refused >= 0), max(0, word.refused),
        )
        for word in heard
    ]  # fmt: skip
