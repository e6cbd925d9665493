"""One source's life: list, diff, follow, and again. It ends only when it is cancelled: trouble is reported and waited
out, slowly where only a person can help, and no other source notices."""

import asyncio
import random
from datetime import UTC, datetime
from typing import Final

import structlog

from service.engine.inventory import Inventory
from service.engine.moments import Moments
from service.kubernetes import ClusterError, Expired, Forbidden, Invalid, NotServed, TooMany, Unauthorized
from service.watching.assignment import Assignment, NotHolding, Tally
from service.watching.finalizing import Finalizing
from service.watching.following import Following
from service.watching.former import Former
from service.watching.listing import Duties, Listing
from service.watching.marking import Marker
from service.watching.mending import Mending
from service.watching.observing import Observing
from service.watching.publishing import Publisher
from service.watching.reconsidering import Reconsidering
from service.watching.reporting import Report
from service.watching.scope import Scope
from service.watching.strand import Strand, is_former, strands_of

log = structlog.get_logger(__name__)

_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 5.0
_LEASE_LOOK: Final = 0.2


class SourceRun:
    """`problem` is empty while all goes well; `ready` says that everything was listed at least once."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self.store = Inventory(assignment.installation, assignment.name)
        self._scope = Scope(assignment)
        self._report = Report(assignment, self.store)
        self._marker = Marker(assignment, self._scope, self._report)
        self._reconsidering = Reconsidering(assignment, self._report)
        self._mending = Mending(assignment, self._reconsidering)
        self._strands = strands_of(assignment)
        self._listed: set[str] = set()
        # By strand, when a person had accepted that the cluster was restored, as of its latest list.
        self._accepted: dict[str, str] = {}
        # Strands whose latest list was complete: trouble after it begins with a short wait again.
        self._fresh: set[str] = set()

    @property
    def name(self) -> str:
        return self._assignment.name

    @property
    def tally(self) -> Tally:
        return self._assignment.tally

    @property
    def problem(self) -> str:
        return self._report.problem

    @property
    def ready(self) -> bool:
        return all(strand.label in self._listed for strand in self._strands)

    async def run(self) -> None:
        """Until cancelled."""
        await self._report.forget()
        feature = self._assignment.traits.feature
        if not self._assignment.installation.settings.features.on(feature):
            self._report.warned("feature is off: nothing is marked, what is going with our finalizer waits",
                                feature=feature)  # fmt: skip
        async with asyncio.TaskGroup() as group:
            group.create_task(self._marker.run())
            group.create_task(self._reconsidering.run())
            group.create_task(self._mending.run())
            for strand in self._strands:
                group.create_task(self._live(strand))
            if not self._assignment.observes:
                former = Former(self._assignment, self.store, self._report, self._finalizing, self._scope.hash)
                group.create_task(former.run())

    async def _drop_old_counts(self) -> None:
        """Numbers of strands that there are no more would be added up by the guard, and shown."""
        facts = await self.store.facts()
        await self.store.clear(*(field for field in facts if is_former(field, self._assignment)))

    # ---- one strand

    async def _live(self, strand: Strand) -> None:
        duties = self._duties(strand)
        listing = Listing(strand, duties, self.store, self._report, self._scope.hash)
        following = Following(strand, duties, self.store, self._marker, self._report)
        wait = _FIRST_WAIT
        while True:
            try:
                await self._once(strand, listing, following)
                wait = _FIRST_WAIT
            except NotHolding:
                await self._until_held()
            except Expired as error:
                self._report.said("watch expired, listing again", reason=str(error))
                await asyncio.sleep(random.uniform(0, _FIRST_WAIT))
            except ClusterError as error:
                if strand.label in self._fresh:
                    wait = _FIRST_WAIT
                await self._report.trouble(strand.label, str(error))
                await asyncio.sleep(self._wait(error, wait))
                wait = min(wait * 2, _LONGEST_WAIT)
            except Exception as error:
                # Whatever it is, it is this source's: it is shown, and the others go on.
                log.exception("source failed", source=self.name)
                await self._report.trouble(strand.label, f"{type(error).__name__}: {error}")
                await asyncio.sleep(self._assignment.watch.retry.total_seconds())

    async def _once(self, strand: Strand, listing: Listing, following: Following) -> None:
        """From one list to the next."""
        self._assignment.act()
        self._fresh.discard(strand.label)
        await self._drop_old_counts()
        accepted = await following.remember_wishes()
        await self._keep_moment()
        served = await self._assignment.cluster.discover(self._assignment.settings.resource)
        if strand.namespace is not None and not served.namespaced:
            raise Invalid(f"{served.resource} have no namespaces; take `namespaces` out of source {self.name}")
        if served.namespaced:
            self._mending.attend()
        version = await listing.run(served)
        if strand.label not in self._listed:
            self._mending.begun(strand.namespace)
        elif accepted != self._accepted[strand.label]:
            self._mending.accepted(strand.namespace)
        self._listed.add(strand.label)
        self._accepted[strand.label] = accepted
        self._fresh.add(strand.label)
        await self._report.fine(strand.label)
        relist = self._assignment.watch.relist
        await following.run(served, version, relist * random.uniform(0.9, 1.1))

    async def _keep_moment(self) -> None:
        """Before each list: an emptied Redis has lost the copy, and one loss after the other must not forget it."""
        assignment = self._assignment
        if assignment.enabled_at and assignment.installation.settings.features.on(assignment.traits.feature):
            at = datetime.fromtimestamp(assignment.enabled_at / 1000, UTC)
            await Moments(assignment.installation).keep(assignment.cluster_uid, self.name, at)

    async def _until_held(self) -> None:
        while not self._assignment.may_act():  # noqa: ASYNC110  # the Lease's holder is a plain question to us
            await asyncio.sleep(_LEASE_LOOK)

    def _wait(self, error: ClusterError, wait: float) -> float:
        retry = self._assignment.watch.retry.total_seconds()
        match error:
            case NotServed() | Forbidden() | Unauthorized() | Invalid():
                return retry * random.uniform(0.9, 1.1)
            case TooMany():
                return max(wait, error.retry_after.total_seconds())
            case _:
                return min(wait, retry) * random.uniform(0.5, 1.0)

    def _duties(self, strand: Strand) -> Duties:
        if not self._assignment.observes:
            return self._finalizing(strand)
        publisher = Publisher(strand, self._scope, self.store, self._report)
        return Observing(strand, self._scope, self.store, publisher, self._marker, self._report)

    def _finalizing(self, strand: Strand) -> Finalizing:
        publisher = Publisher(strand, self._scope, self.store, self._report)
        return Finalizing(strand, self._scope, publisher, self._marker, self._reconsidering)
