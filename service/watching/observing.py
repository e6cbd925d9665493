"""What is done with the objects of a source that is only observed: they are remembered, and mourned when proven gone.
The record of a gone object stays, for its deletion is planned by it, until that deletion has ended."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from service.contract import VERSION
from service.engine.inventory import Inventory, Remembered
from service.kubernetes import Change, Expired, Seen, Served
from service.kubernetes.definitions import crd_uid, replaced
from service.watching.assignment import Assignment
from service.watching.collectors import Unrecognisable
from service.watching.diffing import Absent, Diff
from service.watching.listing import Begun
from service.watching.marking import Marker
from service.watching.namespaces import Namespaces
from service.watching.proving import Missing, prove
from service.watching.publishing import Publisher
from service.watching.reporting import Known, Report
from service.watching.scope import Scope
from service.watching.strand import Strand


class Observing:
    """One strand of an observed source. `owned` are the objects that are remembered and live."""

    def __init__(
        self, strand: Strand, scope: Scope, store: Inventory, publisher: Publisher, marker: Marker, report: Report
    ) -> None:
        self._strand, self._scope, self._store = strand, scope, store
        self._publisher, self._marker, self._report = publisher, marker, report
        self._number = 0
        self._watched = ""
        self._crd = self._crd_before = ""
        self._namespaces = Namespaces(strand.assignment.cluster, store, report)
        self._stuck = Known()
        self._held = 0
        self.owned = 0

    @property
    def assignment(self) -> Assignment:
        return self._strand.assignment

    @property
    def selector(self) -> str:
        return self.assignment.settings.selector

    # ---- a list

    async def begin(self, served: Served, begun: Begun) -> None:
        self._number, self._watched = begun.number, begun.scope
        self._crd = await crd_uid(self.assignment.cluster, served.resource)
        self._crd_before = begun.facts.get(self._strand.field("crd"), "")
        self._namespaces.begin()
        self._publisher.claims.begin()
        self.owned = 0

    async def page(self, served: Served, items: Sequence[Seen]) -> None:
        records, doomed = self._sorted(items)
        self._unmark(served, items)
        self.assignment.act()
        await self._keep(records)
        await self._leave(doomed)
        self.owned += len(records)
        await self._namespaces.note(record.namespace for record in records.values())

    async def end(self, served: Served, hold: str) -> None:
        if not hold and self._crd_before and self._crd != self._crd_before:
            hold = replaced(served.resource)
        diff = Diff(self._strand, self._watched, self._crd, self._store, self._publisher, self._report)
        self._held = await diff.run(served, self._number, hold, self.bury)
        await self._publisher.claims.end()
        # Only now: whoever dies before holds the same objects again.
        await self._store.note({self._strand.field("crd"): self._crd})

    # ---- a watch

    def passing(self, change: Change) -> None:
        """What is kept of an observed object is its latest state."""

    async def changes(self, served: Served, latest: Sequence[Change]) -> None:
        """The latest change of each object; of one that came and went, both."""
        seen = [change.seen for change in latest if change.seen is not None and change.kind != "DELETED"]
        gone = [change.seen for change in latest if change.seen is not None and change.kind == "DELETED"]
        records, doomed = self._sorted(seen)
        self._unmark(served, seen)
        added = {change.seen.uid for change in latest if change.seen is not None and change.kind == "ADDED"}
        self.owned += sum(uid in added for uid in records)
        if records or doomed:
            self.assignment.act()
            await self._keep(records)
            await self._leave(doomed)
            await self._namespaces.note(record.namespace for record in records.values())
        if gone:
            await self._deleted(served, gone)

    async def _deleted(self, served: Served, gone: Sequence[Seen]) -> None:
        """A DELETED event is no proof: deleting a CRD tells it of every object, and so does a changed label."""
        known = await self._store.recall([seen.uid for seen in gone])
        mourned = {uid for uid, record in known.items() if record.gone}
        rows = [seen for seen in gone if self._scope.is_collected(seen) and seen.uid not in mourned]
        # Its last state counts: one that was opted out right before it went is none of ours.
        away = [seen for seen in gone if not self._scope.is_collected(seen) and seen.uid not in mourned]
        left = list[str]()
        missing = [Missing(seen.uid, seen.namespace, seen.name) for seen in rows]
        proofs = await prove(self.assignment.cluster, served, missing, self._crd, self.assignment.doubt)
        deaths, held = list[Absent](), dict[str, Remembered]()
        for seen in rows:
            proof = proofs[seen.uid]
            record = self._record(seen, known.get(seen.uid))
            if proof.kind == "gone":
                deaths.append(Absent(seen.uid, msgspec.structs.replace(record, at=seen.deleting or _now())))
            elif proof.kind == "held":
                held[seen.uid] = msgspec.structs.replace(record, held=proof.why, at=seen.deleting or _now())
            elif proof.kind == "lives":
                left.append(seen.uid)
            else:
                self._report.unreadable(proof.why)
        self.assignment.act()
        await self._store.forget(left)
        await self._leave(away, gone=_now())
        await self._hold(held)
        await self.bury(deaths)
        self.owned = max(0, self.owned - len(deaths) - sum(uid in known for uid in left))
        self.owned = max(0, self.owned - sum(seen.uid in known and not known[seen.uid].kept for seen in away))
        why = replaced(served.resource)
        if any(proof.why == why for proof in proofs.values()):
            # Until the next list everything would be held: what is under the new CRD is to be known as that.
            raise Expired(why)

    async def _hold(self, held: dict[str, Remembered]) -> None:
        if not held:
            return
        await self._store.remember(held)
        self._held += len(held)
        self.assignment.count(self._strand.label, held=self._held)
        why = next(iter(held.values())).held
        self._report.warned("deletions held", reason=why, count=len(held))
        await self._store.note({self._strand.field("held"): self._held, self._strand.field("held_why"): why})

    # ---- those proven gone

    async def bury(self, deaths: Sequence[Absent]) -> None:
        """First what is remembered, then the event: should we die in between, the next list finds the record."""
        if not deaths:
            return
        marks = await self._namespaces.last(record.namespace for _, record in deaths)
        now = _now()
        records: dict[str, Remembered] = {}
        for uid, record in deaths:
            found = marks.get(record.namespace)
            records[uid] = msgspec.structs.replace(
                record, gone=now, at=record.at or now, held="", scope=self._watched,
                namespace_annotations=None if found is None else found.annotations,
                namespace_at=0 if found is None else found.at,
            )  # fmt: skip
        self.assignment.act()
        await self._store.remember(records)
        events = [self._publisher.event_of(uid, record) for uid, record in records.items()]
        await self._publisher.claims.compare(events, await self._publisher.send(events))

    def _unmark(self, served: Served, items: Iterable[Seen]) -> None:
        """Of a source that had another mode once. One that is going is left to a person: nobody here may let it go."""
        for seen in items:
            if not self._scope.has_ours(seen):
                continue
            if not seen.going:
                self._marker.consider(served, seen)
            elif self._stuck.add(seen.uid) and self._scope.is_ours_to_publish(seen):
                self._report.warned(
                    "object is held back by our finalizer, but its source only observes; set its mode to finalizer",
                    uid=seen.uid, name=seen.name, namespace=seen.namespace,
                )  # fmt: skip

    # ---- records

    def _sorted(self, items: Iterable[Seen]) -> tuple[dict[str, Remembered], list[Seen]]:
        records: dict[str, Remembered] = {}
        doomed: list[Seen] = []
        for seen in items:
            if self._scope.is_collected(seen):
                records[seen.uid] = self._record(seen, None)
            else:
                doomed.append(seen)
        return records, doomed

    async def _leave(self, away: Iterable[Seen], gone: int = 0) -> None:
        """Those that are none of ours are forgotten. Only where a sweep would find what they leave behind, those are
        remembered whose own marks say that it is to stay."""
        swept = self.assignment.traits.swept
        kept: dict[str, Remembered] = {}
        doomed: list[str] = []
        for seen in away:
            if swept and (why := self._scope.spares(seen)):
                kept[seen.uid] = msgspec.structs.replace(self._record(seen, None), kept=why, gone=gone)
            else:
                doomed.append(seen.uid)
        await self._store.forget(doomed)
        await self._store.remember(kept)

    async def _keep(self, records: dict[str, Remembered]) -> None:
        """What can't be recognised now keeps what recognised it before."""
        faulty = [uid for uid, record in records.items() if record.fault]
        if faulty:
            known = await self._store.recall(faulty)
            for uid, before in known.items():
                records[uid] = msgspec.structs.replace(records[uid], data=before.data)
        await self._store.remember(records)

    def _record(self, seen: Seen, before: Remembered | None) -> Remembered:
        data, fault = "", ""
        try:
            data = self.assignment.recognise(bytes(seen.raw))
        except Unrecognisable as error:
            fault = str(error)
            data = before.data if before is not None else ""
            self._report.unreadable(f"{seen.namespace}/{seen.name} (uid {seen.uid}): {error}")
        return Remembered(
            v=VERSION, name=seen.name, namespace=seen.namespace, labels=seen.labels, annotations=seen.annotations,
            data=data, fault=fault, scope=self._watched, seen=self._number,
        )  # fmt: skip


def _now() -> int:
    return int(time.time() * 1000)
