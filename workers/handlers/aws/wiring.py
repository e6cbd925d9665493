"""Puts the AWS side of a worker together: the way to AWS, the collector, and a handler for every kind of resource.
It is imported only by a process that has such sources, because the SDK behind it is large."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, NamedTuple

from service.settings import Settings
from workers.handlers.aws.checking import Settled
from workers.handlers.aws.collector import CapaCollector
from workers.handlers.aws.finding import Finding
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.lasting import PATIENCE
from workers.handlers.aws.leaving import Guarded
from workers.handlers.aws.model import Quota
from workers.handlers.aws.reach import AwsReach
from workers.handlers.aws.removal import Removal
from workers.handlers.aws.retained_tags import AwsRetainedTags
from workers.handlers.aws.wanting import Wanting
from workers.handlers.memory import Memory, NoMemory
from workers.handlers.places import Places
from workers.handlers.protocol import Handler

PART: Final = 0.6
"""Of the time that an attempt or a plan has, so much may go by while a list is waited for."""


class AwsSide(NamedTuple):
    collector: CapaCollector
    handlers: tuple[Handler, ...]
    retained_tags: AwsRetainedTags


@asynccontextmanager
async def aws_side(
    settings: Settings,
    places: Places,
    quota: Quota | None,
    guarded: Guarded | None = None,
    *,
    memory: Memory | None = None,
    patience: timedelta | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[AwsSide]:
    """`quota` is for calls that no lane has drawn for; without one they are made as they come. `guarded` asks the guard
    about other objects than the one that is collected; without it nobody does. `memory` knows what was decided to be
    kept. `patience` is how long a list
    is waited for, where that is not for the settings of a worker to say; `clock` tells how old an answer is that is
    kept for a while."""
    aws, worker = settings.aws, settings.worker
    usual = min(PATIENCE, worker.attempt_timeout * PART, worker.plan_timeout * PART)
    way = AwsReach(places, endpoint=aws.endpoint, account=aws.account, namespace=aws.identity_namespace, quota=quota)
    async with way as reach:
        finding = Finding(aws.finding, usual if patience is None else patience)
        wanting = Wanting(clock)
        remembered = memory or NoMemory()
        collector = CapaCollector(settings, places, reach, finding, wanting, guarded, remembered, clock)
        removals: dict[str, Handler] = {kind.name: Removal(kind, reach, aws, wanting) for kind in KINDS}
        try:
            settled = Settled(reach, finding, removals, aws, wanting, remembered)
            yield AwsSide(collector, (*removals.values(), settled), AwsRetainedTags(reach))
        finally:
            await collector.aclose()
            await finding.aclose()
