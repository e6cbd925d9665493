"""List-and-watch loop: lists the objects of a source, watches them from the list's resource version on, and lists again
when a list is due or requested, or when the resource version expired (410 Gone)."""

import asyncio
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import structlog

from service.engine.enabled_times import EnabledTimes
from service.engine.inventory import Inventory
from service.kubernetes import (
    ClusterError,
    Expired,
    Forbidden,
    Invalid,
    NotServed,
    ServedResource,
    TooMany,
    Unauthorized,
)
from service.watching.assignment import (
    VERSION_FIELD,
    Assignment,
    LeaseNotHeld,
    ListScope,
    ListStart,
    ObjectHandler,
    is_stale_field,
)
from service.watching.recheck import HeldScan
from service.watching.restored_cluster import RestoreDoubt, is_version_field, restore_doubt
from service.watching.source_status import SourceStatus
from service.watching.watch_follower import WatchFollower

log = structlog.get_logger(__name__)

_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 5.0
_LEASE_CHECK: Final = 0.2
_TRIES: Final = 10


class ListPass:
    """One complete list of a list scope, page by page, so that memory stays flat. Nothing is concluded before the last
    page; a list that expires in the middle starts over. Unless a watch follows, nothing of it is stored."""

    def __init__(
        self,
        list_scope: ListScope,
        handler: ObjectHandler,
        store: Inventory,
        status: SourceStatus,
        scope: str,
        *,
        watch_follows: bool = True,
    ) -> None:
        self._list_scope, self._handler = list_scope, handler
        self.store, self.status, self._scope = store, status, scope
        self._watch_follows = watch_follows

    @property
    def _assignment(self) -> Assignment:
        return self._list_scope.assignment

    async def run(self, served: ServedResource) -> str:
        """Returns the resource version to watch from."""
        for tried in range(_TRIES):
            try:
                return await self._list(served)
            except Expired as error:
                self.status.info("list expired in the middle, starting over", tried=tried + 1, reason=str(error))
        raise Expired(f"the list of {served.resource} expired {_TRIES} times before it was complete")

    async def _list(self, served: ServedResource) -> str:
        restore_detector = self._assignment.restore_detector
        # Before the list: a restore that is accepted during the list is not reported again because of it.
        seen = await restore_detector.stored_record() if restore_detector is not None else ""
        facts = await self.store.state()
        if facts.get("scope", self._scope) != self._scope:
            self.status.warning("scope of the source changed, its inventory starts over", before=facts["scope"])
        began = await self.store.server_ms()
        scope = await self.store.begin_scope(self._scope, facts)
        await self._handler.begin_list(served, ListStart(await self.store.next_number(), scope, facts))
        version = ""
        limit, listed = self._assignment.watch.page, 0
        namespace = self._list_scope.namespace
        cluster, small = self._assignment.cluster, self._assignment.metadata_only
        async for page in cluster.pages(served, namespace, self._handler.selector, limit, metadata_only=small):
            version = page.resource_version
            for what in page.unreadable:
                self.status.report_unreadable(what)
            items = [seen for seen in page.items if self._list_scope.includes(seen.namespace)]
            listed += len(items)
            await self._handler.handle_page(served, items)
            del page, items
        doubt = restore_doubt(facts, version, began) if self._same_versions(facts) else RestoreDoubt("")
        if doubt.restored and restore_detector is not None:
            doubt = doubt._replace(why=await restore_detector.mark_restored(seen, doubt.why))
        await self._handler.end_list(served, doubt.why)
        if not self._watch_follows:
            return version
        self._assignment.counters.listed += listed
        self._assignment.counters.relists += 1
        self._assignment.count(self._list_scope.label, owned=self._handler.owned)
        await self._note(facts, version, began, doubt.why)
        return version

    def _same_versions(self, facts: Mapping[str, str]) -> bool:
        """Resource versions of another cluster or another resource can't be compared."""
        assignment = self._assignment
        known = facts.get("cluster", assignment.cluster_uid), facts.get("resource", assignment.settings.resource)
        return known == (assignment.cluster_uid, assignment.settings.resource)

    async def _note(self, facts: dict[str, str], version: str, began: int, doubt: str) -> None:
        """Stores where the watch begins. After a restore, later versions of other list scopes are from before it."""
        if doubt:
            self.status.warning("deletions found by this list are held", reason=doubt)
        if doubt or not self._same_versions(facts):
            await self.store.clear_state(*(field for field in facts if is_version_field(field)))
        await self.store.save_state(
            {
                self._list_scope.field(VERSION_FIELD): version,
                self._list_scope.field("listed_at"): began,
                self._list_scope.owned_field: self._handler.owned,
                "scope": self._scope,
                "cluster": self._assignment.cluster_uid,
                "resource": self._assignment.settings.resource,
                "mode": self._assignment.settings.mode,
            }
        )


class ListWatch:
    """The loop of one list scope. It ends only when it is cancelled: errors are reported as problems of the source and
    retried, slowly where only an operator can help. `listed` says whether a list was ever complete."""

    def __init__(
        self, list_scope: ListScope, list_pass: ListPass, follower: WatchFollower, held_scan: HeldScan
    ) -> None:
        self._list_scope, self._assignment = list_scope, list_scope.assignment
        self._list_pass, self._follower, self._held_scan = list_pass, follower, held_scan
        self._store, self._status = list_pass.store, list_pass.status
        self.listed = False
        # When an operator last accepted a restore of the cluster, as of the latest list.
        self._accepted = ""
        # Whether the latest list was complete: a problem after it begins with a short wait again.
        self._complete = False

    async def run(self) -> None:
        """Until cancelled."""
        label = self._list_scope.label
        wait = _FIRST_WAIT
        while True:
            try:
                await self._list_and_watch()
                wait = _FIRST_WAIT
            except LeaseNotHeld:
                await self._wait_for_lease()
            except Expired as error:
                self._status.info("watch expired, listing again", reason=str(error))
                await asyncio.sleep(random.uniform(0, _FIRST_WAIT))
            except ClusterError as error:
                if self._complete:
                    wait = _FIRST_WAIT
                await self._status.set_problem(label, str(error))
                await asyncio.sleep(self._retry_wait(error, wait))
                wait = min(wait * 2, _LONGEST_WAIT)
            except Exception as error:
                # An unforeseen error stays with this source: it is shown, and the other sources go on.
                log.exception("source failed", source=self._assignment.name)
                await self._status.set_problem(label, f"{type(error).__name__}: {error}")
                await asyncio.sleep(self._assignment.watch.retry.total_seconds())

    async def _list_and_watch(self) -> None:
        """One list and the watch that follows it, until the next list."""
        assignment, namespace = self._assignment, self._list_scope.namespace
        assignment.require_lease()
        self._complete = False
        await self._clear_stale_fields()
        accepted = await self._follower.note_relist_requests()
        await self._store_first_enabled()
        served = await assignment.cluster.discover(assignment.settings.resource)
        if namespace is not None and not served.namespaced:
            raise Invalid(f"{served.resource} have no namespaces; take `namespaces` out of source {assignment.name}")
        if served.namespaced:
            self._held_scan.watch_namespaces()
        version = await self._list_pass.run(served)
        if not self.listed:
            self._held_scan.after_first_list(namespace)
        elif accepted != self._accepted:
            self._held_scan.after_restore_accepted(namespace)
        self.listed, self._accepted, self._complete = True, accepted, True
        await self._status.clear_problem(self._list_scope.label)
        await self._follower.run(served, version, assignment.watch.relist * random.uniform(0.9, 1.1))

    async def _clear_stale_fields(self) -> None:
        """Counts of list scopes that no longer exist would be added up by the guard, and shown."""
        facts = await self._store.state()
        await self._store.clear_state(*(field for field in facts if is_stale_field(field, self._assignment)))

    async def _store_first_enabled(self) -> None:
        """Before each list: an emptied Redis has lost its copy, and the ConfigMap may be lost after it."""
        assignment = self._assignment
        if assignment.enabled_at and assignment.installation.settings.features.on(assignment.declaration.feature):
            at = datetime.fromtimestamp(assignment.enabled_at / 1000, UTC)
            await EnabledTimes(assignment.installation).add(assignment.cluster_uid, assignment.name, at)

    async def _wait_for_lease(self) -> None:
        while not self._assignment.lease_held():  # noqa: ASYNC110  # the Lease has no event to wait for
            await asyncio.sleep(_LEASE_CHECK)

    def _retry_wait(self, error: ClusterError, wait: float) -> float:
        retry = self._assignment.watch.retry.total_seconds()
        match error:
            case NotServed() | Forbidden() | Unauthorized() | Invalid():
                return retry * random.uniform(0.9, 1.1)
            case TooMany():
                return max(wait, error.retry_after.total_seconds())
            case _:
                return min(wait, retry) * random.uniform(0.5, 1.0)
