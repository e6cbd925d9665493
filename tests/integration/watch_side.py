"""Watch side of a judged source that a test starts and stops, and the fixtures `judged` and `side`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.kubernetes import KubernetesClient
from service.watching.assignment import Assignment
from service.watching.namespace_watch import NamespaceWatch
from service.watching.source_watch import SourceWatch
from tests.api_servers import TestApi
from tests.integration.judged_source import SOURCE, JudgedSource, judged_source
from tests.redis_servers import TestServer
from tests.simulated.collector import recognise


@contextlib.asynccontextmanager
async def ongoing(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class WatchSide:
    """The watch side of the judged source: it starts, stops, and starts again, as if another replica had taken over."""

    def __init__(self, judged: JudgedSource, cluster: KubernetesClient) -> None:
        self.judged, self.cluster = judged, cluster
        self.namespaces: NamespaceWatch | None = None
        self._open = contextlib.AsyncExitStack()

    async def begin(self) -> SourceWatch:
        run = SourceWatch(
            Assignment(
                name=SOURCE,
                settings=self.judged.settings.sources[SOURCE],
                cluster=self.cluster,
                cluster_uid=self.judged.identity,
                installation=self.judged.install(),
                recognise=recognise,
                namespaces=self.namespaces,
            )
        )
        await self._open.enter_async_context(ongoing(run.run()))

        async def ready() -> bool:
            return run.ready

        await self.judged.until("everything is listed", ready)
        return run

    async def follow_namespaces(self, cluster: KubernetesClient | None = None) -> NamespaceWatch:
        watch = msgspec.structs.replace(self.judged.settings.watch, retry=timedelta(milliseconds=100))
        self.namespaces = NamespaceWatch(cluster or self.cluster, watch)
        await self._open.enter_async_context(ongoing(self.namespaces.run()))
        return self.namespaces

    async def end(self) -> None:
        await self._open.aclose()


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        made.source(namespaces=(made.namespace,))
        made.have_patience()
        yield made


@pytest.fixture
async def side(judged: JudgedSource, cluster: KubernetesClient) -> AsyncIterator[WatchSide]:
    made = WatchSide(judged, cluster)
    yield made
    await made.end()
