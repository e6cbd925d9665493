"""The adapter for handlers that work on one job at a time.

The jobs of a batch are worked on side by side; each verdict is passed on as soon as it is there.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import structlog

from service.contract import Draw, Job, Verdict
from workers.handlers.protocol import Batch


class OneByOne(Protocol):
    @property
    def kind(self) -> str: ...

    def draws(self, lane: str) -> Sequence[Draw] | None: ...

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict: ...


class Single:
    """Makes a handler of something that attempts one job."""

    def __init__(self, inner: OneByOne) -> None:
        self._inner = inner
        self.kind = inner.kind

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._inner.draws(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        found = asyncio.Queue[tuple[Job, Verdict | Exception]]()

        async def one(job: Job) -> None:
            # In a task of its own there is nobody for whom it would have to be taken back.
            structlog.contextvars.bind_contextvars(deletion=job.deletion, job=job.id)
            try:
                found.put_nowait((job, await self._inner.attempt_one(job, batch)))
            except Exception as error:  # noqa: BLE001  # one job's failure is its own; the runtime accounts for it
                found.put_nowait((job, error))
            except asyncio.CancelledError:
                # Something that it waited for was called off; whoever is still interested must not wait for ever.
                found.put_nowait((job, RuntimeError("called off")))
                raise

        tasks = [asyncio.ensure_future(one(job)) for job in batch.jobs]
        try:
            for _ in tasks:
                yield await found.get()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
