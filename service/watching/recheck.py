"""Rechecks of held deletions soon after something changed that policy reads: annotations or labels of the object or its
Namespace, the replica that watches, or an accepted restore. Without them each is checked again at its own due time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from service.contract.names import STATUS
from service.engine.batch_reads import members, number, server_ms
from service.engine.shard import Shard
from service.kubernetes import KubeObject
from service.policy.guard import PREFIX as GUARD
from service.watching.assignment import Assignment
from service.watching.source_status import SourceStatus

log = structlog.get_logger(__name__)

RECHECK_AFTER: Final = (1.0, 4.0)
"""Seconds until the second and third check: a worker that read the old annotations just before may hold it
afterwards."""

_AFTER_ERROR: Final = 5.0


async def run_when_due(
    source: str, changed: asyncio.Event, due: Callable[[], Iterable[float]], check: Callable[[], Awaitable[None]]
) -> None:
    """Until cancelled; `due` gives the times on the monotonic clock at which `check` has something to do. An error is
    logged and does no harm."""
    while True:
        first = min(due(), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if first is None else max(0.0, first - time.monotonic())):
                await changed.wait()
        changed.clear()
        try:
            await check()
        except Exception:
            log.exception("held deletions could not be rechecked", source=source)
            await asyncio.sleep(_AFTER_ERROR)


OBJECT_CHANGED: Final = "annotations or labels of its object changed"
_MOST_KNOWN: Final = 50_000
_AT_ONCE: Final = 100
_UNDECIDED: Final = frozenset({"published", "running", "releasing"})
_OUTSIDE: Final = -1
"""Stands for an object that left the selector; `hash` never returns -1."""


class _PendingRecheck(NamedTuple):
    due: float
    checks: int
    why: str


class Rechecks:
    """Of one source: remembers a hash of what policy reads of each object that is going, and rechecks its deletion when
    that changes."""

    def __init__(self, assignment: Assignment, status: SourceStatus) -> None:
        self._assignment, self._status = assignment, status
        self._known: dict[str, int] = {}
        self._pending: dict[str, _PendingRecheck] = {}
        self._changed = asyncio.Event()

    def observe(self, deletion: str, seen: KubeObject) -> None:
        """An object that is going, as it was just seen."""
        current = _policy_hash(seen)
        before = self._known.get(seen.uid)
        self._remember(seen.uid, current)
        if before is not None and before != current:
            self.request([deletion], OBJECT_CHANGED)

    def left_selector(self, uid: str) -> None:
        """An object that is going left the selector. When it is back it is rechecked in any case: workers may have read
        it while it was outside."""
        self._remember(uid, _OUTSIDE)

    def request(self, deletions: Iterable[str], why: str) -> None:
        """Rechecks these deletions as soon as possible."""
        now = time.monotonic()
        for one in deletions:
            self._pending[one] = _PendingRecheck(now, 0, why)
        self._changed.set()

    def drop(self, uid: str) -> None:
        self._known.pop(uid, None)

    def _remember(self, uid: str, policy_hash: int) -> None:
        self._known[uid] = policy_hash
        if len(self._known) > _MOST_KNOWN:
            # The oldest: its deletion is checked at its own due time.
            del self._known[next(iter(self._known))]

    async def run(self) -> None:
        """Until cancelled."""
        await run_when_due(self._assignment.name, self._changed, self._due, self._run_due)

    def _due(self) -> Iterable[float]:
        return [one.due for one in self._pending.values()]

    async def _run_due(self) -> None:
        now = time.monotonic()
        if not self._assignment.lease_held():
            # Without the Lease nothing is done; if it is lost for good, this task is cancelled.
            self._pending = {one: wanted._replace(due=now + RECHECK_AFTER[0]) for one, wanted in self._pending.items()}
            return
        due = {one: wanted for one, wanted in self._pending.items() if wanted.due <= now}
        for one in due:
            del self._pending[one]
        shard_of = self._assignment.installation.shard_of
        places: dict[tuple[int, str], list[str]] = {}
        for one, wanted in due.items():
            places.setdefault((shard_of(one).number, wanted.why), []).append(one)
        for (shard_number, why), mine in places.items():
            for first in range(0, len(mine), _AT_ONCE):
                shard = self._assignment.installation.shards[shard_number]
                await self._recheck(shard, mine[first : first + _AT_ONCE], due, why)

    async def _recheck(self, shard: Shard, deletions: Sequence[str], due: dict[str, _PendingRecheck], why: str) -> None:
        rest, forward = [(one, 0) for one in deletions], 0
        while rest:
            answers = await shard.recheck(rest, why)
            forward += sum(answer.forward for answer in answers)
            for (one, _), answer in zip(rest, answers, strict=True):
                if answer.state in _UNDECIDED and answer.next < 0:
                    self._retry(one, due[one])
            rest = [(one, answer.next) for (one, _), answer in zip(rest, answers, strict=True) if answer.next >= 0]
        if forward:
            self._status.info("held deletions rechecked", count=forward, reason=why)

    def _retry(self, deletion: str, wanted: _PendingRecheck) -> None:
        checks = wanted.checks
        if checks < len(RECHECK_AFTER):
            # setdefault: a change in the meantime is due sooner.
            self._pending.setdefault(
                deletion, _PendingRecheck(time.monotonic() + RECHECK_AFTER[checks], checks + 1, wanted.why)
            )


def _policy_hash(seen: KubeObject) -> int:
    """Of the labels and annotations, without what we ourselves write on the object."""
    annotations = frozenset(item for item in seen.annotations.items() if item[0] != STATUS)
    return hash((frozenset(seen.labels.items()), annotations))


NAMESPACE_CHANGED: Final = "annotations of its Namespace changed"
WATCHER_CHANGED: Final = "its source is watched by another replica than before, annotations may have changed meanwhile"
RESTORE_ACCEPTED: Final = "an operator accepted that its cluster was restored from a backup"

_MOST_FOUND: Final = 20_000


@dataclass(slots=True)
class _PendingScan:
    """One scan of what is held in a Namespace, or everywhere. Deletions in `rechecked` were rechecked by it already;
    those published after `since`, by the clock of their shard, were judged after the change."""

    why: str
    due: float
    scans: int = 0
    rechecked: set[str] = field(default_factory=set)
    since: dict[int, int] = field(default_factory=dict)


class HeldScan:
    """Of one source: finds its held deletions in Redis after a change that the watch of its objects does not show."""

    def __init__(self, assignment: Assignment, rechecks: Rechecks) -> None:
        self._assignment, self._rechecks = assignment, rechecks
        # By Namespace, None for all of them.
        self._scans: dict[str | None, _PendingScan] = {}
        self._listed = False
        self._changed = asyncio.Event()

    def watch_namespaces(self) -> None:
        """For a source whose objects have Namespaces."""
        if self._assignment.namespaces is not None:
            self._assignment.namespaces.subscribe(self._namespaces_changed)

    def after_first_list(self, namespace: str | None) -> None:
        """The watch shows changes from now on, not those before the first list."""
        self._listed = True
        self._schedule([namespace], WATCHER_CHANGED)

    def after_restore_accepted(self, namespace: str | None) -> None:
        """What workers held because the cluster was restored from a backup may go on."""
        self._schedule([namespace], RESTORE_ACCEPTED)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await run_when_due(self._assignment.name, self._changed, self._due, self._run_due)
        finally:
            if self._assignment.namespaces is not None:
                self._assignment.namespaces.unsubscribe(self._namespaces_changed)

    def _namespaces_changed(self, names: Collection[str] | None) -> None:
        if names is not None:
            self._schedule((name for name in names if self._assignment.share(name)), NAMESPACE_CHANGED)
        elif self._listed:
            # Before the first list nothing is missed: after it everything is scanned.
            self._schedule([None], NAMESPACE_CHANGED)

    def _schedule(self, names: Iterable[str | None], why: str) -> None:
        now = time.monotonic()
        for name in names:
            self._scans[name] = _PendingScan(why, now)
            self._changed.set()

    def _due(self) -> Iterable[float]:
        return [scan.due for scan in self._scans.values()]

    # ---- scanning

    async def _run_due(self) -> None:
        now = time.monotonic()
        due = {name: scan for name, scan in self._scans.items() if scan.due <= now}
        if not self._assignment.lease_held():
            # Without the Lease nothing is done; if it is lost for good, this task is cancelled.
            for scan in due.values():
                scan.due = now + RECHECK_AFTER[0]
            return
        found = dict[str, str]()
        for shard in self._assignment.installation.shards if due else ():
            found |= await self._find_held(shard, due)
        for why in set(found.values()):
            self._rechecks.request([one for one, reason in found.items() if reason == why], why)
        for name, scan in due.items():
            self._reschedule(name, scan)

    def _reschedule(self, name: str | None, scan: _PendingScan) -> None:
        if self._scans.get(name) is not scan:
            # Scheduled anew in the meantime.
            return
        if scan.scans >= len(RECHECK_AFTER):
            del self._scans[name]
            return
        scan.due, scan.scans = time.monotonic() + RECHECK_AFTER[scan.scans], scan.scans + 1

    async def _find_held(self, shard: Shard, due: dict[str | None, _PendingScan]) -> dict[str, str]:
        """Deletions of this source that are held, or have held jobs, each with the reason for its recheck. They are
        gathered first: rechecks change the set that is iterated over."""
        prefix = f"{self._assignment.cluster_uid}/{self._assignment.settings.resource}/"
        found, now = dict[str, str](), await server_ms(shard)
        for scan in due.values():
            scan.since.setdefault(shard.number, now)
        async for page in _held_names(shard):
            ids = list(dict.fromkeys(one for one in _deletion_ids(page) if one.startswith(prefix)))
            rows = await shard.read_deletions(ids, ("source", "namespace", "held", "published_at")) if ids else []
            for one, (source, namespace, held, published) in zip(ids, rows, strict=True):
                if source == self._assignment.name and self._assignment.share(namespace):
                    scans = [
                        scan
                        for scan in (due.get(namespace), due.get(None))
                        if scan is not None and number(published) <= scan.since[shard.number]
                    ]
                    found |= _recheck_reason(one, held, scans)
            if len(found) >= _MOST_FOUND:
                log.warning(
                    "more deletions are held than are rechecked at once", source=self._assignment.name, most=_MOST_FOUND
                )
                break
        return found


async def _held_names(shard: Shard) -> AsyncIterator[list[str]]:
    """Names of what is held, and of deletions that wait by themselves. Jobs that wait do not depend on annotations."""
    async for page in members(shard, "held"):
        yield [member.name for member in page]
    async for page in members(shard, "waiting"):
        yield [member.name for member in page if member.name.startswith("deletion:")]


def _recheck_reason(one: str, held: str, scans: Iterable[_PendingScan]) -> dict[str, str]:
    """The reason by deletion id; empty if it is not rechecked."""
    found = dict[str, str]()
    for scan in scans:
        # What the guard holds waits for an operator, unless its Namespace says by now that it is to be retained.
        if one not in scan.rechecked and (scan.why is NAMESPACE_CHANGED or not held.startswith(GUARD)):
            scan.rechecked.add(one)
            found[one] = scan.why
    return found


def _deletion_ids(names: Iterable[str]) -> Iterator[str]:
    """The deletion that each held name belongs to; an undecodable event has none."""
    for name in names:
        kind, _, identity = name.partition(":")
        if kind == "deletion":
            yield identity
        elif kind == "job":
            yield identity.rpartition("#")[0]
