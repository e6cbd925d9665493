"""What waits to be marked or let go: one wish for each object, the latest, and never more than a bounded number.
Wishes that failed come again later, a few at first: where nothing is allowed, nobody is asked ten thousand times; so do
those for which it is only too early."""

import asyncio
from typing import Final, NamedTuple

from service.kubernetes import Seen, Served

_MOST_WAITING: Final = 10_000
_FIRST_BACK: Final = 20
_GROWTH: Final = 8
_RESTED: Final = 200


class Wish(NamedTuple):
    """As little as the patch needs: many may wait."""

    served: Served
    uid: str
    namespace: str
    name: str
    resource_version: str
    finalizers: tuple[str, ...]
    add: bool
    # The Cluster of Cluster API that it belongs to, where that has a say; None where nobody can tell.
    owner: str | None = ""

    def as_seen(self) -> Seen:
        return Seen(
            uid=self.uid,
            name=self.name,
            namespace=self.namespace,
            resource_version=self.resource_version,
            finalizers=self.finalizers,
        )


def wish_of(served: Served, seen: Seen, *, add: bool, owner: str | None = "") -> Wish:
    return Wish(served, seen.uid, seen.namespace, seen.name, seen.resource_version, seen.finalizers, add, owner)


class Wishes:
    """`overflowed` says that more was wanted than can wait: what was left out is found by the next list."""

    def __init__(self) -> None:
        self._waiting: dict[str, Wish] = {}
        self._later: dict[str, Wish] = {}
        self._resting: dict[str, Wish] = {}
        self._busy: set[str] = set()
        # Dropped while they were in somebody's hands: those do not come back.
        self._over: set[str] = set()
        self._changed = asyncio.Event()
        self._back = _FIRST_BACK
        self._failed = False
        self.overflowed = False

    @property
    def empty(self) -> bool:
        return not (self._waiting or self._busy or self._later)

    @property
    def failing(self) -> bool:
        return bool(self._later)

    def want(self, wish: Wish) -> None:
        self._later.pop(wish.uid, None)
        self._resting.pop(wish.uid, None)
        self._over.discard(wish.uid)
        if len(self._waiting) >= _MOST_WAITING and wish.uid not in self._waiting:
            self.overflowed = True
            return
        self._waiting[wish.uid] = wish
        self._changed.set()

    def drop(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._later.pop(uid, None)
        self._resting.pop(uid, None)
        if uid in self._busy:
            self._over.add(uid)

    async def take(self) -> Wish:
        """The next one whose object is in nobody's hands."""
        while True:
            uid = next((known for known in self._waiting if known not in self._busy), None)
            if uid is not None:
                self._busy.add(uid)
                return self._waiting.pop(uid)
            self._changed.clear()
            await self._changed.wait()

    def done(self, wish: Wish) -> None:
        self._busy.discard(wish.uid)
        self._over.discard(wish.uid)
        if wish.uid in self._waiting:
            self._changed.set()

    def put_off(self, wish: Wish) -> None:
        """It failed; a newer wish for the same object takes its place."""
        self._failed = True
        if wish.uid in self._waiting or wish.uid in self._over:
            return
        if len(self._later) < _MOST_WAITING:
            self._later[wish.uid] = wish
        else:
            self.overflowed = True

    def rest(self, wish: Wish) -> None:
        """Nothing is wrong with it, it is only too early. More than can wait are found by the next list."""
        fresh = wish.uid not in self._waiting and wish.uid not in self._over
        if fresh and len(self._resting) < _MOST_WAITING:
            self._resting[wish.uid] = wish

    def bring_back(self) -> None:
        """The first of those that failed; more and more of them while none fails. And some that rested."""
        self._back = _FIRST_BACK if self._failed else min(self._back * _GROWTH, _MOST_WAITING)
        self._failed = False
        for uid in list(self._later)[: self._back]:
            wish = self._later.pop(uid)
            self._waiting.setdefault(uid, wish)
        for uid in list(self._resting)[:_RESTED]:
            self._waiting.setdefault(uid, self._resting.pop(uid))
        self._changed.set()
