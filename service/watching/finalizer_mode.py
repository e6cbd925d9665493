"""Finalizer mode of a source: live objects get our finalizer, and the deletion of those that have it is published. The
finalizer is the only record of an object: every list checks again which deletions must be open."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import structlog

from service.engine.inventory import Inventory
from service.kubernetes import ClusterError, KubeObject, ServedResource, WatchEvent
from service.watching.absence import AbsenceProof
from service.watching.assignment import Assignment, LeaseNotHeld, ListScope, ListStart
from service.watching.finalizer_patcher import FinalizerPatcher
from service.watching.list_watch import ListPass
from service.watching.publishing import Publisher
from service.watching.recheck import Rechecks
from service.watching.scope import SourceScope, has_any_finalizer
from service.watching.source_status import SourceStatus

log = structlog.get_logger(__name__)

_WHERE: Final = "former namespaces"
ALL_NAMESPACES: Final = "*"
"""Stands for all namespaces in the stored list of a source's namespaces."""


class FinalizerMode:
    """Handler of one list scope. `owned` are objects in scope, live or going; `strays` are those out of scope that have
    our finalizer, and `going_strays` those of them that are going, as of the latest list."""

    def __init__(
        self,
        list_scope: ListScope,
        scope: SourceScope,
        publisher: Publisher,
        patcher: FinalizerPatcher,
        rechecks: Rechecks,
    ) -> None:
        self._list_scope, self._scope = list_scope, scope
        self._publisher, self._patcher, self._rechecks = publisher, patcher, rechecks
        self._going: set[str] = set()
        self.owned = self.strays = self.going_strays = 0

    @property
    def assignment(self) -> Assignment:
        return self._list_scope.assignment

    @property
    def selector(self) -> str:
        """None for lists: an object that left the selector while nothing watched still has our finalizer."""
        return ""

    async def begin_list(self, served: ServedResource, begun: ListStart) -> None:
        # The objects themselves say everything.
        del served, begun
        await self._publisher.begin()
        self._going.clear()
        self.owned = self.strays = self.going_strays = 0

    async def handle_page(self, served: ServedResource, items: Sequence[KubeObject]) -> None:
        going: list[KubeObject] = []
        without: list[KubeObject] = []
        for seen in items:
            self.owned += self._is_owned(seen)
            stray = self._scope.is_stray(seen)
            self.strays += stray
            self.going_strays += stray and seen.going
            self._classify(served, seen, going, without)
        self._going.update(seen.uid for seen in going)
        await self._publisher.publish_going(served, going)
        self._recheck(going)
        await self._publisher.handle_without_finalizer(served, without, deleted=False)

    async def end_list(self, served: ServedResource, hold: str) -> None:
        # Nothing is concluded from absence here: `hold` is about observed objects.
        del hold
        await self._publisher.end(served, self._going)
        self._going.clear()

    def handle_skipped(self, change: WatchEvent) -> None:
        """A worker may have judged by the annotations of this state, although a newer one replaced it."""
        seen = change.seen
        if seen is None or not self._is_going(seen):
            return
        if change.kind == "DELETED":
            self._rechecks.left_selector(seen.uid)
        else:
            self._recheck([seen])

    async def handle_events(self, served: ServedResource, latest: Sequence[WatchEvent]) -> None:
        """The latest event of each object; for one that was added and deleted, both."""
        going: list[KubeObject] = []
        without: list[KubeObject] = []
        deleted: list[KubeObject] = []
        for change in latest:
            seen = change.seen
            if seen is None:
                continue
            if change.kind == "DELETED":
                self._patcher.drop(seen.uid)
                # Before the proof: if that fails, the object may be in the next list as it was.
                self.handle_skipped(change)
                deleted.append(seen)
                self.owned -= self._is_owned(seen)
                continue
            self.owned += change.kind == "ADDED" and self._is_owned(seen)
            self._classify(served, seen, going, without)
        await self._publisher.publish_going(served, going, just_now=True)
        self._recheck(going)
        await self._publisher.handle_without_finalizer(served, without, deleted=False)
        proofs = await self._publisher.handle_without_finalizer(served, deleted, deleted=True)
        self._publisher.forget(seen.uid for seen in deleted)
        for seen in deleted:
            self._handle_left(served, seen, proofs.get(seen.uid))

    def _handle_left(self, served: ServedResource, seen: KubeObject, proof: AbsenceProof | None) -> None:
        """After a DELETED event. No proof means that none was needed: the object is gone, or no deletion of it is
        open."""
        if proof is None or proof.kind == "gone":
            self._rechecks.drop(seen.uid)
        elif proof.live is not None:
            # A change of its labels took it out of the selector. For a live object that is an opt-out.
            self._patcher.enqueue(served, proof.live)
            if proof.live.going and self._scope.has_own_finalizer(proof.live):
                # It may be back in the selector by now.
                self._rechecks.left_selector(seen.uid)

    def _recheck(self, going: Sequence[KubeObject]) -> None:
        for seen in going:
            self._rechecks.observe(self._publisher.deletion_of(seen.uid), seen)

    def _classify(
        self, served: ServedResource, seen: KubeObject, going: list[KubeObject], without: list[KubeObject]
    ) -> None:
        if not seen.going:
            self._patcher.enqueue(served, seen)
        elif not has_any_finalizer(seen):
            without.append(seen)
        elif self._is_going(seen):
            # An object with the finalizer of another collector is published by that one's source.
            going.append(seen)

    def _is_going(self, seen: KubeObject) -> bool:
        """Whether it is being deleted, and this source has to publish that."""
        return seen.going and self._scope.has_own_finalizer(seen) and self._scope.is_ours_to_publish(seen)

    def _is_owned(self, seen: KubeObject) -> bool:
        return self._scope.includes(seen) if self._scope.has_own_finalizer(seen) else self._scope.needs_finalizer(seen)


class _RemainingObjects(NamedTuple):
    """Objects with our finalizer that are in no source's scope."""

    living: int
    going: int


class FormerNamespaces:
    """Namespaces that a source's settings no longer name: our finalizer is removed from the live objects there. They
    are listed often while live objects are left, and as seldom as all others while the rest is going."""

    def __init__(
        self,
        assignment: Assignment,
        store: Inventory,
        status: SourceStatus,
        handler: Callable[[ListScope], FinalizerMode],
        scope: str,
    ) -> None:
        self._assignment, self._store, self._status = assignment, store, status
        self._handler, self._scope = handler, scope
        self._field = ListScope(assignment, None).field("namespaces")
        self._known: list[str] = []

    async def run(self) -> None:
        """Ends when no object there has our finalizer."""
        while True:
            waited = False
            try:
                signals = await self._store.relist_signals()
                left = await self._list_remaining()
                await self._status.clear_problem(_WHERE)
                if left is None:
                    return
                if waited := left.living == 0:
                    await self._wait_for_relist(signals)
            except LeaseNotHeld:
                pass
            except ClusterError as error:
                await self._status.set_problem(_WHERE, str(error))
            except Exception as error:
                log.exception("former namespaces failed", source=self._assignment.name)
                await self._status.set_problem(_WHERE, f"{type(error).__name__}: {error}")
            if not waited:
                await asyncio.sleep(self._assignment.watch.retry.total_seconds())

    async def _wait_for_relist(self, signals: list[str]) -> None:
        """Until the next list is due or requested, or Redis was emptied."""
        watch = self._assignment.watch
        end = time.monotonic() + watch.relist.total_seconds()
        while await self._store.relist_signals() == signals:
            rest = end - time.monotonic()
            if rest <= 0:
                return
            await asyncio.sleep(min(rest, watch.retry.total_seconds()))

    async def _list_remaining(self) -> "_RemainingObjects | None":
        self._assignment.require_lease()
        named = self._assignment.settings.namespaces or (ALL_NAMESPACES,)
        kept = (await self._store.state()).get(self._field)
        # This process still knows them if Redis was emptied.
        before = dict.fromkeys([*self._known, *(msgspec.json.decode(kept, type=list[str]) if kept else [])])
        former = [] if ALL_NAMESPACES in named else [one for one in before if one not in named]
        self._known = former
        # Stored together until the former ones are done, so that a crash loses none.
        await self._note([*named, *former])
        left = [await self._list_namespace(None if one == ALL_NAMESPACES else one) for one in former]
        living, going = sum(one.living for one in left), sum(one.going for one in left)
        if living or going:
            self._status.info("objects in former namespaces still have our finalizer", living=living, going=going)
            return _RemainingObjects(living, going)
        await self._note(list(named))
        return None

    async def _list_namespace(self, namespace: str | None) -> "_RemainingObjects":
        list_scope = ListScope(self._assignment, namespace)
        handler = self._handler(list_scope)
        served = await self._assignment.cluster.discover(self._assignment.settings.resource)
        await ListPass(list_scope, handler, self._store, self._status, self._scope, watch_follows=False).run(served)
        return _RemainingObjects(handler.strays - handler.going_strays, handler.going_strays)

    async def _note(self, names: list[str]) -> None:
        await self._store.save_state({self._field: msgspec.json.encode(names).decode()})
