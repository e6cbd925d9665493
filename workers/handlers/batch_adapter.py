"""Adapter that turns a handler of single jobs into a handler of batches.

The jobs of a batch run concurrently; each verdict is passed on at once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import structlog

from service.contract import Draw, Job, Verdict
from workers.handlers.protocol import Batch


class SingleJobHandler(Protocol):
    @property
    def kind(self) -> str: ...

    def draws(self, lane: str) -> Sequence[Draw] | None: ...

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict: ...


class BatchAdapter:
    """Implements `Handler` with a SingleJobHandler."""

    def __init__(self, inner: SingleJobHandler) -> None:
        self._inner = inner
        self.kind = inner.kind

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._inner.draws(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        found = asyncio.Queue[tuple[Job, Verdict | Exception]]()

        async def one(job: Job) -> None:
            # Not unbound afterwards: the task has a context of its own.
            structlog.contextvars.bind_contextvars(deletion=job.deletion, job=job.id)
            try:
                found.put_nowait((job, await self._inner.attempt_one(job, batch)))
            except Exception as error:  # noqa: BLE001  # one job's failure is its own; the runtime accounts for it
                found.put_nowait((job, error))
            except asyncio.CancelledError:
                # Something that it waited for was cancelled; the consumer of the queue must not wait for ever.
                found.put_nowait((job, RuntimeError("cancelled")))
                raise

        tasks = [asyncio.ensure_future(one(job)) for job in batch.jobs]
        try:
            for _ in tasks:
                yield await found.get()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
