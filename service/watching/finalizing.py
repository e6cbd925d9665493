"""What is done with the objects of a source that has our finalizer put on: mark, publish, let go.
Nothing is kept of an object here: the finalizer on it is the memory, and every list asks anew what must be open."""

from collections.abc import Sequence

from service.kubernetes import Change, Seen, Served
from service.watching.assignment import Assignment
from service.watching.listing import Begun
from service.watching.marking import Marker
from service.watching.proving import Proof
from service.watching.publishing import Publisher
from service.watching.reconsidering import Reconsidering
from service.watching.scope import Scope, has_any
from service.watching.strand import Strand


class Finalizing:
    """One strand of a finalizer source. `owned` are objects in scope that live or are going, `strays` those with our
    finalizer that are out of scope, and `going_strays` those of them that are going, as the latest list showed them."""

    def __init__(
        self, strand: Strand, scope: Scope, publisher: Publisher, marker: Marker, reconsidering: Reconsidering
    ) -> None:
        self._strand, self._scope = strand, scope
        self._publisher, self._marker, self._reconsidering = publisher, marker, reconsidering
        self._going: set[str] = set()
        self.owned = self.strays = self.going_strays = 0

    @property
    def assignment(self) -> Assignment:
        return self._strand.assignment

    @property
    def selector(self) -> str:
        """Lists take in everything: one that left the selector while nobody watched still has our finalizer."""
        return ""

    async def begin(self, served: Served, begun: Begun) -> None:
        # Everything is asked of the objects themselves.
        del served, begun
        await self._publisher.begin()
        self._going.clear()
        self.owned = self.strays = self.going_strays = 0

    async def page(self, served: Served, items: Sequence[Seen]) -> None:
        going: list[Seen] = []
        without: list[Seen] = []
        for seen in items:
            self.owned += self._is_owned(seen)
            stray = self._scope.is_stray(seen)
            self.strays += stray
            self.going_strays += stray and seen.going
            self._sort(served, seen, going, without)
        self._going.update(seen.uid for seen in going)
        await self._publisher.going(served, going)
        self._reconsider(going)
        await self._publisher.without_ours(served, without, deleted=False)

    async def end(self, served: Served, hold: str) -> None:
        # Nothing is told from absence here: `hold` concerns observed objects only.
        del hold
        await self._publisher.end(served, self._going)
        self._going.clear()

    def passing(self, change: Change) -> None:
        """A state that was over before it could be dealt with; but a worker may have judged by its marks."""
        seen = change.seen
        if seen is None or not self._is_going(seen):
            return
        if change.kind == "DELETED":
            self._reconsidering.left(seen.uid)
        else:
            self._reconsider([seen])

    async def changes(self, served: Served, latest: Sequence[Change]) -> None:
        """The latest change of each object; of one that came and went, both."""
        going: list[Seen] = []
        without: list[Seen] = []
        deleted: list[Seen] = []
        for change in latest:
            seen = change.seen
            if seen is None:
                continue
            if change.kind == "DELETED":
                self._marker.drop(seen.uid)
                # Before the proof: where that can't be had, it may be back, as it was, in the next list.
                self.passing(change)
                deleted.append(seen)
                self.owned -= self._is_owned(seen)
                continue
            self.owned += change.kind == "ADDED" and self._is_owned(seen)
            self._sort(served, seen, going, without)
        await self._publisher.going(served, going, just_now=True)
        self._reconsider(going)
        await self._publisher.without_ours(served, without, deleted=False)
        proofs = await self._publisher.without_ours(served, deleted, deleted=True)
        self._publisher.over(seen.uid for seen in deleted)
        for seen in deleted:
            self._left(served, seen, proofs.get(seen.uid))

    def _left(self, served: Served, seen: Seen, proof: Proof | None) -> None:
        """One whose DELETED event came. Without a proof nobody had to ask: it is gone, or nothing of it is open."""
        if proof is None or proof.kind == "gone":
            self._reconsidering.drop(seen.uid)
        elif proof.live is not None:
            # It left the selector by a change of its labels. While it lives that is an opt-out.
            self._marker.consider(served, proof.live)
            if proof.live.going and self._scope.has_ours(proof.live):
                # It may be back in the selector by now: its marks tell nothing.
                self._reconsidering.left(seen.uid)

    def _reconsider(self, going: Sequence[Seen]) -> None:
        for seen in going:
            self._reconsidering.consider(self._publisher.deletion_of(seen.uid), seen)

    def _sort(self, served: Served, seen: Seen, going: list[Seen], without: list[Seen]) -> None:
        if not seen.going:
            self._marker.consider(served, seen)
        elif not has_any(seen):
            without.append(seen)
        elif self._is_going(seen):
            # One that another collector's finalizer holds back goes in the name of that one's source.
            going.append(seen)

    def _is_going(self, seen: Seen) -> bool:
        """Whether it is being deleted, and this source has to publish that."""
        return seen.going and self._scope.has_ours(seen) and self._scope.is_ours_to_publish(seen)

    def _is_owned(self, seen: Seen) -> bool:
        return self._scope.includes(seen) if self._scope.has_ours(seen) else self._scope.misses(seen)
