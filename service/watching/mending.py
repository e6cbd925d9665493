"""Finds in Redis what is held of a source, where something has changed that its own watch does not tell: marks of its
Namespaces, marks that changed while the source changed hands, and a person's word that its cluster was restored. What
is found is looked at anew, once."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import structlog

from service.engine.engine import Shard
from service.engine.views.reading import members, number, server_ms
from service.policy.guard import PREFIX as GUARD
from service.watching.assignment import Assignment
from service.watching.courtesy import AGAIN, look_when_due
from service.watching.reconsidering import Reconsidering

log = structlog.get_logger(__name__)

NAMESPACE: Final = "marks of its Namespace were changed"
BEGUN: Final = "its source is watched by another than before, its marks may have changed meanwhile"
ACCEPTED: Final = "it was accepted that its cluster was restored from a backup"

_MOST: Final = 20_000


@dataclass(slots=True)
class _Look:
    """One look at what is held in a Namespace, or everywhere; `asked` was looked at anew already. What was published
    after `since`, by the clock of its shard, was judged by what is said now."""

    why: str
    due: float
    looks: int = 0
    asked: set[str] = field(default_factory=set)
    since: dict[int, int] = field(default_factory=dict)


class Mending:
    """For all strands of one source. Nothing is kept of an object longer than a few seconds."""

    def __init__(self, assignment: Assignment, reconsidering: Reconsidering) -> None:
        self._assignment, self._reconsidering = assignment, reconsidering
        # By Namespace, None for all of them.
        self._looks: dict[str | None, _Look] = {}
        self._listed = False
        self._changed = asyncio.Event()

    def attend(self) -> None:
        """Its objects have Namespaces: what is said there concerns it."""
        if self._assignment.namespaces is not None:
            self._assignment.namespaces.listen(self._told)

    def begun(self, namespace: str | None) -> None:
        """A strand was listed for the first time: its watch tells what changes from now on, not what changed before."""
        self._listed = True
        self._want([namespace], BEGUN)

    def accepted(self, namespace: str | None) -> None:
        """A strand was listed after a person accepted that the cluster was restored: what workers held because of that
        may go on."""
        self._want([namespace], ACCEPTED)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await look_when_due(self._assignment.name, self._changed, self._due, self._look)
        finally:
            if self._assignment.namespaces is not None:
                self._assignment.namespaces.leave(self._told)

    def _told(self, names: Collection[str] | None) -> None:
        if names is not None:
            self._want((name for name in names if self._assignment.share(name)), NAMESPACE)
        elif self._listed:
            # Before the first list nothing is missed: that one has everything looked at.
            self._want([None], NAMESPACE)

    def _want(self, names: Iterable[str | None], why: str) -> None:
        now = time.monotonic()
        for name in names:
            self._looks[name] = _Look(why, now)
            self._changed.set()

    def _due(self) -> Iterable[float]:
        return [look.due for look in self._looks.values()]

    # ---- looking

    async def _look(self) -> None:
        now = time.monotonic()
        due = {name: look for name, look in self._looks.items() if look.due <= now}
        if not self._assignment.may_act():
            # Without the Lease nothing is done; who loses it for good is cancelled.
            for look in due.values():
                look.due = now + AGAIN[0]
            return
        found = dict[str, str]()
        for shard in self._assignment.installation.shards if due else ():
            found |= await self._held(shard, due)
        for why in set(found.values()):
            self._reconsidering.look_at([one for one, reason in found.items() if reason == why], why)
        for name, look in due.items():
            self._next(name, look)

    def _next(self, name: str | None, look: _Look) -> None:
        if self._looks.get(name) is not look:
            # Changed again meanwhile.
            return
        if look.looks >= len(AGAIN):
            del self._looks[name]
            return
        look.due, look.looks = time.monotonic() + AGAIN[look.looks], look.looks + 1

    async def _held(self, shard: Shard, due: dict[str | None, _Look]) -> dict[str, str]:
        """Deletions of this source that are held, or have held jobs, each with why it is looked at anew. They are
        gathered first: looking at them changes the set that is walked."""
        whose = f"{self._assignment.cluster_uid}/{self._assignment.settings.resource}/"
        found, now = dict[str, str](), await server_ms(shard)
        for look in due.values():
            look.since.setdefault(shard.number, now)
        async for page in _shown(shard):
            ids = list(dict.fromkeys(one for one in _deletions(page) if one.startswith(whose)))
            rows = await shard.recall(ids, ("source", "namespace", "held", "published_at")) if ids else []
            for one, (source, namespace, held, published) in zip(ids, rows, strict=True):
                if source == self._assignment.name and self._assignment.share(namespace):
                    looks = [
                        look
                        for look in (due.get(namespace), due.get(None))
                        if look is not None and number(published) <= look.since[shard.number]
                    ]
                    found |= _chosen(one, held, looks)
            if len(found) >= _MOST:
                log.warning("more is held than is looked at anew at once", source=self._assignment.name, most=_MOST)
                break
        return found


async def _shown(shard: Shard) -> AsyncIterator[list[str]]:
    """The names of what is held, and of deletions that wait by themselves: jobs that do are not about marks."""
    async for page in members(shard, "held"):
        yield [member.name for member in page]
    async for page in members(shard, "waiting"):
        yield [member.name for member in page if member.name.startswith("deletion:")]


def _chosen(one: str, held: str, looks: Iterable[_Look]) -> dict[str, str]:
    """Why a deletion is looked at anew, if it is."""
    found = dict[str, str]()
    for look in looks:
        # What the guard holds waits for a person, unless its Namespace says by now that it is to be retained.
        if one not in look.asked and (look.why is NAMESPACE or not held.startswith(GUARD)):
            look.asked.add(one)
            found[one] = look.why
    return found


def _deletions(names: Iterable[str]) -> Iterator[str]:
    """To which deletion something held belongs; an event that nobody could read has none."""
    for name in names:
        kind, _, identity = name.partition(":")
        if kind == "deletion":
            yield identity
        elif kind == "job":
            yield identity.rpartition("#")[0]
