"""Diff of the inventory against a complete list: finds observed objects that were deleted while nothing watched.
An object that is missing in the list does not count as gone before a read proves it: see absence.py."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from service.engine.inventory import Inventory, InventoryRecord
from service.engine.lease_counters import is_restore_reason
from service.engine.outcomes import FINAL, deletion_outcomes
from service.kubernetes import ServedResource
from service.watching.absence import MissingObject, prove_absence
from service.watching.assignment import ListScope
from service.watching.publishing import Publisher
from service.watching.source_status import SourceStatus


class MissingRecord(NamedTuple):
    uid: str
    record: InventoryRecord


PublishGone = Callable[[Sequence[MissingRecord]], Awaitable[None]]


class InventoryDiff:
    """`scope` names what is watched: records of another scope are removed, and nothing is published of them. `crd` is
    the uid of the CRD as it was before the list."""

    def __init__(
        self, list_scope: ListScope, scope: str, crd: str, store: Inventory, publisher: Publisher, status: SourceStatus
    ) -> None:
        self._list_scope, self._scope, self._crd, self._store = list_scope, scope, crd, store
        self._publisher, self._status = publisher, status
        self._held = 0
        self._why = ""
        self._rebaselined = 0
        self._accepted = False

    async def run(self, served: ServedResource, number: int, hold: str, publish_gone: PublishGone) -> int:
        """Checks the records that were last seen by a list with a lower number. With `hold`, the reason, all of their
        deletions are held. Returns how many are held now."""
        self._accepted = await self._is_accepted()
        async for part in self._store.scan(self._list_scope.namespace):
            absent: list[MissingRecord] = []
            for uid, record in part:
                if record is None:
                    self._status.report_unreadable(
                        f"the inventory's record of uid {uid} can't be read; it is kept as it is"
                    )
                elif record.kept:
                    # It is not collected; a sweep removes the record when none of its resources is left.
                    continue
                elif record.seen < number and self._list_scope.includes(record.namespace):
                    absent.append(MissingRecord(uid, record))
            await self._settle_gone([one for one in absent if one.record.gone])
            await self._check_missing(served, [one for one in absent if not one.record.gone], hold, publish_gone)
        if self._rebaselined:
            self._status.warning("inventory started over for another scope, nothing published", count=self._rebaselined)
        await self._store_counts()
        return self._held

    async def _settle_gone(self, gone: Sequence[MissingRecord]) -> None:
        """Objects known to be gone: each must have a deletion, and its record is removed when that has ended."""
        if not gone:
            return
        assignment = self._list_scope.assignment
        ended = await deletion_outcomes(assignment.installation, [self._publisher.deletion_of(uid) for uid, _ in gone])
        rows = list(zip(gone, ended, strict=True))
        # Kept resources of a swept source: without the record a sweep would remove them for want of an owner.
        kept = {
            one.uid: msgspec.structs.replace(one.record, kept=ending.kept)
            for one, ending in rows
            if assignment.declaration.swept and ending.state in FINAL and ending.kept
        }
        over = [one.uid for one, ending in rows if ending.state in FINAL and one.uid not in kept]
        lost = [one for one, ending in rows if not ending.state]
        assignment.require_lease()
        await self._store.save(kept)
        await self._store.remove(over)
        await self._publisher.publish([self._publisher.event_of_record(uid, record) for uid, record in lost])

    async def _check_missing(
        self, served: ServedResource, absent: Sequence[MissingRecord], hold: str, publish_gone: PublishGone
    ) -> None:
        foreign = [one.uid for one in absent if one.record.scope != self._scope]
        if foreign:
            self._list_scope.assignment.require_lease()
            await self._store.remove(foreign)
            self._rebaselined += len(foreign)
        ours = [one for one in absent if one.record.scope == self._scope]
        for one in ours:
            if self._stays_held(one.record):
                self._count(one.record.held)
        fresh = [one for one in ours if not self._stays_held(one.record)]
        if fresh:
            await self._prove(served, fresh, hold, publish_gone)

    async def _is_accepted(self) -> bool:
        """Whether the cluster does not count as restored from a backup: what was held for that is checked again."""
        restore_detector = self._list_scope.assignment.restore_detector
        return restore_detector is not None and not await restore_detector.known_reason()

    def _stays_held(self, record: InventoryRecord) -> bool:
        return bool(record.held) and not (self._accepted and is_restore_reason(record.held))

    async def _prove(
        self, served: ServedResource, absent: Sequence[MissingRecord], hold: str, publish_gone: PublishGone
    ) -> None:
        missing = [MissingObject(uid, record.namespace, record.name) for uid, record in absent]
        assignment = self._list_scope.assignment
        proofs = await prove_absence(assignment.cluster, served, missing, self._crd, assignment.doubt)
        gone_records, left, held = list[MissingRecord](), list[str](), dict[str, InventoryRecord]()
        for one in absent:
            proof = proofs[one.uid]
            if proof.kind == "lives":
                # It left the selector.
                left.append(one.uid)
            elif proof.kind == "unknown":
                self._status.report_unreadable(proof.why)
            elif proof.kind == "held" or hold:
                held[one.uid] = msgspec.structs.replace(one.record, held=proof.why or hold)
                self._count(proof.why or hold)
            else:
                gone_records.append(one)
        self._list_scope.assignment.require_lease()
        await self._store.remove(left)
        await self._store.save(held)
        await publish_gone(gone_records)

    def _count(self, why: str) -> None:
        self._held += 1
        self._why = self._why or why

    async def _store_counts(self) -> None:
        count, why = self._list_scope.field("held"), self._list_scope.field("held_why")
        self._list_scope.assignment.count(self._list_scope.label, held=self._held)
        if self._held:
            self._status.warning("deletions held", reason=self._why, count=self._held)
            await self._store.save_state({count: self._held, why: self._why})
        else:
            await self._store.clear_state(count, why)
