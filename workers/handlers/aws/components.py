"""Builds the AWS components of a worker: clients, collector, and a handler for every kind of resource. Only a process
with AWS sources imports it, because the SDK is large."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, NamedTuple

from service.settings import Settings
from workers.handlers.aws.capa.collector import CapaCollector
from workers.handlers.aws.capa.deleting_namesakes import GuardCheck
from workers.handlers.aws.capa.final_check import FinalCheck
from workers.handlers.aws.capa.latest_objects import LatestObjects
from workers.handlers.aws.capa.resource_finder import ResourceFinder
from workers.handlers.aws.client.background_reads import MAX_WAIT
from workers.handlers.aws.client.clients import SdkClients
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import AwsBudgets
from workers.handlers.aws.removal import AwsRemoval
from workers.handlers.aws.retained_tags import AwsRetainedTags
from workers.handlers.kept_resources import KeptRecords, NoKeptRecords
from workers.handlers.protocol import Handler
from workers.handlers.source_clusters import SourceClusters

WAIT_SHARE: Final = 0.6
"""Share of the time of an attempt or plan that may pass waiting for a list."""


class AwsComponents(NamedTuple):
    collector: CapaCollector
    handlers: tuple[Handler, ...]
    retained_tags: AwsRetainedTags


@asynccontextmanager
async def aws_components(
    settings: Settings,
    places: SourceClusters,
    quota: AwsBudgets | None,
    guard_check: GuardCheck | None = None,
    *,
    memory: KeptRecords | None = None,
    patience: timedelta | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[AwsComponents]:
    """`quota` paces calls that no lane has drawn for; without it they are not limited. `guard_check` asks the guard
    about objects other than the one being collected. `memory` holds the decisions to keep resources. `patience` is how
    long a list is waited for, if it should differ from the worker's settings; `clock` dates cached answers."""
    aws, worker = settings.aws, settings.worker
    usual = min(MAX_WAIT, worker.attempt_timeout * WAIT_SHARE, worker.plan_timeout * WAIT_SHARE)
    sdk = SdkClients(places, endpoint=aws.endpoint, account=aws.account, namespace=aws.identity_namespace, quota=quota)
    async with sdk as clients:
        finder = ResourceFinder(aws.finding, usual if patience is None else patience)
        latest_objects = LatestObjects(clock)
        remembered = memory or NoKeptRecords()
        collector = CapaCollector(settings, places, clients, finder, latest_objects, guard_check, remembered, clock)
        removals: dict[str, Handler] = {kind.name: AwsRemoval(kind, clients, aws, latest_objects) for kind in KINDS}
        try:
            final_check = FinalCheck(clients, finder, removals, aws, latest_objects, remembered)
            yield AwsComponents(collector, (*removals.values(), final_check), AwsRetainedTags(clients))
        finally:
            await collector.aclose()
            await finder.aclose()
