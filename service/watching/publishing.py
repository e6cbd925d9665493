"""Publishes that objects are going, and sees to it that each has an open deletion for as long as it is going.
Also what is to be said of those that lost our finalizer or never had it: consent withdrawn, or missed."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from service.contract import Event
from service.engine.endings import FINAL, endings
from service.engine.inventory import Inventory, Remembered, Round
from service.engine.withdrawal import withdraw
from service.kubernetes import NotServed, Seen, Served
from service.watching.claims import Claims
from service.watching.collectors import Unrecognisable
from service.watching.proving import Definition, Missing, Proof, definition_of, prove
from service.watching.reporting import Known, Report
from service.watching.scope import Scope
from service.watching.strand import Strand

_WITHDRAWABLE: Final = frozenset({"published", "waiting", "held", "running"})
_MOST_ROUNDS: Final = 1000


class Publisher:
    """`rounds` are those of objects whose first deletion is over although they are still going, `dropped` those whose
    deletion a person dropped before the last list began, with their Namespaces and names."""

    def __init__(self, strand: Strand, scope: Scope, store: Inventory, report: Report) -> None:
        self._strand, self._scope, self._store, self._report = strand, scope, store, report
        self._assignment, self._installation = strand.assignment, strand.assignment.installation
        self.rounds: dict[str, Round] = {}
        self.dropped: dict[str, tuple[str, str]] = {}
        self._open = Known()
        self.claims = Claims(strand.assignment, report, strand.label)
        self.held: set[str] = set()

    async def begin(self) -> None:
        """Before a list: what was published is asked for again, whatever this process remembers."""
        self.rounds = await self._store.rounds()
        self.dropped = await self._store.dropped()
        self._open.clear()
        self.held.clear()
        self.claims.begin()

    async def end(self, served: Served, going: set[str]) -> None:
        """After a complete list: rounds of objects that are not going any more are forgotten."""
        includes = self._strand.includes
        over = [uid for uid, found in self.rounds.items() if uid not in going and includes(found.namespace)]
        await self._store.drop_rounds(over)
        await self._forget_dropped(served, going)
        for uid in over:
            del self.rounds[uid]
        await self.claims.end()
        if not self.held:
            self._assignment.count(self._strand.label, held=0)
            await self._store.clear(self._strand.field("held"), self._strand.field("held_why"))

    async def _forget_dropped(self, served: Served, going: set[str]) -> None:
        """Of objects that are gone, or were never going. One that only left the selector may come back."""
        missing = [
            Missing(uid, namespace, name)
            for uid, (namespace, name) in self.dropped.items()
            if uid not in going and self._strand.includes(namespace)
        ]
        if missing:
            proofs = await prove(self._assignment.cluster, served, missing)
            lives = {uid for uid, proof in proofs.items() if proof.kind == "lives" and proof.live and proof.live.going}
            known = {uid for uid, proof in proofs.items() if proof.kind in ("gone", "lives")}
            await self._store.forget_dropped(known - lives)

    # ---- objects with our finalizer

    async def going(self, served: Served, seens: Sequence[Seen], *, just_now: bool = False) -> None:
        """Each of them has our finalizer and a deletionTimestamp. What was seen `just_now` is shown to a planner here;
        what a list says may be as old as the list."""
        fresh = [seen for seen in seens if seen.uid not in self._open]
        self._unshow(served, seens)
        if not fresh:
            return
        if just_now:
            self._show(served, fresh)
        definition = await definition_of(self._assignment.cluster, served.resource)
        if not definition.fine and not definition.token:
            # Nobody deletes it: it may be established again in a moment, and then everything is listed.
            raise NotServed(definition.why)
        if not definition.fine and not await self._confirmed(definition):
            await self._hold(fresh, definition)
            return
        kept = [seen.without_raw() for seen in fresh]
        events = [self.event(seen, self.recognised(seen), self.round_of(seen.uid)) for seen in fresh]
        states = await self.claims.make_room(events, await self.send(events))
        for seen in fresh:
            if seen.uid not in self.claims.later:
                self._open.add(seen.uid)
        await self._next_rounds(served, kept, events, states)

    def _show(self, served: Served, seens: Sequence[Seen]) -> None:
        """Before anything else is waited for: from now on they grow old."""
        sightings = self._assignment.sightings
        if sightings is not None:
            for seen in seens:
                sightings.note(self._assignment.cluster_uid, served.resource, seen)

    def _unshow(self, served: Served, seens: Sequence[Seen]) -> None:
        """They have changed since."""
        sightings = self._assignment.sightings
        if sightings is not None:
            for seen in seens:
                sightings.forget(self._assignment.cluster_uid, served.resource, seen.uid)

    async def _next_rounds(
        self, served: Served, seens: Sequence[Seen], events: Sequence[Event], states: Sequence[str]
    ) -> None:
        """An object that is still going while its record is final is published under the next round."""
        rows = list(zip(seens, events, states, strict=True))
        for _ in range(_MOST_ROUNDS):
            rows = [row for row in rows if row[2] in FINAL]
            if not rows:
                return
            # The list may be older than the release.
            proofs = await prove(self._assignment.cluster, served, [_missing(seen) for seen, _, _ in rows])
            again = [(seen, event) for seen, event, _ in rows if self._still_held_back(proofs[seen.uid])]
            if not again:
                return
            nexts = [msgspec.structs.replace(event, round=event.round + 1) for _, event in again]
            rounds = {event.uid: Round(event.round, event.namespace) for event in nexts}
            self.rounds.update(rounds)
            # Before it is published: a round that nobody knows would be published a second time.
            await self._store.note_rounds(rounds)
            answers = await self.claims.make_room(nexts, await self.send(nexts))
            rows = [(seen, event, state) for (seen, _), event, state in zip(again, nexts, answers, strict=True)]

    async def _confirmed(self, definition: Definition) -> bool:
        """Whether a person said that this very CRD is meant to go with all its objects."""
        return (await self._store.facts()).get("confirmed") == definition.token

    async def _hold(self, seens: Sequence[Seen], definition: Definition) -> None:
        self.held.update(seen.uid for seen in seens)
        self._assignment.count(self._strand.label, held=len(self.held))
        self._report.warned("deletions held", reason=definition.why, count=len(seens))
        count, why = self._strand.field("held"), self._strand.field("held_why")
        await self._store.note({count: len(self.held), why: definition.why, "held_token": definition.token})

    # ---- objects without our finalizer

    async def without_ours(self, served: Served, seens: Sequence[Seen], *, deleted: bool) -> dict[str, Proof]:
        """Of objects that are going without our finalizer, or were deleted: taken off by another hand, or never there.

        Answers what was found of deleted ones that had to be asked for: some live on, and only left what is watched.
        """
        if not seens:
            return {}
        self._unshow(served, seens)
        ids = [self.deletion_of(seen.uid) for seen in seens]
        states = [ending.state for ending in await endings(self._installation, ids)]
        rows = [(seen, one, state) for seen, one, state in zip(seens, ids, states, strict=True)
                if self._concerns(seen, state)]  # fmt: skip
        proofs: dict[str, Proof] = {}
        if deleted and rows:
            asked = [_missing(seen) for seen, _, state in rows if state or self._assignment.settings.selector]
            proofs = await prove(self._assignment.cluster, served, asked)
            # With a CRD that goes everything of the source waits, but a finalizer that is off is off.
            lives = {uid for uid, proof in proofs.items() if proof.kind in ("lives", "unknown")}
            rows = [row for row in rows if row[0].uid not in lives]
        for seen, deletion, state in rows:
            await self._let_go(served, seen, deletion, state)
        return proofs

    def _concerns(self, seen: Seen, state: str) -> bool:
        if state:
            return state in _WITHDRAWABLE
        return self._scope.has_ours(seen) or self._scope.misses(seen)

    async def _let_go(self, served: Served, seen: Seen, deletion: str, state: str) -> None:
        if state:
            self._assignment.act()
            why = "another hand took our finalizer off"
            if await withdraw(self._installation, deletion, why):
                self._assignment.tally.withdrawn += 1
                self._report.warned("consent withdrawn", deletion=deletion, reason=why)
            self._open.drop(seen.uid)
        elif not self._scope.has_ours(seen):
            await self._report.missed(served, seen)

    # ---- events

    def deletion_of(self, uid: str) -> str:
        return f"{self._assignment.cluster_uid}/{self._assignment.settings.resource}/{uid}/{self.round_of(uid)}"

    def round_of(self, uid: str) -> int:
        found = self.rounds.get(uid)
        return 1 if found is None else found.number

    def event(self, seen: Seen, data: str, round_: int = 1, at: int = 0) -> Event:
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

    def event_of(self, uid: str, record: Remembered) -> Event:
        """Of an observed object that is gone."""
        return self.event(Seen(uid=uid, name=record.name, namespace=record.namespace), record.data, at=record.at)

    def recognised(self, seen: Seen) -> str:
        """What recognises its resources; what can't be told is left to the planner, who reads the live object."""
        try:
            return self._assignment.recognise(bytes(seen.raw))
        except Unrecognisable as error:
            self._report.unreadable(f"{seen.namespace}/{seen.name} (uid {seen.uid}): {error}")
            return ""

    async def send(self, events: Sequence[Event]) -> list[str]:
        """The state of each deletion: `added`, or what it was in already."""
        if not events:
            return []
        self._assignment.act()
        answers = await self._installation.publish(events)
        self._assignment.tally.published += sum(answer.state == "added" for answer in answers)
        return [answer.state for answer in answers]

    def _still_held_back(self, proof: Proof) -> bool:
        return proof.live is not None and proof.live.going and self._scope.has_ours(proof.live)

    def over(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._open.drop(uid)


def _missing(seen: Seen) -> Missing:
    return Missing(seen.uid, seen.namespace, seen.name)
