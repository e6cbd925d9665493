"""What a source's people have to know: trouble that keeps it from being watched, objects held, missed or unreadable.
It is kept in Redis and in this process, and logged once when it changes; nothing here stops a source."""

import time
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from service.engine.inventory import Inventory
from service.engine.telling import first_to_tell
from service.kubernetes import ClusterError, Seen, Served
from service.kubernetes.events import post
from service.policy import capi
from service.watching.assignment import Assignment
from service.watching.owning import Owning

log = structlog.get_logger(__name__)

MISSED: Final = "CleanupMissed"
"""The reason of the Event about an object that went before it could be held back."""
_MOST_KNOWN: Final = 10_000


class Known:
    """The latest names that were told, so that nothing is told twice; the oldest are forgotten."""

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


class Report:
    """`problem` is empty while all goes well; several parts of a source may be in trouble at once."""

    def __init__(self, assignment: Assignment, store: Inventory) -> None:
        self._assignment, self._store = assignment, store
        self._problems: dict[str, str] = {}
        self._missed = Known()
        self._unreadable = Known()
        self._log = log.bind(source=assignment.name, cluster=assignment.cluster.name, part=assignment.part or None)

    @property
    def problem(self) -> str:
        return next(iter(self._problems.values()), "")

    async def trouble(self, where: str, what: str) -> None:
        if self._problems.get(where) == what:
            return
        self._problems[where] = what
        self._assignment.tally.problems += 1
        self._log.warning("source in trouble, others go on", where=where or None, problem=what)
        now = int(time.time() * 1000)
        await self._keep(self._store.note({self._field("problem"): what, self._field("problem_since"): now}))

    async def fine(self, where: str) -> None:
        if self._problems.pop(where, None) is None:
            return
        self._log.info("source recovered", where=where or None)
        if self._problems:
            await self._keep(self._store.note({self._field("problem"): self.problem}))
        else:
            await self.forget()

    async def forget(self) -> None:
        """What another process, or this one before, left behind."""
        await self._keep(self._store.clear(self._field("problem"), self._field("problem_since")))

    async def _keep(self, writing: Coroutine[Any, Any, None]) -> None:
        """The trouble may be that nothing can be written: then the log has to do."""
        try:
            await writing
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not end the source
            self._log.error("state of the source can't be written", reason=str(error))

    def unreadable(self, what: str) -> None:
        """Counted and told by name; it is never taken for gone."""
        self._assignment.tally.unreadable += 1
        if self._unreadable.add(what):
            self._log.error("object can't be read and is left alone", reason=what)

    async def missed(self, served: Served, seen: Seen) -> None:
        """It went before our finalizer was on it: what it owned outside may be left over."""
        if not self._missed.add(seen.uid) or await self._moved(seen):
            return
        self._assignment.tally.missed += 1
        self._log.warning("object deleted before it was marked", uid=seen.uid, name=seen.name, namespace=seen.namespace)
        assignment, feedback = self._assignment, self._assignment.installation.settings.feedback
        if not feedback.events:
            return
        deletion = f"{assignment.cluster_uid}/{assignment.settings.resource}/{seen.uid}/1"
        if not await first_to_tell(assignment.installation, deletion, seen.uid, MISSED, feedback.every):
            return
        said = (
            f"This object was deleted before source {self._assignment.name} could hold it back; "
            "what it owned outside the cluster is not removed because of this deletion."
        )
        await post(self._assignment.cluster, served, seen, MISSED, said, "Warning")

    async def _moved(self, seen: Seen) -> bool:
        """Whether its Cluster was paused: then it was moved, and what it owned outside lives on with it."""
        if not self._assignment.traits.capi:
            return False
        try:
            why = await Owning(self._assignment.cluster).objection(seen.namespace, capi.owner_in(seen.raw))
        except ClusterError:
            return False
        if why:
            self._log.info("object deleted unmarked, as in a move", uid=seen.uid, name=seen.name, reason=why)
        return bool(why)

    def said(self, what: str, **facts: object) -> None:
        self._log.info(what, **facts)

    def warned(self, what: str, **facts: object) -> None:
        self._log.warning(what, **facts)

    def _field(self, name: str) -> str:
        return f"{name}@{self._assignment.part}" if self._assignment.part else name
