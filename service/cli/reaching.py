"""The clusters that a worker needs, reached one by one: those that its sources are in.
One whose way in can't be read is tried again and again, while the sources of the others go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from service.kubernetes import Cluster, ClusterError
from service.settings import Settings
from service.watching.clusters import cluster_of, reached

log = structlog.get_logger(__name__)


@asynccontextmanager
async def reached_clusters(settings: Settings) -> AsyncIterator[dict[str, Cluster]]:
    """By name; what could not be reached at once comes in later."""
    found: dict[str, Cluster] = {}
    async with AsyncExitStack() as stack:
        wanted = sorted({cluster_of(settings, source) for source in settings.sources})
        late = [name for name in wanted if not await _reach(settings, name, found, stack)]
        trying = [asyncio.create_task(_keep_trying(settings, name, found, stack)) for name in late]
        try:
            yield found
        finally:
            for task in trying:
                task.cancel()
            await asyncio.gather(*trying, return_exceptions=True)


async def _reach(settings: Settings, name: str, found: dict[str, Cluster], stack: AsyncExitStack) -> bool:
    try:
        found[name] = await stack.enter_async_context(reached(settings, name))
    except ClusterError as error:
        log.warning("cluster can't be reached, what is in it waits", cluster=name, reason=str(error))
        return False
    return True


async def _keep_trying(settings: Settings, name: str, found: dict[str, Cluster], stack: AsyncExitStack) -> None:
    while True:
        await asyncio.sleep(settings.watch.retry.total_seconds())
        if await _reach(settings, name, found, stack):
            return
