"""Reads that may outlast the caller: they continue in the background, and the caller returns for the result. A result
goes only to a caller with the same name and question, so it is never older than the first request. Unlike with
`coalesced_reads`, callers share nothing, and a result is kept until its caller returns."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

MAX_WAIT: Final = timedelta(seconds=27)
"""How long a caller waits at most."""

RETURN_WAIT: Final = timedelta(seconds=2)
"""The same for a caller that returns: it must not occupy a slot while the read goes on."""

RESULT_TTL: Final = timedelta(minutes=5)
"""How long a result, or a failure, is kept for the caller to return."""

MAX_READS: Final = 10_000
"""Reads tracked at a time; the oldest are cancelled first."""


class StillRunning(Exception):
    """The read continues; ask again under the same name."""


@dataclass(slots=True, eq=False)
class _BackgroundRead(Generic[T]):
    question: object
    task: asyncio.Task[T]
    dropping: asyncio.TimerHandle | None = None


class BackgroundReads(Generic[T]):
    """Background reads of one process. The names it creates are unique, also across restarts."""

    def __init__(
        self, max_wait: timedelta = MAX_WAIT, *, result_ttl: timedelta = RESULT_TTL, max_reads: int = MAX_READS
    ) -> None:
        self._max_wait, self._result_ttl, self._max_reads = max_wait, result_ttl.total_seconds(), max_reads
        self._front, self._numbers = secrets.token_hex(4), count(1)
        self._reads: dict[str, _BackgroundRead[T]] = {}

    def name(self, before: Iterable[str] = ()) -> str:
        """The one of `before` that is tracked here, else a new name."""
        known = next((one for one in before if one in self._reads), None)
        return known or f"{self._front}-{next(self._numbers)}"

    async def result(self, name: str, question: object, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the read started under that name for the same question, or of one started now. Each result or
        failure is returned once; the next call starts anew. Raises StillRunning."""
        read, wait = self._reads.get(name), min(self._max_wait, RETURN_WAIT)
        if read is None or read.question != question:
            read, wait = self._start(name, question, start()), self._max_wait
        # Not awaiting the task itself: it continues when the caller is cancelled.
        await asyncio.wait([read.task], timeout=wait.total_seconds())
        if not read.task.done():
            raise StillRunning
        self._forget(name, read)
        if read.task.cancelled():
            # The read was cancelled to make room, not the caller.
            raise StillRunning
        return read.task.result()

    async def aclose(self) -> None:
        reads = list(self._reads.items())
        for name, read in reads:
            self._forget(name, read)
            read.task.cancel()
        await asyncio.gather(*(read.task for _, read in reads), return_exceptions=True)

    def _start(self, name: str, question: object, work: Coroutine[Any, Any, T]) -> _BackgroundRead[T]:
        if name in self._reads:
            self._cancel(name)
        while len(self._reads) >= self._max_reads:
            self._cancel(next(iter(self._reads)))
        read = self._reads[name] = _BackgroundRead(question, asyncio.ensure_future(work))
        read.task.add_done_callback(lambda _: self._ended(name, read))
        return read

    def _cancel(self, name: str) -> None:
        read = self._reads[name]
        self._forget(name, read)
        read.task.cancel()

    def _ended(self, name: str, read: _BackgroundRead[T]) -> None:
        if not read.task.cancelled():
            # Retrieved so that asyncio does not log it if the caller never returns.
            read.task.exception()
        if self._reads.get(name) is read:
            loop = asyncio.get_running_loop()
            read.dropping = loop.call_later(self._result_ttl, self._forget, name, read)

    def _forget(self, name: str, read: _BackgroundRead[T]) -> None:
        if read.dropping is not None:
            read.dropping.cancel()
        if self._reads.get(name) is read:
            del self._reads[name]
