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
        async def one(job: Job) -> tuple[Job, Verdict | Exception]:
            try:
                with structlog.contextvars.bound_contextvars(deletion=job.deletion, job=job.id):
                    return job, await self._inner.attempt_one(job, batch)
            except Exception as error:  # noqa: BLE001  # one job's failure is its own; the runtime accounts for it
                return job, error

        tasks = [asyncio.ensure_future(one(job)) for job in batch.jobs]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
