"""The clusters as workers see them: reached by a name of the settings, and each proven to be the one it claims to be.
Reads that are wanted at the same moment are made once; an answer is never used by who asked after it was asked for."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from service.contract.names import part_of, share_lease, sweep_lease
from service.contract.traits import traits_of
from service.kubernetes import Cluster, CrdState, Live, NotServed, Served, Unreadable
from service.policy.cluster_names import fault_of
from service.settings import Settings

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Remembered = Callable[[], Awaitable[Mapping[str, str]]]

TRUSTED = timedelta(seconds=30)
"""How long a cluster's proven identity serves where the object's own uid says the same."""

WITHIN = timedelta(seconds=10)
"""How long one reading may take once its turn has come."""

LATELY = 4096
"""Objects whose last reading is kept for a change that names its resource version."""


class Shared(Generic[K, V]):
    """Fresh reads, shared: who asks while one is on its way waits for the next, together with all who ask meanwhile."""

    def __init__(self, read: Callable[[K], Coroutine[Any, Any, V]]) -> None:
        self._read = read
        self._next: dict[K, asyncio.Task[V]] = {}
        self._now: dict[K, asyncio.Task[V]] = {}

    def ask(self, key: K) -> asyncio.Task[V]:
        """To be awaited with a shield: others may wait for the same answer."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.ensure_future(self._run(key, self._now.get(key)))
            task.add_done_callback(_looked_at)
        return task

    async def aclose(self) -> None:
        """Nobody waits any more."""
        tasks = [*self._next.values(), *self._now.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: K, before: "asyncio.Task[V] | None") -> V:
        try:
            if before is not None:
                await asyncio.wait([before])
            else:
                await asyncio.sleep(0)
        finally:
            task = self._next.pop(key)
        self._now[key] = task
        try:
            return await self._read(key)
        finally:
            if self._now.get(key) is task:
                del self._now[key]


def _looked_at(task: "asyncio.Task[Any]") -> None:
    """Nobody need wait for an answer any more; then its failure is nobody's either."""
    if not task.cancelled():
        task.exception()


class Place:
    """One cluster of the settings. `remembered` answers the uids that names of clusters stand for, as far as known."""

    def __init__(self, cluster: Cluster, name: str, settings: Settings, remembered: Remembered) -> None:
        self.cluster, self.name = cluster, name
        self._clusters, self._remembered = settings.clusters, remembered
        self._served: dict[str, Served] = {}
        self._proven: tuple[str, float] | None = None
        self._lately: dict[str, Live] = {}
        self._identities = Shared[None, tuple[str, Mapping[str, str]]](self._identify)
        self._discoveries = Shared[str, Served](cluster.discover)
        self._marks = Shared[str, dict[str, str]](cluster.namespace_marks)
        self._crds = Shared[str, CrdState](cluster.crd_state)

    # ---- who it is

    async def fault(self, uid: str, *, fresh: bool = True) -> str | None:
        """Why this is not the cluster of that uid, or None. Without `fresh` a proof of the last half minute will do."""
        proven = self._proven
        if not fresh and proven is not None and proven[0] == uid and time.monotonic() < proven[1]:
            return None
        found, known = await asyncio.shield(self._identities.ask(None))
        fault = fault_of(self._clusters, self.name, found, known)
        if fault is not None:
            return fault
        if found != uid:
            return f"cluster {self.name} has uid {found}, and this is about cluster {uid}"
        self._proven = found, time.monotonic() + TRUSTED.total_seconds()
        return None

    async def identity(self) -> str:
        """Its uid, read now. Raises where it is not the one that it has to be."""
        found, _ = await asyncio.shield(self._identities.ask(None))
        fault = await self.fault(found)
        if fault is not None:
            raise Unreadable(fault)
        return found

    async def _identify(self, _key: None) -> tuple[str, Mapping[str, str]]:
        return await self.cluster.identity(), await self._remembered()

    # ---- what is in it

    async def served(self, resource: str) -> Served:
        found = self._served.get(resource)
        if found is None:
            found = self._served[resource] = await asyncio.shield(self._discoveries.ask(resource))
        return found

    async def get(self, resource: str, namespace: str, name: str, *, metadata_only: bool = False) -> Live | None:
        """None only where the API server says that there is no such object. A changed version is discovered anew."""
        live = await self.on(
            resource,
            lambda served: self.cluster.get(served, namespace, name, timeout=WITHIN, metadata_only=metadata_only),
        )
        # What is no whole text must not be taken for one: it would seem to have no status.
        return live.without_raw() if live is not None and metadata_only else live

    async def on(self, resource: str, call: Callable[[Served], Coroutine[Any, Any, V]]) -> V:
        """A call on the resource as it is served now."""
        known = resource in self._served
        try:
            return await call(await self.served(resource))
        except NotServed:
            self._served.pop(resource, None)
            if not known:
                raise
        return await call(await self.served(resource))

    def note(self, live: Live) -> None:
        """Keep a reading for `lately`."""
        # Taken out first: those that were read longest ago are forgotten first.
        self._lately.pop(live.uid, None)
        self._lately[live.uid] = live.without_raw()
        if len(self._lately) > LATELY:
            del self._lately[next(iter(self._lately))]

    def lately(self, uid: str) -> Live | None:
        """An object as it was read before, once. It may be used only for a change that names its resource version: then
        the server itself says whether it is still like that."""
        return self._lately.pop(uid, None)

    def marks(self, namespace: str) -> "asyncio.Task[dict[str, str]]":
        """The annotations of a Namespace, read from now on."""
        return self._marks.ask(namespace)

    async def crd_state(self, resource: str) -> CrdState:
        """As it is from now on."""
        return await asyncio.shield(self._crds.ask(resource))

    async def aclose(self) -> None:
        for reads in (self._identities, self._discoveries, self._marks, self._crds):
            await reads.aclose()


class Witnessed(NamedTuple):
    """Leases of the cluster with this uid, which tell whether it was restored from a backup."""

    cluster: Cluster
    uid: str
    leases: tuple[str, ...]


async def _unwitnessed(_key: Witnessed) -> str:
    return ""


class Places:
    """The clusters of the settings, as far as this process has reached them: `clusters` may be filled later.
    `witness` reads Leases and answers why nothing that is missing in their cluster counts as deleted."""

    def __init__(
        self,
        settings: Settings,
        clusters: Mapping[str, Cluster],
        remembered: Remembered,
        witness: Callable[[Witnessed], Coroutine[Any, Any, str]] = _unwitnessed,
    ) -> None:
        self._settings, self._clusters, self._remembered = settings, clusters, remembered
        self._places: dict[str, Place] = {}
        self._witnesses = Shared[Witnessed, str](witness)

    def of(self, source: str) -> Place | None:
        """The cluster that a source is in; None where this process has no way to it."""
        declared = self._settings.sources.get(source)
        if declared is None:
            return None
        name = declared.cluster or next(iter(self._settings.clusters), "")
        place, cluster = self._places.get(name), self._clusters.get(name)
        if place is None and cluster is not None:
            place = self._places[name] = Place(cluster, name, self._settings, self._remembered)
        return place

    async def doubt(self, source: str, uid: str, namespace: str = "") -> str | None:
        """Why nothing that was found missing before this call in the source's cluster, which has this uid, counts as
        deleted; None where its witness agrees. One read serves all who ask at the same moment. Raises ClusterError."""
        place, declared = self.of(source), self._settings.sources.get(source)
        if place is None or declared is None:
            return f"this process has no way to the cluster of source {source}"
        leases = [share_lease(source, part_of(namespace, declared.shares))]
        if traits_of(declared.collector).swept:
            leases.append(sweep_lease(source))
        key = Witnessed(place.cluster, uid, tuple(leases))
        return await asyncio.shield(self._witnesses.ask(key)) or None

    async def aclose(self) -> None:
        """Reads that are on their way are given up; the clusters belong to who reached them."""
        await self._witnesses.aclose()
        for place in self._places.values():
            await place.aclose()
