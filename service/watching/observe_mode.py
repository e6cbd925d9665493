"""Observe mode of a source: its objects are recorded in the inventory, and their deletion is published when they are
proven gone. The record of a gone object stays until its deletion has ended, because that is planned from it."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from service.contract import VERSION
from service.engine.inventory import Inventory, InventoryRecord, NamespaceAnnotations
from service.kubernetes import (
    ClusterError,
    Expired,
    KubeObject,
    KubernetesClient,
    NotFound,
    ServedResource,
    TooMany,
    Unavailable,
    WatchEvent,
)
from service.kubernetes.discovery import crd_replaced
from service.sources.declaration import NotRecognisedYet, Unrecognisable
from service.watching.absence import MissingObject, prove_absence, run_concurrently
from service.watching.assignment import Assignment, ListScope, ListStart
from service.watching.finalizer_patcher import FinalizerPatcher
from service.watching.inventory_diff import InventoryDiff, MissingRecord
from service.watching.publishing import Publisher
from service.watching.scope import SourceScope
from service.watching.source_status import RecentNames, SourceStatus


class ObserveMode:
    """Handler of one list scope. `owned` are the recorded objects that live."""

    def __init__(
        self,
        list_scope: ListScope,
        scope: SourceScope,
        store: Inventory,
        publisher: Publisher,
        patcher: FinalizerPatcher,
        status: SourceStatus,
    ) -> None:
        self._list_scope, self._scope, self._store = list_scope, scope, store
        self._publisher, self._patcher, self._status = publisher, patcher, status
        self._number = 0
        self._watched = ""
        self._crd = self._crd_before = ""
        self._namespaces = NamespaceRecords(list_scope.assignment.cluster, store, status)
        self._stuck = RecentNames()
        self._held = 0
        self.owned = 0

    @property
    def assignment(self) -> Assignment:
        return self._list_scope.assignment

    @property
    def selector(self) -> str:
        return self.assignment.settings.selector

    # ---- a list

    async def begin_list(self, served: ServedResource, begun: ListStart) -> None:
        self._number, self._watched = begun.number, begun.scope
        self._crd = await self.assignment.cluster.crd_uid(served.resource)
        self._crd_before = begun.facts.get(self._list_scope.field("crd"), "")
        self._namespaces.begin()
        self._publisher.conflicts.begin()
        self.owned = 0

    async def handle_page(self, served: ServedResource, items: Sequence[KubeObject]) -> None:
        records, out_of_scope = self._split(items)
        self._remove_old_finalizers(served, items)
        self.assignment.require_lease()
        await self._remember(records)
        await self._forget_or_keep(out_of_scope)
        self.owned += len(records)
        await self._namespaces.note(record.namespace for record in records.values())

    async def end_list(self, served: ServedResource, hold: str) -> None:
        if not hold and self._crd_before and self._crd != self._crd_before:
            hold = crd_replaced(served.resource)
        diff = InventoryDiff(self._list_scope, self._watched, self._crd, self._store, self._publisher, self._status)
        self._held = await diff.run(served, self._number, hold, self.publish_gone)
        await self._publisher.conflicts.end()
        # After the diff: a crash before it holds the same objects again.
        await self._store.save_state({self._list_scope.field("crd"): self._crd})

    # ---- a watch

    def handle_skipped(self, change: WatchEvent) -> None:
        """Only the latest state of an observed object is recorded."""

    async def handle_events(self, served: ServedResource, latest: Sequence[WatchEvent]) -> None:
        """The latest event of each object; for one that was added and deleted, both."""
        seen = [change.seen for change in latest if change.seen is not None and change.kind != "DELETED"]
        gone = [change.seen for change in latest if change.seen is not None and change.kind == "DELETED"]
        records, out_of_scope = self._split(seen)
        self._remove_old_finalizers(served, seen)
        added = {change.seen.uid for change in latest if change.seen is not None and change.kind == "ADDED"}
        self.owned += sum(uid in added for uid in records)
        if records or out_of_scope:
            self.assignment.require_lease()
            await self._remember(records)
            await self._forget_or_keep(out_of_scope)
            await self._namespaces.note(record.namespace for record in records.values())
        if gone:
            await self._handle_deleted(served, gone)

    async def _handle_deleted(self, served: ServedResource, gone: Sequence[KubeObject]) -> None:
        """A DELETED event is no proof: it also comes when a CRD is deleted, or when labels no longer match the
        selector."""
        known = await self._store.get_many([seen.uid for seen in gone])
        known_gone = {uid for uid, record in known.items() if record.gone}
        rows = [seen for seen in gone if self._scope.is_collected(seen) and seen.uid not in known_gone]
        # Its last state counts: an object that was opted out right before it was deleted is not collected.
        away = [seen for seen in gone if not self._scope.is_collected(seen) and seen.uid not in known_gone]
        left = list[str]()
        missing = [MissingObject(seen.uid, seen.namespace, seen.name) for seen in rows]
        proofs = await prove_absence(self.assignment.cluster, served, missing, self._crd, self.assignment.doubt)
        gone_records, held = list[MissingRecord](), dict[str, InventoryRecord]()
        for seen in rows:
            proof = proofs[seen.uid]
            record = self._record(seen, known.get(seen.uid))
            if proof.kind == "gone":
                gone_records.append(
                    MissingRecord(seen.uid, msgspec.structs.replace(record, at=seen.deleting or _now()))
                )
            elif proof.kind == "held":
                held[seen.uid] = msgspec.structs.replace(record, held=proof.why, at=seen.deleting or _now())
            elif proof.kind == "lives":
                left.append(seen.uid)
            else:
                self._status.report_unreadable(proof.why)
        self.assignment.require_lease()
        await self._store.remove(left)
        await self._forget_or_keep(away, gone=_now())
        await self._hold(held)
        await self.publish_gone(gone_records)
        self.owned = max(0, self.owned - len(gone_records) - sum(uid in known for uid in left))
        self.owned = max(0, self.owned - sum(seen.uid in known and not known[seen.uid].kept for seen in away))
        why = crd_replaced(served.resource)
        if any(proof.why == why for proof in proofs.values()):
            # Everything would be held until the next list, which records the uid of the new CRD.
            raise Expired(why)

    async def _hold(self, held: dict[str, InventoryRecord]) -> None:
        if not held:
            return
        await self._store.save(held)
        self._held += len(held)
        self.assignment.count(self._list_scope.label, held=self._held)
        why = next(iter(held.values())).held
        self._status.warning("deletions held", reason=why, count=len(held))
        await self._store.save_state(
            {self._list_scope.field("held"): self._held, self._list_scope.field("held_why"): why}
        )

    # ---- objects that are proven gone

    async def publish_gone(self, gone_records: Sequence[MissingRecord]) -> None:
        """The record first, then the event: after a crash in between, the next list finds the record."""
        if not gone_records:
            return
        annotations = await self._namespaces.last(record.namespace for _, record in gone_records)
        now = _now()
        records: dict[str, InventoryRecord] = {}
        for uid, record in gone_records:
            found = annotations.get(record.namespace)
            records[uid] = msgspec.structs.replace(
                record, gone=now, at=record.at or now, held="", scope=self._watched,
                namespace_annotations=None if found is None else found.annotations,
                namespace_at=0 if found is None else found.at,
            )  # fmt: skip
        self.assignment.require_lease()
        await self._store.save(records)
        events = [self._publisher.event_of_record(uid, record) for uid, record in records.items()]
        await self._publisher.conflicts.find_sources(events, await self._publisher.publish(events))

    def _remove_old_finalizers(self, served: ServedResource, items: Iterable[KubeObject]) -> None:
        """For a source that had finalizer mode before. An object that is going is only reported: removing the finalizer
        would let it go without its resources."""
        if not self.assignment.observes:
            return
        for seen in items:
            if not self._scope.has_own_finalizer(seen):
                continue
            if not seen.going:
                self._patcher.enqueue(served, seen)
            elif self._stuck.add(seen.uid) and self._scope.is_ours_to_publish(seen):
                self._status.warning(
                    "object is held back by our finalizer, but its source only observes; set its mode to finalizer",
                    uid=seen.uid, name=seen.name, namespace=seen.namespace,
                )  # fmt: skip

    # ---- records

    def _split(self, items: Iterable[KubeObject]) -> tuple[dict[str, InventoryRecord], list[KubeObject]]:
        records: dict[str, InventoryRecord] = {}
        out_of_scope: list[KubeObject] = []
        for seen in items:
            if self._scope.is_collected(seen):
                records[seen.uid] = self._record(seen, None)
            else:
                out_of_scope.append(seen)
        return records, out_of_scope

    async def _forget_or_keep(self, away: Iterable[KubeObject], gone: int = 0) -> None:
        """Removes the records of objects that are not collected. For a source that is swept, those stay whose
        annotations say that their resources are to be kept: a sweep would find these resources."""
        swept = self.assignment.declaration.swept
        kept: dict[str, InventoryRecord] = {}
        out_of_scope: list[str] = []
        for seen in away:
            if swept and (why := self._scope.keep_reason(seen)):
                kept[seen.uid] = msgspec.structs.replace(self._record(seen, None), kept=why, gone=gone)
            else:
                out_of_scope.append(seen.uid)
        await self._store.remove(out_of_scope)
        await self._store.save(kept)

    async def _remember(self, records: dict[str, InventoryRecord]) -> None:
        """An object that can't be recognised now keeps the recorded data."""
        faulty = [uid for uid, record in records.items() if record.fault]
        if faulty:
            known = await self._store.get_many(faulty)
            for uid, before in known.items():
                records[uid] = msgspec.structs.replace(records[uid], data=before.data)
        await self._store.save(records)

    def _record(self, seen: KubeObject, before: InventoryRecord | None) -> InventoryRecord:
        data, fault = "", ""
        try:
            data = self.assignment.recognise(bytes(seen.raw))
        except Unrecognisable as error:
            fault = str(error)
            data = before.data if before is not None else ""
            if not isinstance(error, NotRecognisedYet):
                self._status.report_unreadable(f"{seen.namespace}/{seen.name} (uid {seen.uid}): {error}")
        return InventoryRecord(
            v=VERSION, name=seen.name, namespace=seen.namespace, labels=seen.labels, annotations=seen.annotations,
            data=data, fault=fault, scope=self._watched, seen=self._number,
        )  # fmt: skip


def _now() -> int:
    return int(time.time() * 1000)


class NamespaceRecords:
    """Annotations of the Namespaces of observed objects, as last read. A Namespace is often deleted with its objects,
    and its annotations are needed for their policy."""

    def __init__(self, cluster: KubernetesClient, store: Inventory, status: SourceStatus) -> None:
        self._cluster, self._store, self._status = cluster, store, status
        self._read: set[str] = set()

    def begin(self) -> None:
        """A list begins: all are read again."""
        self._read.clear()

    async def note(self, names: Iterable[str]) -> None:
        """Records each Namespace once per list."""
        fresh = {name for name in names if name and name not in self._read}
        await self._store.save_namespace_annotations(await self._live(fresh))
        self._read |= fresh

    async def last(self, names: Iterable[str]) -> dict[str, NamespaceAnnotations | None]:
        """As they are now, or as recorded if the Namespace is gone."""
        wanted = {name for name in names if name}
        live = await self._live(wanted)
        return {name: live.get(name) or await self._store.namespace_annotations(name) for name in wanted}

    async def _live(self, names: set[str]) -> dict[str, NamespaceAnnotations]:
        found: dict[str, NamespaceAnnotations] = {}

        async def read(name: str) -> None:
            if (annotations := await self._read_namespace(name)) is not None:
                found[name] = annotations

        await run_concurrently(names, read)
        return found

    async def _read_namespace(self, name: str) -> NamespaceAnnotations | None:
        """None if it is gone or can't be read: the record stays as it is."""
        try:
            return NamespaceAnnotations(await self._cluster.namespace_annotations(name), int(time.time() * 1000))
        except (Unavailable, TooMany):
            raise
        except NotFound:
            return None
        except ClusterError as error:
            self._status.warning("annotations of a Namespace can't be read", namespace=name, reason=str(error))
            return None
