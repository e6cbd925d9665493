"""Puts our finalizer on live objects in scope and takes it off those that left it, a few at a time.
Every patch carries the resource version that it was decided on; after a conflict it is decided anew."""

import asyncio
import time
from typing import Final, NamedTuple

import structlog

from service.cluster import ClusterError, Conflict, Invalid, NotFound, Seen, Served
from service.cluster.finalizers import marking, unmarking
from service.policy.scope import dry_run
from service.watching.assignment import Assignment, NotHolding
from service.watching.reporting import Report
from service.watching.scope import Scope

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 8
_TRIES: Final = 5
_MOST_WAITING: Final = 10_000
# The marks of a Namespace are asked for once for all objects that come together.
_FRESH: Final = 2.0
_MOST_NAMESPACES: Final = 1000
_WHERE: Final = "marking"


class Wish(NamedTuple):
    """As little as the patch needs: many may wait."""

    served: Served
    uid: str
    namespace: str
    name: str
    resource_version: str
    finalizers: tuple[str, ...]
    add: bool

    def as_seen(self) -> Seen:
        return Seen(
            uid=self.uid, name=self.name, namespace=self.namespace, resource_version=self.resource_version,
            finalizers=self.finalizers,
        )  # fmt: skip


class Marker:
    """`overflowed` says that more was wanted than can wait: what was left out is found by the next list."""

    def __init__(self, assignment: Assignment, scope: Scope, report: Report) -> None:
        self._assignment, self._scope, self._report = assignment, scope, report
        self._waiting: dict[str, Wish] = {}
        self._later: dict[str, Wish] = {}
        self._busy: set[str] = set()
        self._changed = asyncio.Event()
        self._namespaces: dict[str, tuple[float, bool]] = {}
        self.overflowed = False

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._busy)

    def consider(self, served: Served, seen: Seen) -> bool:
        """Whether something is to be done; of one object only the latest state counts."""
        standing = self._scope.standing(seen)
        self._later.pop(seen.uid, None)
        if standing == "leave":
            self._waiting.pop(seen.uid, None)
            return False
        self._want(_wish(served, seen, add=standing == "mark"))
        return True

    def drop(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._later.pop(uid, None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._work())
            group.create_task(self._bring_back())

    def _want(self, wish: Wish) -> None:
        if len(self._waiting) >= _MOST_WAITING and wish.uid not in self._waiting:
            self.overflowed = True
            return
        self._waiting[wish.uid] = wish
        self._changed.set()

    async def _work(self) -> None:
        while True:
            uid = next((known for known in self._waiting if known not in self._busy), None)
            if uid is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            wish = self._waiting.pop(uid)
            self._busy.add(uid)
            try:
                await self._fulfil(wish)
            finally:
                self._busy.discard(uid)
                if uid in self._waiting:
                    self._changed.set()

    async def _fulfil(self, wish: Wish) -> None:
        try:
            await self._try(wish)
        except NotHolding:
            # Whoever holds the Lease now lists everything; so do we, should we get it back.
            return
        except ClusterError as error:
            # It may be this object alone, as with an admission rule: others go on, this one comes again.
            await self._report.trouble(_WHERE, f"{wish.namespace}/{wish.name}: {error}")
            self._put_off(wish)
        except Exception:
            # One object's trouble is not that of the others.
            log.exception("marking failed", source=self._assignment.name, uid=wish.uid)
            self._put_off(wish)

    def _put_off(self, wish: Wish) -> None:
        if len(self._later) < _MOST_WAITING:
            self._later[wish.uid] = wish
        else:
            self.overflowed = True

    async def _try(self, wish: Wish) -> None:
        seen: Seen | None = wish.as_seen()
        add = wish.add
        for _ in range(_TRIES):
            if seen is None or seen.uid != wish.uid:
                return
            if add and not await self._namespace_allows(seen.namespace):
                return
            patch = marking(seen) if add else unmarking(seen)
            if patch is None:
                return
            self._assignment.act()
            try:
                await self._assignment.cluster.patch(wish.served, seen.namespace, seen.name, patch)
            except NotFound:
                return
            except (Conflict, Invalid):
                # Somebody was quicker, or it is going by now: decide again on what is there.
                seen = await self._assignment.cluster.get(wish.served, wish.namespace, wish.name)
                if seen is None or seen.uid != wish.uid:
                    return
                if seen.going:
                    await self._went(wish, seen)
                    return
                standing = self._scope.standing(seen)
                if standing == "leave":
                    return
                add = standing == "mark"
            else:
                self._done(added=add)
                return
        raise Conflict("it is changed by others all the time; tried again later")

    async def _went(self, wish: Wish, seen: Seen) -> None:
        if wish.add and marking(seen) is None and unmarking(seen) is None and self._scope.misses(seen):
            await self._report.missed(wish.served, seen)

    def _done(self, *, added: bool) -> None:
        if added:
            self._assignment.tally.marked += 1
        else:
            self._assignment.tally.unmarked += 1

    async def _namespace_allows(self, namespace: str) -> bool:
        """A dry run of the whole Namespace, or a mark that nobody understands, keeps our finalizer off."""
        if not namespace:
            return True
        known = self._namespaces.get(namespace)
        now = time.monotonic()
        if known is not None and now - known[0] < _FRESH:
            return known[1]
        try:
            marks = await self._assignment.cluster.namespace_marks(namespace)
        except NotFound:
            return False
        allowed = dry_run({}, marks, self._assignment.policy, self._assignment.settings) is None
        if len(self._namespaces) >= _MOST_NAMESPACES:
            self._namespaces.clear()
        self._namespaces[namespace] = (now, allowed)
        return allowed

    async def _bring_back(self) -> None:
        while True:
            await asyncio.sleep(self._assignment.watch.retry.total_seconds())
            if not self._later:
                await self._report.fine(_WHERE)
                continue
            for wish in self._later.values():
                self._waiting.setdefault(wish.uid, wish)
            self._later.clear()
            self._changed.set()


def _wish(served: Served, seen: Seen, *, add: bool) -> Wish:
    return Wish(
        served, seen.uid, seen.namespace, seen.name, seen.resource_version, seen.finalizers, add
    )  # fmt: skip
