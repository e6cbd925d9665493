"""The release: the last job of every deletion, when all its required targets are proven gone.

For now it records the release; taking the finalizer off the object happens here once there is a cluster to ask.
"""

from collections.abc import AsyncIterator, Sequence

import structlog

from service.contract import Draw, Gone, Job, Verdict
from service.contract.targets import RELEASE
from workers.handlers.protocol import Batch

log = structlog.get_logger(__name__)


class Release:
    kind = RELEASE

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return () if lane.endswith("/" + RELEASE) else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        await batch.clear(*batch.jobs)
        log.info("released", count=len(batch.jobs), deletions=" ".join(job.deletion for job in batch.jobs))
        for job in batch.jobs:
            yield job, Gone("released")
