"""Lifecycle of one source on the replica that holds its share: wires its list-watch loops, the finalizer patcher and
the rechecks together, and runs them until it is cancelled."""

import asyncio

import structlog

from service.engine.inventory import Inventory
from service.watching.assignment import (
    Assignment,
    ListScope,
    ObjectHandler,
    SourceCounters,
    list_scopes,
)
from service.watching.finalizer_mode import FinalizerMode, FormerNamespaces
from service.watching.finalizer_patcher import FinalizerPatcher
from service.watching.list_watch import ListPass, ListWatch
from service.watching.observe_mode import ObserveMode
from service.watching.publishing import Publisher
from service.watching.recheck import HeldScan, Rechecks
from service.watching.remembering_mode import RememberingMode
from service.watching.scope import SourceScope
from service.watching.source_status import SourceStatus
from service.watching.watch_follower import WatchFollower

log = structlog.get_logger(__name__)


class SourceWatch:
    """`problem` is empty if all is well; `ready` says that everything was listed at least once."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self.store = Inventory(assignment.installation, assignment.name)
        self._scope = SourceScope(assignment)
        self._status = SourceStatus(assignment, self.store)
        self._patcher = FinalizerPatcher(assignment, self._scope, self._status)
        self._rechecks = Rechecks(assignment, self._status)
        self._held_scan = HeldScan(assignment, self._rechecks)
        self._list_watches = [self._list_watch(list_scope) for list_scope in list_scopes(assignment)]

    @property
    def name(self) -> str:
        return self._assignment.name

    @property
    def counters(self) -> SourceCounters:
        return self._assignment.counters

    @property
    def problem(self) -> str:
        return self._status.problem

    @property
    def ready(self) -> bool:
        return all(list_watch.listed for list_watch in self._list_watches)

    async def run(self) -> None:
        """Until cancelled."""
        await self._status.clear_stored()
        feature = self._assignment.declaration.feature
        if not self._assignment.installation.settings.features.on(feature):
            self._status.warning(
                "feature is off: no finalizer is added, objects that are deleted with our finalizer wait",
                feature=feature,
            )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._patcher.run())
            group.create_task(self._rechecks.run())
            group.create_task(self._held_scan.run())
            for list_watch in self._list_watches:
                group.create_task(list_watch.run())
            if not self._assignment.observes:
                former = FormerNamespaces(
                    self._assignment, self.store, self._status, self._finalizer_mode, self._scope.hash
                )
                group.create_task(former.run())

    def _list_watch(self, list_scope: ListScope) -> ListWatch:
        handler = self._handler(list_scope)
        list_pass = ListPass(list_scope, handler, self.store, self._status, self._scope.hash)
        follower = WatchFollower(list_scope, handler, self.store, self._patcher, self._status)
        return ListWatch(list_scope, list_pass, follower, self._held_scan)

    def _handler(self, list_scope: ListScope) -> ObjectHandler:
        publisher = Publisher(list_scope, self._scope, self.store, self._status)
        observe_mode = ObserveMode(list_scope, self._scope, self.store, publisher, self._patcher, self._status)
        if self._assignment.observes:
            return observe_mode
        finalizer_mode = FinalizerMode(list_scope, self._scope, publisher, self._patcher, self._rechecks)
        if self._assignment.declaration.remembers:
            return RememberingMode(finalizer_mode, observe_mode)
        return finalizer_mode

    def _finalizer_mode(self, list_scope: ListScope) -> FinalizerMode:
        publisher = Publisher(list_scope, self._scope, self.store, self._status)
        return FinalizerMode(list_scope, self._scope, publisher, self._patcher, self._rechecks)
