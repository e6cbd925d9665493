"""Publisher of deletion events: every object that is going has an open deletion for as long as it is going. Deletions
of objects that lost our finalizer are withdrawn; objects that were deleted without it are reported as missed."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from service.contract import Event
from service.engine.inventory import DeletionRound, Inventory, InventoryRecord
from service.engine.outcomes import FINAL, deletion_outcomes
from service.engine.withdrawal import withdraw
from service.kubernetes import KubeObject, NotServed, ServedResource
from service.sources.declaration import Unrecognisable
from service.watching.absence import AbsenceProof, CrdCheck, MissingObject, check_crd, prove_absence
from service.watching.assignment import ListScope
from service.watching.scope import SourceScope
from service.watching.source_conflicts import SourceConflicts
from service.watching.source_status import RecentNames, SourceStatus

_WITHDRAWABLE: Final = frozenset({"published", "waiting", "held", "running"})
_MOST_ROUNDS: Final = 1000


class Publisher:
    """Of one list scope. `rounds` counts the deletions of objects that are still going after the first one ended.
    `dropped` has Namespace and name of objects whose deletion an operator dropped before the last list."""

    def __init__(self, list_scope: ListScope, scope: SourceScope, store: Inventory, status: SourceStatus) -> None:
        self._list_scope, self._scope, self._store, self._status = list_scope, scope, store, status
        self._assignment, self._installation = list_scope.assignment, list_scope.assignment.installation
        self.rounds: dict[str, DeletionRound] = {}
        self.dropped: dict[str, tuple[str, str]] = {}
        self._open = RecentNames()
        self.conflicts = SourceConflicts(list_scope.assignment, status, list_scope.label)
        self.held: set[str] = set()

    async def begin(self) -> None:
        """Before a list: all deletions are published again, whatever this process remembers."""
        self.rounds = await self._store.rounds()
        self.dropped = await self._store.dropped()
        self._open.clear()
        self.held.clear()
        self.conflicts.begin()

    async def end(self, served: ServedResource, going: set[str]) -> None:
        """After a complete list: removes the rounds of objects that are no longer going."""
        includes = self._list_scope.includes
        over = [uid for uid, found in self.rounds.items() if uid not in going and includes(found.namespace)]
        await self._store.remove_rounds(over)
        await self._forget_dropped(served, going)
        for uid in over:
            del self.rounds[uid]
        await self.conflicts.end()
        if not self.held:
            self._assignment.count(self._list_scope.label, held=0)
            await self._store.clear_state(self._list_scope.field("held"), self._list_scope.field("held_why"))

    async def _forget_dropped(self, served: ServedResource, going: set[str]) -> None:
        """For objects that are gone or not going. One that only left the selector may come back."""
        missing = [
            MissingObject(uid, namespace, name)
            for uid, (namespace, name) in self.dropped.items()
            if uid not in going and self._list_scope.includes(namespace)
        ]
        if missing:
            proofs = await prove_absence(self._assignment.cluster, served, missing)
            lives = {uid for uid, proof in proofs.items() if proof.kind == "lives" and proof.live and proof.live.going}
            known = {uid for uid, proof in proofs.items() if proof.kind in ("gone", "lives")}
            await self._store.remove_dropped(known - lives)

    # ---- objects with our finalizer

    async def publish_going(
        self, served: ServedResource, seens: Sequence[KubeObject], *, just_now: bool = False
    ) -> None:
        """For objects with our finalizer and a deletionTimestamp. Those of a watch, seen `just_now`, are passed to a
        planner in this process; a list may be too old for that."""
        fresh = [seen for seen in seens if seen.uid not in self._open]
        self._forget_recent(served, seens)
        if not fresh:
            return
        if just_now:
            self._note_recent(served, fresh)
        crd_check = await check_crd(self._assignment.cluster, served.resource)
        if not crd_check.fine and not crd_check.token:
            # It is not being deleted: it may be established again soon, and then everything is listed.
            raise NotServed(crd_check.why)
        if not crd_check.fine and not await self._deletion_confirmed(crd_check):
            await self._hold(fresh, crd_check)
            return
        kept = [seen.without_raw() for seen in fresh]
        data = await self._data_of(fresh)
        events = [self.event(seen, data[seen.uid], self.round_of(seen.uid)) for seen in fresh]
        states = await self.conflicts.withdraw_undeclared(events, await self.publish(events))
        for seen in fresh:
            if seen.uid not in self.conflicts.deferred:
                self._open.add(seen.uid)
        await self._next_rounds(served, kept, events, states)

    def _note_recent(self, served: ServedResource, seens: Sequence[KubeObject]) -> None:
        """Before the first await: their age counts from now on."""
        recent_objects = self._assignment.recent_objects
        if recent_objects is not None:
            for seen in seens:
                recent_objects.note(self._assignment.cluster_uid, served.resource, seen)

    def _forget_recent(self, served: ServedResource, seens: Sequence[KubeObject]) -> None:
        """They have changed since."""
        recent_objects = self._assignment.recent_objects
        if recent_objects is not None:
            for seen in seens:
                recent_objects.forget(self._assignment.cluster_uid, served.resource, seen.uid)

    async def _next_rounds(
        self, served: ServedResource, seens: Sequence[KubeObject], events: Sequence[Event], states: Sequence[str]
    ) -> None:
        """An object that is still going although its deletion has ended is published in the next round."""
        rows = list(zip(seens, events, states, strict=True))
        for _ in range(_MOST_ROUNDS):
            rows = [row for row in rows if row[2] in FINAL]
            if not rows:
                return
            # The list may be older than the removal of the finalizer.
            proofs = await prove_absence(self._assignment.cluster, served, [_missing(seen) for seen, _, _ in rows])
            again = [(seen, event) for seen, event, _ in rows if self._has_finalizer_still(proofs[seen.uid])]
            if not again:
                return
            nexts = [msgspec.structs.replace(event, round=event.round + 1) for _, event in again]
            rounds = {event.uid: DeletionRound(event.round, event.namespace) for event in nexts}
            self.rounds.update(rounds)
            # Before it is published: a round that is not stored would be published twice.
            await self._store.save_rounds(rounds)
            answers = await self.conflicts.withdraw_undeclared(nexts, await self.publish(nexts))
            rows = [(seen, event, state) for (seen, _), event, state in zip(again, nexts, answers, strict=True)]

    async def _deletion_confirmed(self, crd_check: CrdCheck) -> bool:
        """Whether an operator confirmed that this CRD is to be deleted with all its objects."""
        return (await self._store.state()).get("confirmed") == crd_check.token

    async def _hold(self, seens: Sequence[KubeObject], crd_check: CrdCheck) -> None:
        self.held.update(seen.uid for seen in seens)
        self._assignment.count(self._list_scope.label, held=len(self.held))
        self._status.warning("deletions held", reason=crd_check.why, count=len(seens))
        count, why = self._list_scope.field("held"), self._list_scope.field("held_why")
        await self._store.save_state({count: len(self.held), why: crd_check.why, "held_token": crd_check.token})

    # ---- objects without our finalizer

    async def handle_without_finalizer(
        self, served: ServedResource, seens: Sequence[KubeObject], *, deleted: bool
    ) -> dict[str, AbsenceProof]:
        """For objects that are going without our finalizer, or were deleted: someone else removed it, or it was never
        added.

        Returns the proofs of deleted objects that had to be read: some still live and only left the selector.
        """
        if not seens:
            return {}
        self._forget_recent(served, seens)
        ids = [self.deletion_of(seen.uid) for seen in seens]
        states = [ending.state for ending in await deletion_outcomes(self._installation, ids)]
        rows = [(seen, one, state) for seen, one, state in zip(seens, ids, states, strict=True)
                if self._concerns(seen, state)]  # fmt: skip
        proofs: dict[str, AbsenceProof] = {}
        if deleted and rows:
            unproven = [_missing(seen) for seen, _, state in rows if state or self._assignment.settings.selector]
            proofs = await prove_absence(self._assignment.cluster, served, unproven)
            # Also while the CRD is being deleted: the finalizer is off in any case.
            lives = {uid for uid, proof in proofs.items() if proof.kind in ("lives", "unknown")}
            rows = [row for row in rows if row[0].uid not in lives]
        for seen, deletion, state in rows:
            await self._withdraw_or_report(served, seen, deletion, state)
        return proofs

    def _concerns(self, seen: KubeObject, state: str) -> bool:
        if state:
            return state in _WITHDRAWABLE
        return self._scope.has_own_finalizer(seen) or self._scope.needs_finalizer(seen)

    async def _withdraw_or_report(self, served: ServedResource, seen: KubeObject, deletion: str, state: str) -> None:
        if self._assignment.declaration.remembers:
            # The deletion goes on by the inventory's record, once the object is proven gone.
            self._open.drop(seen.uid)
        elif state:
            self._assignment.require_lease()
            why = "our finalizer was removed by someone else"
            if await withdraw(self._installation, deletion, why):
                self._assignment.counters.withdrawn += 1
                self._status.warning("consent withdrawn", deletion=deletion, reason=why)
            self._open.drop(seen.uid)
        elif not self._scope.has_own_finalizer(seen):
            await self._status.report_missed(served, seen)

    # ---- events

    def deletion_of(self, uid: str) -> str:
        return f"{self._assignment.cluster_uid}/{self._assignment.settings.resource}/{uid}/{self.round_of(uid)}"

    def round_of(self, uid: str) -> int:
        found = self.rounds.get(uid)
        return 1 if found is None else found.number

    def event(self, seen: KubeObject, data: str, round_: int = 1, at: int = 0) -> Event:
        return Event(
            cluster=self._assignment.cluster_uid,
            resource=self._assignment.settings.resource,
            uid=seen.uid,
            name=seen.name,
            namespace=seen.namespace,
            source=self._assignment.name,
            round=round_,
            at=at or seen.deleting,
            data=data,
        )

    def event_of_record(self, uid: str, record: InventoryRecord) -> Event:
        """For an observed object that is gone."""
        return self.event(KubeObject(uid=uid, name=record.name, namespace=record.namespace), record.data, at=record.at)

    async def _data_of(self, seens: Sequence[KubeObject]) -> dict[str, str]:
        """Data of objects that are going; for a source that `remembers`, what was recognised while they lived."""
        if not self._assignment.declaration.remembers:
            return {seen.uid: self.recognise(seen) for seen in seens}
        known = await self._store.get_many([seen.uid for seen in seens])
        return {seen.uid: known[seen.uid].data if seen.uid in known else "" for seen in seens}

    def recognise(self, seen: KubeObject) -> str:
        """Data that identifies its resources; empty if it can't be read, because the planner reads the live object."""
        try:
            return self._assignment.recognise(bytes(seen.raw))
        except Unrecognisable as error:
            self._status.report_unreadable(f"{seen.namespace}/{seen.name} (uid {seen.uid}): {error}")
            return ""

    async def publish(self, events: Sequence[Event]) -> list[str]:
        """Returns the state of each deletion: `added`, or the one it already had."""
        if not events:
            return []
        self._assignment.require_lease()
        answers = await self._installation.publish(events)
        self._assignment.counters.published += sum(answer.state == "added" for answer in answers)
        return [answer.state for answer in answers]

    def _has_finalizer_still(self, proof: AbsenceProof) -> bool:
        return proof.live is not None and proof.live.going and self._scope.has_own_finalizer(proof.live)

    def forget(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._open.drop(uid)


def _missing(seen: KubeObject) -> MissingObject:
    return MissingObject(seen.uid, seen.namespace, seen.name)
