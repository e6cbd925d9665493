"""Notices that an object that is going got other marks, and has what was held because of the old ones looked at anew.
Whoever mends an annotation would else wait for minutes, and wonder; what is not held is left as it is."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from service.contract.names import STATUS
from service.engine.engine import Shard
from service.kubernetes import Seen
from service.watching.assignment import Assignment
from service.watching.courtesy import AGAIN, look_when_due
from service.watching.reporting import Report

log = structlog.get_logger(__name__)

WHY: Final = "marks of its object were changed"
_MOST_KNOWN: Final = 50_000
_AT_ONCE: Final = 100
_UNDECIDED: Final = frozenset({"published", "running", "releasing"})
_OUTSIDE: Final = -1
"""Stands for the marks of an object that left the selector; `hash` never returns -1."""


class _Wanted(NamedTuple):
    due: float
    looks: int
    why: str


class Reconsidering:
    """For all strands of one source. Only objects that are going are known here."""

    def __init__(self, assignment: Assignment, report: Report) -> None:
        self._assignment, self._report = assignment, report
        self._known: dict[str, int] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._changed = asyncio.Event()

    def consider(self, deletion: str, seen: Seen) -> None:
        """An object that is going, as it was seen just now; asks nobody, the rest is done by `run`."""
        marks = _marks(seen)
        before = self._known.get(seen.uid)
        self._remember(seen.uid, marks)
        if before is not None and before != marks:
            self.look_at([deletion], WHY)

    def left(self, uid: str) -> None:
        """An object that is going left the selector. However it looks when it is back, workers saw it outside."""
        self._remember(uid, _OUTSIDE)

    def look_at(self, deletions: Iterable[str], why: str) -> None:
        """What is held of them is looked at anew, whatever is known of their objects."""
        now = time.monotonic()
        for one in deletions:
            self._wanted[one] = _Wanted(now, 0, why)
        self._changed.set()

    def drop(self, uid: str) -> None:
        self._known.pop(uid, None)

    def _remember(self, uid: str, marks: int) -> None:
        self._known[uid] = marks
        if len(self._known) > _MOST_KNOWN:
            # The oldest: whatever holds it is looked at in its own time.
            del self._known[next(iter(self._known))]

    async def run(self) -> None:
        """Until cancelled."""
        await look_when_due(self._assignment.name, self._changed, self._due, self._look)

    def _due(self) -> Iterable[float]:
        return [one.due for one in self._wanted.values()]

    async def _look(self) -> None:
        now = time.monotonic()
        if not self._assignment.may_act():
            # Without the Lease nothing is done; who loses it for good is cancelled.
            self._wanted = {one: wanted._replace(due=now + AGAIN[0]) for one, wanted in self._wanted.items()}
            return
        due = {one: wanted for one, wanted in self._wanted.items() if wanted.due <= now}
        for one in due:
            del self._wanted[one]
        shard_of = self._assignment.installation.shard_of
        places: dict[tuple[int, str], list[str]] = {}
        for one, wanted in due.items():
            places.setdefault((shard_of(one).number, wanted.why), []).append(one)
        for (number, why), mine in places.items():
            for first in range(0, len(mine), _AT_ONCE):
                shard = self._assignment.installation.shards[number]
                await self._ask(shard, mine[first : first + _AT_ONCE], due, why)

    async def _ask(self, shard: Shard, deletions: Sequence[str], due: dict[str, _Wanted], why: str) -> None:
        rest, forward = [(one, 0) for one in deletions], 0
        while rest:
            answers = await shard.reconsider(rest, why)
            forward += sum(answer.forward for answer in answers)
            for (one, _), answer in zip(rest, answers, strict=True):
                if answer.state in _UNDECIDED and answer.next < 0:
                    self._look_later(one, due[one])
            rest = [(one, answer.next) for (one, _), answer in zip(rest, answers, strict=True) if answer.next >= 0]
        if forward:
            self._report.said("what was held is looked at anew", count=forward, reason=why)

    def _look_later(self, deletion: str, wanted: _Wanted) -> None:
        looks = wanted.looks
        if looks < len(AGAIN):
            # Marks that changed meanwhile are looked at sooner.
            self._wanted.setdefault(deletion, _Wanted(time.monotonic() + AGAIN[looks], looks + 1, wanted.why))


def _marks(seen: Seen) -> int:
    """What policy may go by; not what we ourselves write on the object."""
    annotations = frozenset(item for item in seen.annotations.items() if item[0] != STATUS)
    return hash((frozenset(seen.labels.items()), annotations))
