"""Identity of clusters, which is the uid of the Namespace kube-system: a name that leads to another cluster than before
is refused. An address may lead elsewhere from one request to the next, and all objects would be missing there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from typing import Final

from service.coalesced_reads import CoalescedReads
from service.engine.installation import Installation
from service.kubernetes import (
    NAMESPACES,
    ClusterError,
    KubeObject,
    KubernetesClient,
    ListPage,
    ServedResource,
    WatchEvent,
    connect,
)
from service.kubernetes.api_calls import CALL_TIMEOUT
from service.policy.cluster_names import identity_fault
from service.settings import Settings

KEY: Final = "clusters"


class WrongCluster(ClusterError):
    """The name leads to another cluster than it should; the message says which one, and what to do."""


class ClusterIdentities:
    """The uid that each cluster name had when it was first seen; stored in Redis."""

    def __init__(self, settings: Settings, installation: Installation) -> None:
        self._clusters = settings.clusters
        self._shard = installation.shards[0]
        self._caller, self._key = installation.caller, installation.keys.of(0, KEY)

    async def remembered(self) -> dict[str, str]:
        answer = await self._caller.command("HGETALL", self._key)
        return {name.decode(): uid.decode() for name, uid in answer.items()}

    async def forget(self, name: str) -> bool:
        return bool(await self._caller.command("HDEL", self._key, name))

    async def confirm(self, name: str, uid: str) -> None:
        """Stores the first uid that is seen for a name. Raises WrongCluster, see `check`."""
        # First by the settings alone: what they refuse is not stored.
        self.check(name, uid, {})
        pinned = self._clusters[name].uid == uid
        others = [other for other in self._clusters if other != name]
        self.check(name, uid, await self._shard.register_cluster(name, uid, others, pinned=pinned))

    def check(self, name: str, uid: str, known: Mapping[str, str]) -> None:
        """Raises WrongCluster unless the name has this uid, and no other name has it."""
        fault = identity_fault(self._clusters, name, uid, known)
        if fault is not None:
            raise WrongCluster(fault)


@asynccontextmanager
async def connect_to(settings: Settings, name: str) -> AsyncIterator[KubernetesClient]:
    """Client of one cluster of the settings. If its kubeconfig is in a Secret of another cluster, the client of that
    one stays open, too, because the Secret is read again. Raises ClusterError."""
    wanted = settings.clusters[name]
    async with AsyncExitStack() as stack:
        holder = None
        if wanted.via is not None:
            holder = await stack.enter_async_context(await connect(wanted.via, settings.clusters[wanted.via]))
        yield await stack.enter_async_context(await connect(name, wanted, via=holder))


def cluster_of(settings: Settings, source: str) -> str:
    """The name of the cluster of a source."""
    return settings.sources[source].cluster or next(iter(settings.clusters))


class ConfirmedClient(KubernetesClient):
    """Client that confirms the cluster's uid behind every response from which absence could be concluded: lists,
    watches and 404s. `wrong` is set as soon as another cluster answers."""

    def __init__(self, cluster: KubernetesClient, uid: str) -> None:
        super().__init__(cluster.name, cluster._calls)
        self.uid = uid
        self.wrong = asyncio.Event()
        self._identities = CoalescedReads.by_key(self._read_identity)

    async def aclose(self) -> None:
        """Cancels its own read; the calls are those of the client that it was made of, which its owner closes."""
        await self._identities.aclose()

    async def confirm(self) -> None:
        """Raises WrongCluster."""
        if (found := await self._identities.read(None)) != self.uid:
            self.wrong.set()
            raise WrongCluster(
                f"cluster {self.name} had uid {self.uid} until a moment ago, but the one that answers now has "
                f"{found}: nothing of it is touched"
            )

    async def _read_identity(self, _key: None) -> str:
        return await self.identity()

    async def pages(
        self,
        served: ServedResource,
        namespace: str | None,
        selector: str = "",
        limit: int = 500,
        *,
        metadata_only: bool = False,
    ) -> AsyncGenerator[ListPage, None]:
        async with aclosing(super().pages(served, namespace, selector, limit, metadata_only=metadata_only)) as found:
            async for page in found:
                await self.confirm()
                yield page

    async def watch(
        self,
        served: ServedResource,
        namespace: str | None,
        selector: str,
        resource_version: str,
        *,
        silence: timedelta,
        metadata_only: bool = False,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """A stream stays with the server that it began with: it is confirmed once, at its first event."""
        stream = super().watch(
            served,
            namespace,
            selector,
            resource_version,
            silence=silence,
            metadata_only=metadata_only,
            opened=opened,
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
        served: ServedResource,
        namespace: str,
        name: str,
        *,
        timeout: timedelta = CALL_TIMEOUT,
        metadata_only: bool = False,
    ) -> KubeObject | None:
        found = await super().get(served, namespace, name, timeout=timeout, metadata_only=metadata_only)
        if found is None and served is not NAMESPACES:
            await self.confirm()
        return found
