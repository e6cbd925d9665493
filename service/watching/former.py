"""Namespaces that a source's settings named once and name no more: what we marked there must not be held for ever.
Live objects are let go, those that are already going are carried out; then the namespace is forgotten."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from service.cluster import ClusterError
from service.stream.inventory import Inventory
from service.watching.assignment import Assignment, NotHolding
from service.watching.finalizing import Finalizing
from service.watching.listing import Listing
from service.watching.reporting import Report
from service.watching.strand import Strand

log = structlog.get_logger(__name__)

_WHERE: Final = "former namespaces"
EVERYWHERE: Final = "*"


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

    async def run(self) -> None:
        """Ends when nothing of ours is left there."""
        while True:
            try:
                if await self._is_done():
                    await self._report.fine(_WHERE)
                    return
            except NotHolding:
                pass
            except ClusterError as error:
                await self._report.trouble(_WHERE, str(error))
            except Exception as error:
                log.exception("former namespaces failed", source=self._assignment.name)
                await self._report.trouble(_WHERE, f"{type(error).__name__}: {error}")
            await asyncio.sleep(self._assignment.watch.retry.total_seconds())

    async def _is_done(self) -> bool:
        self._assignment.act()
        named = self._assignment.settings.namespaces or (EVERYWHERE,)
        kept = (await self._store.facts()).get(self._field)
        before: list[str] = msgspec.json.decode(kept, type=list[str]) if kept else []
        former = [] if EVERYWHERE in named else [one for one in before if one not in named]
        # Noted together until the old ones are done with, so that a crash forgets none.
        await self._note([*named, *former])
        left = 0
        for one in former:
            left += await self._look(None if one == EVERYWHERE else one)
        if left:
            self._report.said("objects in former namespaces still have our finalizer", count=left)
            return False
        await self._note(list(named))
        return True

    async def _look(self, namespace: str | None) -> int:
        strand = Strand(self._assignment, namespace)
        duties = self._duties(strand)
        served = await self._assignment.cluster.discover(self._assignment.settings.resource)
        await Listing(strand, duties, self._store, self._report, self._scope, passing=True).run(served)
        return duties.strays

    async def _note(self, names: list[str]) -> None:
        await self._store.note({self._field: msgspec.json.encode(names).decode()})
