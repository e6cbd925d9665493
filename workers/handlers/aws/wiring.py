"""Puts the AWS side of a worker together: the way to AWS, the collector, and a handler for every kind of resource.
It is imported only by a process that has such sources, because the SDK behind it is large."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from service.settings import Settings
from workers.handlers.aws.checking import Settled
from workers.handlers.aws.collector import CapaCollector
from workers.handlers.aws.finding import Finding
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import Quota
from workers.handlers.aws.reach import AwsReach
from workers.handlers.aws.removal import Removal
from workers.handlers.aws.wanting import Wanting
from workers.handlers.places import Places
from workers.handlers.protocol import Handler


class AwsSide(NamedTuple):
    collector: CapaCollector
    handlers: tuple[Handler, ...]


@asynccontextmanager
async def aws_side(settings: Settings, places: Places, quota: Quota | None) -> AsyncIterator[AwsSide]:
    """`quota` is for calls that no lane has drawn for; without one they are made as they come."""
    aws = settings.aws
    way = AwsReach(places, endpoint=aws.endpoint, account=aws.account, namespace=aws.identity_namespace, quota=quota)
    async with way as reach:
        finding = Finding(aws.finding)
        wanting = Wanting()
        collector = CapaCollector(settings, places, reach, finding, wanting)
        removals: dict[str, Handler] = {kind.name: Removal(kind, reach, aws, wanting) for kind in KINDS}
        try:
            yield AwsSide(collector, (*removals.values(), Settled(reach, finding, removals, aws, wanting)))
        finally:
            await collector.aclose()
            await finding.aclose()
