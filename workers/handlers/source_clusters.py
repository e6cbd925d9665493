"""Clusters of the sources, as workers use them: each is found by source and its identity is verified.
Equal reads are coalesced (see `coalesced_reads`)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from service.coalesced_reads import CoalescedReads
from service.contract.names import part_of, share_lease, sweep_lease
from service.kubernetes import CrdState, KubeObject, KubernetesClient, NotServed, ServedResource, Unreadable
from service.policy.cluster_names import identity_fault
from service.settings import Settings
from service.sources.registry import source_named

V = TypeVar("V")
Remembered = Callable[[], Awaitable[Mapping[str, str]]]

TRUSTED = timedelta(seconds=30)
"""How long a verified cluster identity stays valid if the object's own uid confirms it."""

WITHIN = timedelta(seconds=10)
"""Timeout of one read, from when it is sent."""

RECENT_READS = 4096
"""Objects whose last read is cached for a patch that names its resource version."""


class SourceCluster:
    """One cluster of the settings. `remembered` returns the known uids by cluster name."""

    def __init__(self, cluster: KubernetesClient, name: str, settings: Settings, remembered: Remembered) -> None:
        self.client, self.name = cluster, name
        self._clusters, self._remembered = settings.clusters, remembered
        self._served: dict[str, ServedResource] = {}
        self._proven: tuple[str, float] | None = None
        self._recent: dict[str, KubeObject] = {}
        self._identities = CoalescedReads.by_key(self._identify)
        self._discoveries = CoalescedReads.by_key(cluster.discover)
        self._marks = CoalescedReads.by_key(cluster.namespace_annotations)
        self._crds = CoalescedReads.by_key(cluster.crd_state)

    # ---- identity

    async def fault(self, uid: str, *, fresh: bool = True) -> str | None:
        """Why this is not the cluster with that uid, or None. Without `fresh` a check in the last 30 seconds
        suffices."""
        proven = self._proven
        if not fresh and proven is not None and proven[0] == uid and time.monotonic() < proven[1]:
            return None
        found, known = await self._identities.read(None)
        fault = identity_fault(self._clusters, self.name, found, known)
        if fault is not None:
            return fault
        if found != uid:
            return f"cluster {self.name} has uid {found}, and this is about cluster {uid}"
        self._proven = found, time.monotonic() + TRUSTED.total_seconds()
        return None

    async def identity(self) -> str:
        """Its uid, read now. Raises if it is not the expected one."""
        found, _ = await self._identities.read(None)
        fault = await self.fault(found)
        if fault is not None:
            raise Unreadable(fault)
        return found

    async def _identify(self, _key: None) -> tuple[str, Mapping[str, str]]:
        return await self.client.identity(), await self._remembered()

    # ---- objects

    async def served(self, resource: str) -> ServedResource:
        found = self._served.get(resource)
        if found is None:
            found = self._served[resource] = await self._discoveries.read(resource)
        return found

    async def get(self, resource: str, namespace: str, name: str, *, metadata_only: bool = False) -> KubeObject | None:
        """None only if the API server says that there is no such object. A changed API version is discovered again."""
        live = await self.on(
            resource,
            lambda served: self.client.get(served, namespace, name, timeout=WITHIN, metadata_only=metadata_only),
        )
        # Metadata alone must not pass for the whole object: it would seem to have no status.
        return live.without_raw() if live is not None and metadata_only else live

    async def on(self, resource: str, call: Callable[[ServedResource], Coroutine[Any, Any, V]]) -> V:
        """Makes a call with the API version that is served now."""
        known = resource in self._served
        try:
            return await call(await self.served(resource))
        except NotServed:
            self._served.pop(resource, None)
            if not known:
                raise
        return await call(await self.served(resource))

    def remember(self, live: KubeObject) -> None:
        """Cache a read for `take_recent`."""
        # Removed first, so that the order is that of the reads, and the oldest is dropped.
        self._recent.pop(live.uid, None)
        self._recent[live.uid] = live.without_raw()
        if len(self._recent) > RECENT_READS:
            del self._recent[next(iter(self._recent))]

    def take_recent(self, uid: str) -> KubeObject | None:
        """Takes an object out of the cache. It may only be used for a patch that names its resource version: then the
        API server rejects the patch if the object has changed."""
        return self._recent.pop(uid, None)

    def marks(self, namespace: str) -> "asyncio.Task[dict[str, str]]":
        """The annotations of a Namespace, from a read that begins after this call."""
        return self._marks.ask(namespace)

    async def crd_state(self, resource: str) -> CrdState:
        """From a read that begins after this call."""
        return await self._crds.read(resource)

    async def aclose(self) -> None:
        for reads in (self._identities, self._discoveries, self._marks, self._crds):
            await reads.aclose()


class LeaseWitness(NamedTuple):
    """Leases of the cluster with this uid, which show whether it was restored from a backup."""

    cluster: KubernetesClient
    uid: str
    leases: tuple[str, ...]


async def _unwitnessed(_key: LeaseWitness) -> str:
    return ""


class SourceClusters:
    """The clusters of all sources. `clusters` are the connected ones; it may be filled later. `witness` reads Leases
    and returns why a missing object in their cluster does not count as deleted."""

    def __init__(
        self,
        settings: Settings,
        clusters: Mapping[str, KubernetesClient],
        remembered: Remembered,
        witness: Callable[[LeaseWitness], Coroutine[Any, Any, str]] = _unwitnessed,
    ) -> None:
        self._settings, self._clusters, self._remembered = settings, clusters, remembered
        self._by_name: dict[str, SourceCluster] = {}
        self._witnesses = CoalescedReads.by_key(witness)

    def of(self, source: str) -> SourceCluster | None:
        """The cluster of a source; None if this process is not connected to it."""
        declared = self._settings.sources.get(source)
        if declared is None:
            return None
        name = declared.cluster or next(iter(self._settings.clusters), "")
        place, cluster = self._by_name.get(name), self._clusters.get(name)
        if place is None and cluster is not None:
            place = self._by_name[name] = SourceCluster(cluster, name, self._settings, self._remembered)
        return place

    async def doubt(self, source: str, uid: str, namespace: str = "") -> str | None:
        """Why objects found missing in the source's cluster before this call do not count as deleted: it was restored
        from a backup. None if it was not. Concurrent callers share one read. Raises ClusterError."""
        place, declared = self.of(source), self._settings.sources.get(source)
        if place is None or declared is None:
            return f"this process has no way to the cluster of source {source}"
        leases = [share_lease(source, part_of(namespace, declared.shares))]
        if source_named(declared.collector).swept:
            leases.append(sweep_lease(source))
        key = LeaseWitness(place.client, uid, tuple(leases))
        return await self._witnesses.read(key) or None

    async def aclose(self) -> None:
        """Cancels reads in flight; the clients are closed by their owner."""
        await self._witnesses.aclose()
        for place in self._by_name.values():
            await place.aclose()
