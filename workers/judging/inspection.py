"""Inspection of a deletion's object: is it the right one, is it being deleted, may we act on it?
An object with our finalizer must exist and have a deletionTimestamp; an observed one must be in the inventory and be
proven absent. For a source that `remembers`, an object that lost our finalizer counts as an observed one."""

import asyncio
from collections.abc import Callable

import msgspec

from service.contract import Undecodable
from service.engine.inventory import Inventory, InventoryRecord
from service.kubernetes import KubeObject, NotFound, NotServed, RecentObjects
from service.policy.stale_finalizers import stale_finalizer, stale_finalizer_reason
from service.settings import Settings, SourceSettings
from service.sources.registry import source_named
from workers.handlers.collector import ObjectFacts, ObjectRef
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.judging.default_policies import DefaultPolicies


class Objection(msgspec.Struct, frozen=True):
    """Why nothing is done. With `again` it may pass; with `waits` it passes without a person; `withdrawn` is permanent:
    consent is revoked."""

    reason: str
    again: bool = False
    withdrawn: bool = False
    waits: bool = False


class Inspector:
    """`inventory` returns a source's inventory; `recent_objects` come from a watcher in the same process."""

    def __init__(
        self,
        settings: Settings,
        clusters: SourceClusters,
        inventory: Callable[[str], Inventory],
        recent_objects: RecentObjects | None = None,
    ) -> None:
        self._settings, self._clusters, self._inventory = settings, clusters, inventory
        self._recent_objects = recent_objects if recent_objects is not None else RecentObjects()
        self._default_policies = DefaultPolicies(settings)

    async def aclose(self) -> None:
        """Cancels reads in flight."""
        await self._default_policies.aclose()

    def collector_of(self, source: str) -> str:
        """The name of the source's collector; empty for an undeclared source."""
        declared = self._settings.sources.get(source)
        return declared.collector if declared is not None else ""

    async def inspect(
        self, ref: ObjectRef, *, metadata_only: bool = False, destroys: bool = True
    ) -> ObjectFacts | Objection:
        """With `metadata_only` only metadata is read. With `destroys` the object is read anew; otherwise what the
        watcher saw a moment ago is used. Raises ClusterError if the API server can't be read: that is no finding."""
        source = self._settings.sources.get(ref.source)
        if source is None:
            known = ", ".join(sorted(self._settings.sources)) or "none"
            return Objection(f"source {ref.source!r} is not declared (there is: {known})", again=True)
        if ref.resource != source.resource:
            return Objection(f"source {ref.source} is about {source.resource}, not about {ref.resource}")
        cluster = self._clusters.of(ref.source)
        if cluster is None:
            return Objection(f"this process has no way to the cluster of source {ref.source}", again=True)
        try:
            if ref.orphan:
                return await self._orphan(ref, source, cluster)
            if source.mode == "finalizer":
                recent = None if destroys or not metadata_only else self._recent(ref, source)
                found = await self._with_finalizer(ref, source, cluster, recent, metadata_only=metadata_only)
                if not (isinstance(found, Objection) and found.withdrawn and _remembers(source)):
                    return found
                # Another controller's patch removed our finalizer: that is no decision about what the object owns.
            return await self._observed_object(ref, source, cluster)
        except NotServed as error:
            return Objection(f"{ref.resource} is not served, so nothing is known of {ref.label}: {error}", again=True)

    # ---- with our finalizer

    def _recent(self, ref: ObjectRef, source: SourceSettings) -> KubeObject | None:
        """A recent read by the watcher, if nothing speaks against it; objections need a new read."""
        seen = self._recent_objects.take(ref.cluster, ref.resource, ref.uid)
        return seen if seen is not None and self._finalizer_objection(ref, seen, source) is None else None

    def _finalizer_objection(self, ref: ObjectRef, live: KubeObject | None, source: SourceSettings) -> Objection | None:
        finalizer = source_named(source.collector).finalizer
        found = finalizer_objection(ref, live, finalizer)
        if found is None or live is None or not live.going or live.uid != ref.uid:
            return found
        other = stale_finalizer(live.finalizers, ref.resource, self._settings.sources.values())
        # Consent is not revoked: the source has another collector now, and the setting may be changed back.
        return Objection(f"{ref.label}: {stale_finalizer_reason(other, finalizer)}", again=True) if other else found

    async def _with_finalizer(
        self,
        ref: ObjectRef,
        source: SourceSettings,
        cluster: SourceCluster,
        recent: KubeObject | None,
        *,
        metadata_only: bool,
    ) -> ObjectFacts | Objection:
        marks = cluster.marks(ref.namespace) if ref.namespace else None
        live = recent or await cluster.get(ref.resource, ref.namespace, ref.name, metadata_only=metadata_only)
        objection = self._finalizer_objection(ref, live, source)
        # An object's uid proves the cluster. A missing object may be missing because this is another cluster.
        fault = await cluster.fault(ref.cluster, fresh=objection is not None)
        if fault is not None:
            return Objection(fault, again=True)
        # In a cluster restored from a backup, a missing object or finalizer is no sign of a release.
        withdrawn = objection is not None and objection.withdrawn
        if withdrawn and (doubt := await self._clusters.doubt(ref.source, ref.cluster, ref.namespace)):
            return Objection(doubt, again=True)
        if objection is not None or live is None:
            return objection or Objection(f"there is no {ref.label}")
        cluster.remember(live)
        try:
            known = await self._inventory(ref.source).get(ref.uid) if _remembers(source) else None
        except Undecodable as error:
            return Objection(str(error), again=True)
        return ObjectFacts(
            ref=ref, settings=source, labels=live.labels, annotations=live.annotations,
            namespace_annotations=await asyncio.shield(marks) if marks is not None else {},
            features=self._settings.features, live=live, recognises=known.data if known is not None else "",
            default_policy=await self._default_policies.of(source, cluster.client),
        )  # fmt: skip

    # ---- found by a sweep

    async def _orphan(self, ref: ObjectRef, source: SourceSettings, cluster: SourceCluster) -> ObjectFacts | Objection:
        """There must be no object: while one has that name, nothing of it is orphaned."""
        if not source_named(source.collector).swept:
            return Objection(f"source {ref.source} has collector {source.collector}, which has no sweep")
        live = await cluster.get(ref.resource, ref.namespace, ref.name, metadata_only=True)
        fault = await cluster.fault(ref.cluster)
        if fault is not None:
            return Objection(fault, again=True)
        if live is not None:
            return Objection(f"{ref.label} lives, so that what has its name is no orphan", withdrawn=True)
        if fault := await _crd_fault(ref, cluster) or await self._clusters.doubt(ref.source, ref.cluster):
            return Objection(fault, again=True)
        if selective := selecting_settings(source):
            return Objection(f"source {ref.source} chooses by {selective}, which an orphan has not", again=True)
        return ObjectFacts(
            ref=ref, settings=source, labels={}, annotations={}, namespace_annotations={},
            features=self._settings.features, recognises=ref.data,
        )  # fmt: skip

    # ---- observed

    async def _observed_object(
        self, ref: ObjectRef, source: SourceSettings, cluster: SourceCluster
    ) -> ObjectFacts | Objection:
        try:
            known = await self._inventory(ref.source).get(ref.uid)
        except Undecodable as error:
            return Objection(str(error), again=True)
        if known is None:
            return Objection(f"the inventory of source {ref.source} holds no object with uid {ref.uid}")
        if known.held:
            return Objection(f"its absence is not believed: {known.held}", again=True)
        if known.fault and not known.data and not _remembers(source):
            # Otherwise it would seem to own nothing, and its resources would be forgotten.
            return Objection(f"what it owns was never recognised: {known.fault}", again=True)
        # The inventory counts, not the event.
        ref = msgspec.structs.replace(ref, namespace=known.namespace, name=known.name, at=known.at)
        live = await cluster.get(ref.resource, ref.namespace, ref.name)
        if (fault := await cluster.fault(ref.cluster)) is not None:
            return Objection(fault, again=True)
        if live is not None and live.uid == ref.uid:
            words = f"{ref.label} is still there" + (", on its way out" if live.going else "")
            return Objection(words, again=True, waits=live.going)
        if (fault := await _crd_fault(ref, cluster)) is not None:
            return Objection(fault, again=True)
        if not known.gone:
            # A 404 alone proves nothing: the CRD may have been replaced, which only the watcher can notice.
            words = f"the absence of {ref.label} is not proven by the watch side yet"
            return Objection(words, again=True, waits=True)
        marks = await self._namespace_marks(ref, cluster, known)
        if isinstance(marks, Objection):
            return marks
        default_policy = await self._default_policies.of(source, cluster.client)
        # Last, after all reads whose results could be missing in a cluster restored from a backup.
        if fault := await self._clusters.doubt(ref.source, ref.cluster, ref.namespace):
            return Objection(fault, again=True)
        return ObjectFacts(
            ref=ref, settings=source, labels=known.labels, annotations=known.annotations,
            namespace_annotations=marks, features=self._settings.features, recognises=known.data,
            namesake=live is not None, default_policy=default_policy,
        )  # fmt: skip

    async def _namespace_marks(
        self, ref: ObjectRef, cluster: SourceCluster, known: InventoryRecord
    ) -> dict[str, str] | Objection:
        """Annotations of the live Namespace, or from the inventory if it was deleted together with its objects."""
        if not ref.namespace:
            return {}
        try:
            return await asyncio.shield(cluster.marks(ref.namespace))
        except NotFound:
            kept = await self._inventory(ref.source).namespace_annotations(ref.namespace)
        if kept is not None and kept.at >= known.namespace_at:
            return kept.annotations
        if known.namespace_annotations is not None:
            return known.namespace_annotations
        return Objection(f"its Namespace {ref.namespace} is gone, and no record says how it was marked", again=True)


def _remembers(source: SourceSettings) -> bool:
    return source_named(source.collector).remembers


def selecting_settings(source: SourceSettings) -> str:
    """The settings by which a source selects objects; empty if it takes all. For an orphan it is unknown whether they
    would have selected its object."""
    keys = ("selector", "opt_in", "opt_out")
    return " and ".join(key for key in keys if getattr(source, key).strip())


def finalizer_objection(ref: ObjectRef, live: KubeObject | None, finalizer: str) -> Objection | None:
    """Why a live object is not the one that is being deleted with its source's finalizer, or None."""
    if live is None:
        return Objection(f"there is no {ref.label}, although our finalizer should hold it", withdrawn=True)
    if live.uid != ref.uid:
        return Objection(f"{ref.label} has uid {live.uid}; the one with uid {ref.uid} is gone", withdrawn=True)
    if not live.going:
        # The event is not true yet. It may become true, and then its record must not block it.
        return Objection(f"{ref.label} lives: it has no deletionTimestamp", again=True)
    if finalizer not in live.finalizers:
        return Objection(f"{ref.label} does not have our finalizer {finalizer}", withdrawn=True)
    return None


async def _crd_fault(ref: ObjectRef, cluster: SourceCluster) -> str | None:
    """Read after the object: if the CRD's deletion removed the object, the CRD is already terminating."""
    state = await cluster.crd_state(ref.resource)
    if state not in ("built-in", "established"):
        return f"the CRD of {ref.resource} is {state}, so the absence of {ref.label} proves nothing"
    return None
