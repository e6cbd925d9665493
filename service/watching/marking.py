"""Puts our finalizer on live objects in scope and takes it off those that left it, a few at a time.
Every patch carries the resource version that it was decided on; after a conflict it is decided anew. What belongs to a
Cluster of Cluster API is marked only while that is not paused."""

import asyncio
import time
from typing import Final

import structlog

from service.kubernetes import ClusterError, Conflict, Invalid, NotFound, Seen, Served, TooMany, Unavailable
from service.kubernetes.finalizers import marking, unmarking
from service.policy import capi
from service.policy.scope import dry_run
from service.watching.assignment import Assignment, NotHolding
from service.watching.owning import Owning
from service.watching.reporting import Known, Report
from service.watching.scope import Scope
from service.watching.wishes import Wish, Wishes, wish_of

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 8
_TRIES: Final = 5
_WAITS: Final = (0.2, 1.0, 3.0)
# The marks of a Namespace are asked for once for all objects that come together.
_FRESH: Final = 2.0
_MOST_NAMESPACES: Final = 1000
_WHERE: Final = "marking"


class _TooEarly(Exception):
    """It may be marked some time, and not now; the message says why."""


class Marker:
    def __init__(self, assignment: Assignment, scope: Scope, report: Report) -> None:
        self._assignment, self._scope, self._report = assignment, scope, report
        self._finalizer = assignment.traits.finalizer
        self._owning = Owning(assignment.cluster) if assignment.traits.capi else None
        self._told = Known()
        self._wishes = Wishes()
        self._namespaces: dict[str, tuple[float, bool]] = {}

    def wants_a_list(self) -> bool:
        """Whether there was more to do than could wait, and that is done now; asked once."""
        wants = self._wishes.overflowed and self._wishes.empty
        if wants:
            self._wishes.overflowed = False
        return wants

    def consider(self, served: Served, seen: Seen) -> None:
        """Of one object only the latest state counts."""
        standing = self._scope.standing(seen)
        if standing == "leave":
            self._wishes.drop(seen.uid)
        else:
            add = standing == "mark"
            self._wishes.want(wish_of(served, seen, add=add, owner=self._owner(seen) if add else ""))

    def drop(self, uid: str) -> None:
        self._wishes.drop(uid)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._work())
            group.create_task(self._bring_back())

    async def _work(self) -> None:
        while True:
            wish = await self._wishes.take()
            try:
                await self._fulfil(wish)
            finally:
                self._wishes.done(wish)

    async def _fulfil(self, wish: Wish) -> None:
        try:
            await self._patiently(wish)
        except NotHolding:
            self._wishes.put_off(wish)
        except _TooEarly as early:
            if self._told.add(f"{wish.uid} {early}"):
                self._report.said("object not marked yet", uid=wish.uid, name=wish.name, namespace=wish.namespace,
                                  reason=str(early))  # fmt: skip
            self._wishes.rest(wish)
        except ClusterError as error:
            # It may be this object alone, as with an admission rule: others go on, this one comes again.
            if not self._wishes.failing:
                await self._report.trouble(_WHERE, f"{wish.namespace}/{wish.name}: {error}")
            self._wishes.put_off(wish)
        except Exception:
            # One object's trouble is not that of the others.
            log.exception("marking failed", source=self._assignment.name, uid=wish.uid)
            self._wishes.put_off(wish)

    async def _patiently(self, wish: Wish) -> None:
        """A server that is away for a moment is waited for."""
        for wait in _WAITS:
            try:
                return await self._try(wish)
            except (Unavailable, TooMany):
                await asyncio.sleep(wait)
        return await self._try(wish)

    async def _try(self, wish: Wish) -> None:
        seen: Seen | None = wish.as_seen()
        add, owner = wish.add, wish.owner
        for _ in range(_TRIES):
            if seen is None or seen.uid != wish.uid:
                return
            if add and not await self._namespace_allows(seen.namespace):
                return
            patch = marking(seen, self._finalizer) if add else unmarking(seen, self._finalizer)
            if patch is None:
                return
            if add and self._owning is not None and (why := await self._owning.objection(seen.namespace, owner)):
                raise _TooEarly(why)
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
                add, owner = standing == "mark", self._owner(seen)
            else:
                self._done(added=add)
                return
        raise Conflict("it is changed by others all the time; tried again later")

    async def _went(self, wish: Wish, seen: Seen) -> None:
        if wish.add and not self._scope.has_ours(seen) and self._scope.misses(seen):
            await self._report.missed(wish.served, seen)

    def _owner(self, seen: Seen) -> str | None:
        return capi.owner_in(seen.raw) if self._owning is not None else ""

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
            if not self._wishes.failing:
                await self._report.fine(_WHERE)
            self._wishes.bring_back()
