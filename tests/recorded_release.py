"""Release handler for events without a cluster: records the release and patches nothing.
The engine's tests and the bench use it in a registry of their own, where there is no object to release."""

from collections.abc import AsyncIterator, Sequence

import structlog

from service.contract import Draw, Gone, Job, Verdict
from service.contract.targets import RELEASE
from workers.handlers.protocol import Batch

log = structlog.get_logger(__name__)


class RecordedRelease:
    kind = RELEASE

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return () if lane.endswith("/" + RELEASE) else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        await batch.clear(*batch.jobs)
        log.info("released", count=len(batch.jobs), deletions=" ".join(job.deletion for job in batch.jobs))
        for job in batch.jobs:
            yield job, Gone("released")
