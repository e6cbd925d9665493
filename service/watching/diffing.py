"""Finds the observed objects that went while nobody watched: what is remembered and not in a complete, fresh list.
Nothing is taken for gone because it is missing here; that is what the reads of `proving` are for."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from service.engine.endings import FINAL, endings
from service.engine.inventory import Inventory, Remembered
from service.engine.witnesses import is_until_accepted
from service.kubernetes import Served
from service.watching.proving import Missing, prove
from service.watching.publishing import Publisher
from service.watching.reporting import Report
from service.watching.strand import Strand


class Absent(NamedTuple):
    uid: str
    record: Remembered


Bury = Callable[[Sequence[Absent]], Awaitable[None]]


class Diff:
    """`scope` names what is watched: records that were made for something else are dropped, nothing is published.
    `crd` is the uid of the CRD as it was before the list."""

    def __init__(
        self, strand: Strand, scope: str, crd: str, store: Inventory, publisher: Publisher, report: Report
    ) -> None:
        self._strand, self._scope, self._crd, self._store = strand, scope, crd, store
        self._publisher, self._report = publisher, report
        self._held = 0
        self._why = ""
        self._rebaselined = 0
        self._accepted = False

    async def run(self, served: Served, number: int, hold: str, bury: Bury) -> int:
        """What a list with a lower number saw last is missing. With `hold` nothing of it is believed, and why.

        Answers how many are held now.
        """
        self._accepted = await self._is_accepted()
        async for part in self._store.scan(self._strand.namespace):
            absent: list[Absent] = []
            for uid, record in part:
                if record is None:
                    self._report.unreadable(f"the inventory's record of uid {uid} can't be read; it is kept as it is")
                elif record.kept:
                    # It was never to be collected; a sweep forgets it, when nothing of it is left.
                    continue
                elif record.seen < number and self._strand.includes(record.namespace):
                    absent.append(Absent(uid, record))
            await self._settle([one for one in absent if one.record.gone])
            await self._judge(served, [one for one in absent if not one.record.gone], hold, bury)
        if self._rebaselined:
            self._report.warned("inventory begun anew for another scope, nothing published", count=self._rebaselined)
        await self._tell()
        return self._held

    async def _settle(self, gone: Sequence[Absent]) -> None:
        """Those known to be gone: each must have a deletion, and is forgotten when that has ended."""
        if not gone:
            return
        assignment = self._strand.assignment
        ended = await endings(assignment.installation, [self._publisher.deletion_of(uid) for uid, _ in gone])
        rows = list(zip(gone, ended, strict=True))
        # Where a sweep would find what stays, and remove it for want of an owner.
        kept = {
            one.uid: msgspec.structs.replace(one.record, kept=ending.kept)
            for one, ending in rows
            if assignment.traits.swept and ending.state in FINAL and ending.kept
        }
        over = [one.uid for one, ending in rows if ending.state in FINAL and one.uid not in kept]
        lost = [one for one, ending in rows if not ending.state]
        assignment.act()
        await self._store.remember(kept)
        await self._store.forget(over)
        await self._publisher.send([self._publisher.event_of(uid, record) for uid, record in lost])

    async def _judge(self, served: Served, absent: Sequence[Absent], hold: str, bury: Bury) -> None:
        foreign = [one.uid for one in absent if one.record.scope != self._scope]
        if foreign:
            self._strand.assignment.act()
            await self._store.forget(foreign)
            self._rebaselined += len(foreign)
        ours = [one for one in absent if one.record.scope == self._scope]
        for one in ours:
            if self._stays_held(one.record):
                self._count(one.record.held)
        fresh = [one for one in ours if not self._stays_held(one.record)]
        if fresh:
            await self._prove(served, fresh, hold, bury)

    async def _is_accepted(self) -> bool:
        """Whether the cluster counts as restored from a backup no more: what was held for that is looked at again."""
        witness = self._strand.assignment.witness
        return witness is not None and not await witness.restored()

    def _stays_held(self, record: Remembered) -> bool:
        return bool(record.held) and not (self._accepted and is_until_accepted(record.held))

    async def _prove(self, served: Served, absent: Sequence[Absent], hold: str, bury: Bury) -> None:
        missing = [Missing(uid, record.namespace, record.name) for uid, record in absent]
        assignment = self._strand.assignment
        proofs = await prove(assignment.cluster, served, missing, self._crd, assignment.doubt)
        deaths, left, held = list[Absent](), list[str](), dict[str, Remembered]()
        for one in absent:
            proof = proofs[one.uid]
            if proof.kind == "lives":
                # It is there, but not in the list any more: it left the selector.
                left.append(one.uid)
            elif proof.kind == "unknown":
                self._report.unreadable(proof.why)
            elif proof.kind == "held" or hold:
                held[one.uid] = msgspec.structs.replace(one.record, held=proof.why or hold)
                self._count(proof.why or hold)
            else:
                deaths.append(one)
        self._strand.assignment.act()
        await self._store.forget(left)
        await self._store.remember(held)
        await bury(deaths)

    def _count(self, why: str) -> None:
        self._held += 1
        self._why = self._why or why

    async def _tell(self) -> None:
        count, why = self._strand.field("held"), self._strand.field("held_why")
        self._strand.assignment.count(self._strand.label, held=self._held)
        if self._held:
            self._report.warned("deletions held", reason=self._why, count=self._held)
            await self._store.note({count: self._held, why: self._why})
        else:
            await self._store.clear(count, why)
