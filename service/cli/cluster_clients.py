"""Clients of the clusters of the settings: one with its identity verified, or those of all sources.
Workers start with the clusters that can be reached; the others are retried in the background."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Final, TypeVar

import click
import structlog
from redis.exceptions import RedisError

from service.cli import session
from service.engine.calls import ServerUnavailable
from service.engine.installation import Installation
from service.kubernetes import ClusterError, KubernetesClient
from service.settings import Settings
from service.watching.cluster_identity import ClusterIdentities, cluster_of, connect_to

log = structlog.get_logger(__name__)

T = TypeVar("T")
PATIENCE: Final = timedelta(seconds=2)


def run_with_clusters(work: Awaitable[T]) -> T:
    """Runs a command's work with clusters; a ClusterError becomes a CommandError."""

    async def awaited() -> T:
        return await work

    try:
        return asyncio.run(awaited())
    except ClusterError as error:
        raise session.CommandError(str(error)) from None


@asynccontextmanager
async def open_cluster(settings: Settings, name: str) -> AsyncIterator[tuple[KubernetesClient, str]]:
    """A client of the cluster and its uid. The uid is compared with the settings and Redis; without Redis with the
    settings alone."""
    async with connect_to(settings, name) as cluster:
        uid = await cluster.identity()
        installation = Installation(settings, name="knell-cli", patience=PATIENCE)
        try:
            identities = ClusterIdentities(settings, installation)
            try:
                await installation.connections.client.execute_command("PING")
                known = await identities.remembered()
            except (RedisError, OSError, ServerUnavailable):
                known = {}
                if settings.clusters[name].uid is None:
                    click.echo(f"Redis does not answer: whether {name} is the cluster it was is not known.", err=True)
            identities.check(name, uid, known)
        finally:
            await installation.aclose()
        yield cluster, uid


@asynccontextmanager
async def connect_clusters(settings: Settings) -> AsyncIterator[dict[str, KubernetesClient]]:
    """Clients by name. A cluster that can't be reached now is added to the dict later."""
    found: dict[str, KubernetesClient] = {}
    async with AsyncExitStack() as stack:
        wanted = sorted({cluster_of(settings, source) for source in settings.sources})
        unreached = [name for name in wanted if not await _connect(settings, name, found, stack)]
        retries = [asyncio.create_task(_retry_connecting(settings, name, found, stack)) for name in unreached]
        try:
            yield found
        finally:
            for task in retries:
                task.cancel()
            await asyncio.gather(*retries, return_exceptions=True)


async def _connect(settings: Settings, name: str, found: dict[str, KubernetesClient], stack: AsyncExitStack) -> bool:
    try:
        found[name] = await stack.enter_async_context(connect_to(settings, name))
    except ClusterError as error:
        log.warning("cluster can't be reached, what is in it waits", cluster=name, reason=str(error))
        return False
    return True


async def _retry_connecting(
    settings: Settings, name: str, found: dict[str, KubernetesClient], stack: AsyncExitStack
) -> None:
    while True:
        await asyncio.sleep(settings.watch.retry.total_seconds())
        if await _connect(settings, name, found, stack):
            return
