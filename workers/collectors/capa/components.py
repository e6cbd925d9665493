"""Builds what the collector of clusters on AWS brings to a worker: the collector, its final check, and its checks for
`knell doctor`."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from service.sources.capa import CAPA, AwsSettings
from workers.collectors.capa.checks import run_checks
from workers.collectors.capa.collector import CapaCollector
from workers.collectors.capa.final_check import FinalCheck
from workers.collectors.capa.identities import CapaIdentities
from workers.collectors.capa.judge import CapaJudge
from workers.collectors.capa.latest_objects import LatestObjects
from workers.collectors.capa.resource_finder import ResourceFinder
from workers.handlers.components import Components, Context
from workers.providers.aws.client.background_reads import MAX_WAIT
from workers.providers.aws.components import AwsProvider, aws_provider

WAIT_SHARE: Final = 0.6
"""Share of the time of an attempt or plan that may pass waiting for a list."""


@asynccontextmanager
async def components(context: Context) -> AsyncIterator[Components]:
    async with capa_components(context, await context.provider(aws_provider)) as made:
        yield made


@asynccontextmanager
async def capa_components(
    context: Context, provider: AwsProvider, *, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Components]:
    """`clock` dates cached answers."""
    settings, clients, records = context.settings, provider.clients, context.kept_records
    aws, worker, places = settings.section(AwsSettings), settings.worker, context.source_clusters
    usual = min(MAX_WAIT, worker.attempt_timeout * WAIT_SHARE, worker.plan_timeout * WAIT_SHARE)
    finder = ResourceFinder(aws.finding, usual if context.patience is None else context.patience)
    latest_objects = LatestObjects()
    identities = CapaIdentities(places, clients.sessions, clients.own_credentials, namespace=aws.identity_namespace)
    consented = provider.register(CAPA, CapaJudge(aws, latest_objects), identities)
    collector = CapaCollector(
        settings, places, clients, finder, latest_objects, consented, context.guard_check, records, clock
    )
    try:
        final_check = FinalCheck(clients, finder, aws, latest_objects, records, provider.limits, provider.claims)
        yield Components(collector=collector, handlers=(final_check,), checks=partial(run_checks, context, clients))
    finally:
        await collector.aclose()
        await finder.aclose()
