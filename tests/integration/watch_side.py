"""The watch side of a stage's source in a test's own hands, and the fixtures `stage` and `side`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.kubernetes import Cluster
from service.watching.assignment import Assignment
from service.watching.collectors import COLLECTORS
from service.watching.namespace_marks import NamespaceMarks
from service.watching.run import SourceRun
from tests.clusters import TestApi
from tests.integration.staged import SOURCE, Stage, staged
from tests.servers import TestServer


@contextlib.asynccontextmanager
async def ongoing(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Side:
    """The watch side of the stage's source: it begins, ends, and begins anew, as if another replica had taken over."""

    def __init__(self, stage: Stage, cluster: Cluster) -> None:
        self.stage, self.cluster = stage, cluster
        self.namespaces: NamespaceMarks | None = None
        self._open = contextlib.AsyncExitStack()

    async def begin(self) -> SourceRun:
        run = SourceRun(
            Assignment(
                name=SOURCE,
                settings=self.stage.settings.sources[SOURCE],
                cluster=self.cluster,
                cluster_uid=self.stage.identity,
                installation=self.stage.install(),
                recognise=COLLECTORS["simulated"],
                namespaces=self.namespaces,
            )
        )
        await self._open.enter_async_context(ongoing(run.run()))

        async def ready() -> bool:
            return run.ready

        await self.stage.until("everything is listed", ready)
        return run

    async def follow_namespaces(self, cluster: Cluster | None = None) -> NamespaceMarks:
        watch = msgspec.structs.replace(self.stage.settings.watch, retry=timedelta(milliseconds=100))
        self.namespaces = NamespaceMarks(cluster or self.cluster, watch)
        await self._open.enter_async_context(ongoing(self.namespaces.run()))
        return self.namespaces

    async def end(self) -> None:
        await self._open.aclose()


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        made.source(namespaces=(made.namespace,))
        made.have_patience()
        yield made


@pytest.fixture
async def side(stage: Stage, cluster: Cluster) -> AsyncIterator[Side]:
    made = Side(stage, cluster)
    yield made
    await made.end()
