"""Patcher that adds our finalizer to live objects in scope and removes it from live objects that left the scope. Every
patch carries the resource version that it was decided on, and is decided again after a conflict. Before a finalizer is
added, the source's rule is asked whether that may be done now."""

import asyncio
import time
from typing import Final

import structlog

from service.kubernetes import (
    ClusterError,
    Conflict,
    Invalid,
    KubeObject,
    NotFound,
    ServedResource,
    TooMany,
    Unavailable,
)
from service.kubernetes.finalizers import finalizer_addition, finalizer_removal
from service.policy.scope import dry_run_decision
from service.watching.assignment import Assignment, LeaseNotHeld
from service.watching.finalizer_queue import FinalizerQueue, PendingPatch, patch_for
from service.watching.marking import MarkingCheck
from service.watching.scope import SourceScope
from service.watching.source_status import RecentNames, SourceStatus

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 8
_TRIES: Final = 5
_WAITS: Final = (0.2, 1.0, 3.0)
# The annotations of a Namespace are read once for all objects of a burst.
_FRESH: Final = 2.0
_MOST_NAMESPACES: Final = 1000
_WHERE: Final = "finalizer patches"


class _TooEarly(Exception):
    """The finalizer may not be added yet; the message says why."""


class FinalizerPatcher:
    def __init__(self, assignment: Assignment, scope: SourceScope, status: SourceStatus) -> None:
        self._assignment, self._scope, self._status = assignment, scope, status
        self._finalizer = assignment.declaration.finalizer
        self._marking = MarkingCheck(assignment.cluster, assignment.declaration)
        self._reported = RecentNames()
        self._queue = FinalizerQueue()
        self._namespaces: dict[str, tuple[float, bool]] = {}

    def needs_relist(self) -> bool:
        """Whether the queue overflowed and is empty again. Resets the overflow."""
        needed = self._queue.overflowed and self._queue.empty
        if needed:
            self._queue.overflowed = False
        return needed

    def enqueue(self, served: ServedResource, seen: KubeObject) -> None:
        """Decides what this state of an object needs; it replaces an earlier state."""
        action = self._scope.finalizer_action(seen)
        if action == "keep":
            self._queue.drop(seen.uid)
        else:
            add = action == "add"
            self._queue.put(patch_for(served, seen, add=add, owner=self._marking.owner(seen) if add else ""))

    def drop(self, uid: str) -> None:
        self._queue.drop(uid)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._work())
            group.create_task(self._requeue_periodically())

    async def _work(self) -> None:
        while True:
            pending = await self._queue.take()
            try:
                await self._apply_or_requeue(pending)
            finally:
                self._queue.done(pending)

    async def _apply_or_requeue(self, pending: PendingPatch) -> None:
        try:
            await self._apply_with_retries(pending)
        except LeaseNotHeld:
            self._queue.retry_later(pending)
        except _TooEarly as early:
            if self._reported.add(f"{pending.uid} {early}"):
                self._status.info(
                    "finalizer not added yet",
                    uid=pending.uid, name=pending.name, namespace=pending.namespace, reason=str(early),
                )  # fmt: skip
            self._queue.defer(pending)
        except ClusterError as error:
            # It may be this object alone, as with an admission rule: it is retried later, and the others go on.
            if not self._queue.has_failures:
                await self._status.set_problem(_WHERE, f"{pending.namespace}/{pending.name}: {error}")
            self._queue.retry_later(pending)
        except Exception:
            # A failure of one object must not stop the others.
            log.exception("finalizer patch failed", source=self._assignment.name, uid=pending.uid)
            self._queue.retry_later(pending)

    async def _apply_with_retries(self, pending: PendingPatch) -> None:
        """Bridges a short outage of the server."""
        for wait in _WAITS:
            try:
                return await self._apply(pending)
            except (Unavailable, TooMany):
                await asyncio.sleep(wait)
        return await self._apply(pending)

    async def _apply(self, pending: PendingPatch) -> None:
        seen: KubeObject | None = pending.as_object()
        add, owner = pending.add, pending.owner
        for _ in range(_TRIES):
            if seen is None or seen.uid != pending.uid:
                return
            if add and not await self._namespace_allows(seen.namespace):
                return
            patch = finalizer_addition(seen, self._finalizer) if add else finalizer_removal(seen, self._finalizer)
            if patch is None:
                return
            if add and (why := await self._marking.objection(seen.namespace, owner)):
                raise _TooEarly(why)
            self._assignment.require_lease()
            try:
                await self._assignment.cluster.patch(pending.served, seen.namespace, seen.name, patch)
            except NotFound:
                return
            except (Conflict, Invalid):
                # It was changed or is going by now: decide again on its current state.
                seen = await self._assignment.cluster.get(pending.served, pending.namespace, pending.name)
                if seen is None or seen.uid != pending.uid:
                    return
                if seen.going:
                    await self._report_missed(pending, seen)
                    return
                action = self._scope.finalizer_action(seen)
                if action == "keep":
                    return
                add, owner = action == "add", self._marking.owner(seen)
            else:
                self._count(added=add)
                return
        raise Conflict("it is changed by others all the time; retried later")

    async def _report_missed(self, pending: PendingPatch, seen: KubeObject) -> None:
        if pending.add and not self._scope.has_own_finalizer(seen) and self._scope.needs_finalizer(seen):
            await self._status.report_missed(pending.served, seen)

    def _count(self, *, added: bool) -> None:
        if added:
            self._assignment.counters.marked += 1
        else:
            self._assignment.counters.unmarked += 1

    async def _namespace_allows(self, namespace: str) -> bool:
        """Not for a dry run of the whole Namespace, or a dry-run annotation with an unknown value."""
        if not namespace:
            return True
        known = self._namespaces.get(namespace)
        now = time.monotonic()
        if known is not None and now - known[0] < _FRESH:
            return known[1]
        try:
            annotations = await self._assignment.cluster.namespace_annotations(namespace)
        except NotFound:
            return False
        allowed = dry_run_decision({}, annotations, self._assignment.policy, self._assignment.settings) is None
        if len(self._namespaces) >= _MOST_NAMESPACES:
            self._namespaces.clear()
        self._namespaces[namespace] = (now, allowed)
        return allowed

    async def _requeue_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._assignment.watch.retry.total_seconds())
            if not self._queue.has_failures:
                await self._status.clear_problem(_WHERE)
            self._queue.requeue()
