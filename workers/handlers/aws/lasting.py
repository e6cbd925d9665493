"""Looks that last longer than who asks may wait: they go on without him, and he comes back for what they found.
An answer is for whoever asks in the same name, and for the same: so it is never older than the first time he asked."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

PATIENCE: Final = timedelta(seconds=27)
"""How long who asks is kept waiting, at most."""

BRIEFLY: Final = timedelta(seconds=2)
"""The same for who comes back: what lasts is not waited for in a place that others could use."""

KEPT: Final = timedelta(minutes=5)
"""How long an answer, or a failure, is kept for who comes back."""

MOST: Final = 10_000
"""Looks that are known here; the oldest are called off first."""


class Unfinished(Exception):
    """It goes on, and is to be asked for again under the same name."""


@dataclass(slots=True, eq=False)
class _Look(Generic[T]):
    question: object
    task: asyncio.Task[T]
    dropping: asyncio.TimerHandle | None = None


class Lasting(Generic[T]):
    """Of one process: the names that it gives are of nobody else, also after a restart."""

    def __init__(self, patience: timedelta = PATIENCE, *, kept: timedelta = KEPT, most: int = MOST) -> None:
        self._patience, self._kept, self._most = patience, kept.total_seconds(), most
        self._front, self._numbers = secrets.token_hex(4), count(1)
        self._looks: dict[str, _Look[T]] = {}

    def name(self, before: Iterable[str] = ()) -> str:
        """The one of those names under which something is to be had here, else a new one."""
        known = next((one for one in before if one in self._looks), None)
        return known or f"{self._front}-{next(self._numbers)}"

    async def ask(self, name: str, question: object, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What was begun under that name for the same question, or what is begun now. Each answer is given once, and so
        is a failure: who asks again then begins anew. Raises Unfinished."""
        look, wait = self._looks.get(name), min(self._patience, BRIEFLY)
        if look is None or look.question != question:
            look, wait = self._begin(name, question, begin()), self._patience
        # Not a wait for the task itself: when who asks is called off, it goes on.
        await asyncio.wait([look.task], timeout=wait.total_seconds())
        if not look.task.done():
            raise Unfinished
        self._forget(name, look)
        if look.task.cancelled():
            # Called off to make room for others: who asks was not.
            raise Unfinished
        return look.task.result()

    async def aclose(self) -> None:
        """Nobody comes back any more."""
        looks = list(self._looks.items())
        for name, look in looks:
            self._forget(name, look)
            look.task.cancel()
        await asyncio.gather(*(look.task for _, look in looks), return_exceptions=True)

    def _begin(self, name: str, question: object, work: Coroutine[Any, Any, T]) -> _Look[T]:
        if name in self._looks:
            self._call_off(name)
        while len(self._looks) >= self._most:
            self._call_off(next(iter(self._looks)))
        look = self._looks[name] = _Look(question, asyncio.ensure_future(work))
        look.task.add_done_callback(lambda _: self._ended(name, look))
        return look

    def _call_off(self, name: str) -> None:
        look = self._looks[name]
        self._forget(name, look)
        look.task.cancel()

    def _ended(self, name: str, look: _Look[T]) -> None:
        if not look.task.cancelled():
            # Should nobody come back, its failure is nobody's.
            look.task.exception()
        if self._looks.get(name) is look:
            loop = asyncio.get_running_loop()
            look.dropping = loop.call_later(self._kept, self._forget, name, look)

    def _forget(self, name: str, look: _Look[T]) -> None:
        if look.dropping is not None:
            look.dropping.cancel()
        if self._looks.get(name) is look:
            del self._looks[name]
