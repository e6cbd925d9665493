"""A cluster that is asked who it is behind every answer from which something is concluded: lists, watches, absence.
An address may lead to another cluster from one request to the next, and there everything of ours would be missing."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta

from service.kubernetes import NAMESPACES, Change, Cluster, Live, Page, Served
from service.kubernetes.calls import CALL_TIMEOUT
from service.watching.clusters import OtherCluster


class ConfirmedCluster(Cluster):
    """The same connection, held to one uid. `wrong` is set as soon as another one answers."""

    def __init__(self, cluster: Cluster, uid: str) -> None:
        super().__init__(cluster.name, cluster._calls)
        self.uid = uid
        self.wrong = asyncio.Event()
        self._asking = asyncio.Lock()
        self._asked_at = 0.0

    async def confirm(self) -> None:
        """Raises OtherCluster. Who waits while another asks is served by the next answer, with all who wait."""
        wanted_at = time.monotonic()
        async with self._asking:
            if self._asked_at >= wanted_at:
                return
            asked_at = time.monotonic()
            found = await self.identity()
            if found != self.uid:
                self.wrong.set()
                raise OtherCluster(
                    f"cluster {self.name} had uid {self.uid} until a moment ago, but the one that answers now has "
                    f"{found}: nothing of it is touched"
                )
            self._asked_at = asked_at

    async def pages(
        self,
        served: Served,
        namespace: str | None,
        selector: str = "",
        limit: int = 500,
        *,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Page, None]:
        async with aclosing(super().pages(served, namespace, selector, limit, metadata_only=metadata_only)) as found:
            async for page in found:
                await self.confirm()
                yield page

    async def watch(
        self,
        served: Served,
        namespace: str | None,
        selector: str,
        resource_version: str,
        *,
        silence: timedelta,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Change, None]:
        """A stream stays with the server that it began with: once it has brought something, one answer is enough."""
        stream = super().watch(
            served, namespace, selector, resource_version, silence=silence, metadata_only=metadata_only
        )
        confirmed = False
        async with aclosing(stream) as changes:
            async for change in changes:
                if not confirmed:
                    await self.confirm()
                    confirmed = True
                yield change

    async def get(
        self,
        served: Served,
        namespace: str,
        name: str,
        *,
        timeout: timedelta = CALL_TIMEOUT,
        metadata_only: bool = False,
    ) -> Live | None:
        found = await super().get(served, namespace, name, timeout=timeout, metadata_only=metadata_only)
        if found is None and served is not NAMESPACES:
            await self.confirm()
        return found
