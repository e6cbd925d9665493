"""Bounded queue of pending finalizer patches, one per object, with backoff. Failed patches are retried later, a few at
first, so that a server that forbids them all is not called ten thousand times; deferred ones wait for their time."""

import asyncio
from typing import Final, NamedTuple

from service.kubernetes import KubeObject, ServedResource

_MOST_QUEUED: Final = 10_000
_FIRST_REQUEUED: Final = 20
_GROWTH: Final = 8
_DEFERRED_REQUEUED: Final = 200


class PendingPatch(NamedTuple):
    """The fields that a patch needs, and no more, because many may be queued."""

    served: ServedResource
    uid: str
    namespace: str
    name: str
    resource_version: str
    finalizers: tuple[str, ...]
    add: bool
    # Its owner, for sources whose rule for marking needs it; None if it can't be told.
    owner: str | None = ""

    def as_object(self) -> KubeObject:
        return KubeObject(
            uid=self.uid,
            name=self.name,
            namespace=self.namespace,
            resource_version=self.resource_version,
            finalizers=self.finalizers,
        )


def patch_for(served: ServedResource, seen: KubeObject, *, add: bool, owner: str | None = "") -> PendingPatch:
    return PendingPatch(served, seen.uid, seen.namespace, seen.name, seen.resource_version, seen.finalizers, add, owner)


class FinalizerQueue:
    """`overflowed` says that patches were left out because the queue was full: the next list finds them."""

    def __init__(self) -> None:
        self._queued: dict[str, PendingPatch] = {}
        self._failed_patches: dict[str, PendingPatch] = {}
        self._deferred: dict[str, PendingPatch] = {}
        self._in_progress: set[str] = set()
        # Dropped while in progress: these are not queued again.
        self._discarded: set[str] = set()
        self._changed = asyncio.Event()
        self._requeue_limit = _FIRST_REQUEUED
        self._failed = False
        self.overflowed = False

    @property
    def empty(self) -> bool:
        return not (self._queued or self._in_progress or self._failed_patches)

    @property
    def has_failures(self) -> bool:
        return bool(self._failed_patches)

    def put(self, pending: PendingPatch) -> None:
        self._failed_patches.pop(pending.uid, None)
        self._deferred.pop(pending.uid, None)
        self._discarded.discard(pending.uid)
        if len(self._queued) >= _MOST_QUEUED and pending.uid not in self._queued:
            self.overflowed = True
            return
        self._queued[pending.uid] = pending
        self._changed.set()

    def drop(self, uid: str) -> None:
        self._queued.pop(uid, None)
        self._failed_patches.pop(uid, None)
        self._deferred.pop(uid, None)
        if uid in self._in_progress:
            self._discarded.add(uid)

    async def take(self) -> PendingPatch:
        """The next patch of an object that has none in progress."""
        while True:
            uid = next((known for known in self._queued if known not in self._in_progress), None)
            if uid is not None:
                self._in_progress.add(uid)
                return self._queued.pop(uid)
            self._changed.clear()
            await self._changed.wait()

    def done(self, pending: PendingPatch) -> None:
        self._in_progress.discard(pending.uid)
        self._discarded.discard(pending.uid)
        if pending.uid in self._queued:
            self._changed.set()

    def retry_later(self, pending: PendingPatch) -> None:
        """After a failure, unless a newer patch of the same object is queued."""
        self._failed = True
        if pending.uid in self._queued or pending.uid in self._discarded:
            return
        if len(self._failed_patches) < _MOST_QUEUED:
            self._failed_patches[pending.uid] = pending
        else:
            self.overflowed = True

    def defer(self, pending: PendingPatch) -> None:
        """For a patch whose time has not come. Those that find no room are found by the next list."""
        fresh = pending.uid not in self._queued and pending.uid not in self._discarded
        if fresh and len(self._deferred) < _MOST_QUEUED:
            self._deferred[pending.uid] = pending

    def requeue(self) -> None:
        """Queues failed patches again, more and more of them while none fails, and some of the deferred ones."""
        self._requeue_limit = _FIRST_REQUEUED if self._failed else min(self._requeue_limit * _GROWTH, _MOST_QUEUED)
        self._failed = False
        for uid in list(self._failed_patches)[: self._requeue_limit]:
            pending = self._failed_patches.pop(uid)
            self._queued.setdefault(uid, pending)
        for uid in list(self._deferred)[:_DEFERRED_REQUEUED]:
            self._queued.setdefault(uid, self._deferred.pop(uid))
        self._changed.set()
