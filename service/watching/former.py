"""Namespaces that a source's settings named once and name no more: what we marked there must not be held for ever.
Live objects are let go soon; while all that are left are going already, it is listed as seldom as all the rest."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import structlog

from service.engine.inventory import Inventory
from service.kubernetes import ClusterError
from service.watching.assignment import Assignment, NotHolding
from service.watching.finalizing import Finalizing
from service.watching.listing import Listing
from service.watching.reporting import Report
from service.watching.strand import Strand

log = structlog.get_logger(__name__)

_WHERE: Final = "former namespaces"
EVERYWHERE: Final = "*"


class _Left(NamedTuple):
    """Objects with our finalizer that are nobody's."""

    living: int
    going: int


class Former:
    """`duties` makes what is done with the objects of a strand."""

    def __init__(
        self,
        assignment: Assignment,
        store: Inventory,
        report: Report,
        duties: Callable[[Strand], Finalizing],
        scope: str,
    ) -> None:
        self._assignment, self._store, self._report = assignment, store, report
        self._duties, self._scope = duties, scope
        self._field = Strand(assignment, None).field("namespaces")
        self._known: list[str] = []

    async def run(self) -> None:
        """Ends when nothing of ours is left there."""
        while True:
            patient = False
            try:
                asked = await self._store.wishes()
                left = await self._left()
                await self._report.fine(_WHERE)
                if left is None:
                    return
                if patient := left.living == 0:
                    await self._rest(asked)
            except NotHolding:
                pass
            except ClusterError as error:
                await self._report.trouble(_WHERE, str(error))
            except Exception as error:
                log.exception("former namespaces failed", source=self._assignment.name)
                await self._report.trouble(_WHERE, f"{type(error).__name__}: {error}")
            if not patient:
                await asyncio.sleep(self._assignment.watch.retry.total_seconds())

    async def _rest(self, asked: list[str]) -> None:
        """Until the next list is due. One that is asked for, or an emptied Redis, is a reason to look at once."""
        watch = self._assignment.watch
        end = time.monotonic() + watch.relist.total_seconds()
        while await self._store.wishes() == asked:
            rest = end - time.monotonic()
            if rest <= 0:
                return
            await asyncio.sleep(min(rest, watch.retry.total_seconds()))

    async def _left(self) -> "_Left | None":
        self._assignment.act()
        named = self._assignment.settings.namespaces or (EVERYWHERE,)
        kept = (await self._store.facts()).get(self._field)
        # An emptied Redis has forgotten them; this process has not.
        before = dict.fromkeys([*self._known, *(msgspec.json.decode(kept, type=list[str]) if kept else [])])
        former = [] if EVERYWHERE in named else [one for one in before if one not in named]
        self._known = former
        # Noted together until the old ones are done with, so that a crash forgets none.
        await self._note([*named, *former])
        left = [await self._look(None if one == EVERYWHERE else one) for one in former]
        living, going = sum(one.living for one in left), sum(one.going for one in left)
        if living or going:
            self._report.said("objects in former namespaces still have our finalizer", living=living, going=going)
            return _Left(living, going)
        await self._note(list(named))
        return None

    async def _look(self, namespace: str | None) -> "_Left":
        strand = Strand(self._assignment, namespace)
        duties = self._duties(strand)
        served = await self._assignment.cluster.discover(self._assignment.settings.resource)
        await Listing(strand, duties, self._store, self._report, self._scope, passing=True).run(served)
        return _Left(duties.strays - duties.going_strays, duties.going_strays)

    async def _note(self, names: list[str]) -> None:
        await self._store.note({self._field: msgspec.json.encode(names).decode()})
