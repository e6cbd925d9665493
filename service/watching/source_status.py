"""Status of a source: its problems, and objects that were missed or can't be read. Kept in Redis and in this process,
and logged once when it changes; nothing here stops a source."""

import time
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from service.engine.event_rate import may_post_event
from service.engine.inventory import Inventory
from service.kubernetes import ClusterError, KubeObject, ServedResource
from service.kubernetes.events import post_event
from service.watching.assignment import Assignment
from service.watching.marking import MarkingCheck

log = structlog.get_logger(__name__)

MISSED: Final = "CleanupMissed"
"""Reason of the Event about an object that was deleted before it got our finalizer."""
_MOST_KNOWN: Final = 10_000


class RecentNames:
    """Bounded set of names, of which the oldest are dropped; used to report each thing once."""

    def __init__(self, most: int = _MOST_KNOWN) -> None:
        self._names: dict[str, None] = {}
        self._most = most

    def add(self, name: str) -> bool:
        """Whether it is new."""
        if name in self._names:
            return False
        self._names[name] = None
        if len(self._names) > self._most:
            del self._names[next(iter(self._names))]
        return True

    def drop(self, name: str) -> None:
        self._names.pop(name, None)

    def clear(self) -> None:
        self._names.clear()

    def __contains__(self, name: object) -> bool:
        return name in self._names


class SourceStatus:
    """`problem` is empty if all is well; it is the first one of those that parts of the source have."""

    def __init__(self, assignment: Assignment, store: Inventory) -> None:
        self._assignment, self._store = assignment, store
        self._problems: dict[str, str] = {}
        self._missed = RecentNames()
        self._unreadable = RecentNames()
        self._log = log.bind(source=assignment.name, cluster=assignment.cluster.name, part=assignment.part or None)

    @property
    def problem(self) -> str:
        return next(iter(self._problems.values()), "")

    async def set_problem(self, where: str, what: str) -> None:
        if self._problems.get(where) == what:
            return
        self._problems[where] = what
        self._assignment.counters.problems += 1
        self._log.warning("source has a problem, others go on", where=where or None, problem=what)
        now = int(time.time() * 1000)
        await self._write(self._store.save_state({self._field("problem"): what, self._field("problem_since"): now}))

    async def clear_problem(self, where: str) -> None:
        if self._problems.pop(where, None) is None:
            return
        self._log.info("source recovered", where=where or None)
        if self._problems:
            await self._write(self._store.save_state({self._field("problem"): self.problem}))
        else:
            await self.clear_stored()

    async def clear_stored(self) -> None:
        """Removes what this or another process stored before."""
        await self._write(self._store.clear_state(self._field("problem"), self._field("problem_since")))

    async def _write(self, writing: Coroutine[Any, Any, None]) -> None:
        """The problem may be that Redis can't be written: then it is only logged."""
        try:
            await writing
        except Exception as error:  # noqa: BLE001  # no error here may end the source
            self._log.error("state of the source can't be written", reason=str(error))

    def report_unreadable(self, what: str) -> None:
        """Counts it and logs it once; such an object never counts as gone."""
        self._assignment.counters.unreadable += 1
        if self._unreadable.add(what):
            self._log.error("object can't be read and is left alone", reason=what)

    async def report_missed(self, served: ServedResource, seen: KubeObject) -> None:
        """For an object that was deleted before it got our finalizer: its outside resources may be left over."""
        if not self._missed.add(seen.uid) or await self._was_moved(seen):
            return
        self._assignment.counters.missed += 1
        self._log.warning(
            "object deleted before it got our finalizer", uid=seen.uid, name=seen.name, namespace=seen.namespace
        )
        assignment, feedback = self._assignment, self._assignment.installation.settings.feedback
        if not feedback.events:
            return
        deletion = f"{assignment.cluster_uid}/{assignment.settings.resource}/{seen.uid}/1"
        if not await may_post_event(assignment.installation, deletion, seen.uid, MISSED, feedback.every):
            return
        said = (
            f"This object was deleted before source {self._assignment.name} could hold it back; "
            "what it owned outside the cluster is not removed because of this deletion."
        )
        await post_event(self._assignment.cluster, served, seen, MISSED, said, "Warning")

    async def _was_moved(self, seen: KubeObject) -> bool:
        """Whether the source's rule forbids to mark it, as for an object of a paused Cluster of Cluster API: it was
        moved to another cluster, together with its resources."""
        marking = MarkingCheck(self._assignment.cluster, self._assignment.declaration)
        try:
            why = await marking.objection(seen.namespace, marking.owner(seen))
        except ClusterError:
            return False
        if why:
            self._log.info(
                "object deleted without our finalizer, as in a move", uid=seen.uid, name=seen.name, reason=why
            )
        return bool(why)

    def info(self, what: str, **facts: object) -> None:
        self._log.info(what, **facts)

    def warning(self, what: str, **facts: object) -> None:
        self._log.warning(what, **facts)

    def _field(self, name: str) -> str:
        return f"{name}@{self._assignment.part}" if self._assignment.part else name
