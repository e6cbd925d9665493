"""The story of a NodeClaim whose launch failed: its interface is reserved for another machine at first, then it goes.
It is underway when Azure has refused to delete the interface, and the wait for that is written down."""

from datetime import timedelta
from typing import Final

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.views.jobs import list_jobs
from service.kubernetes import Cluster
from standins.azure import LocalAzure
from standins.demo.karpenter import CALLED, INTERFACE, NODECLAIMS, Karpenter
from standins.demo.picture import Picture
from standins.demo.reservation import SPAN, AzureSummary, Reservation, read, reckon_azure
from standins.demo.subscription import Subscription

_MOST: Final = 10_000


class NodeOnAzure:
    called = CALLED

    def __init__(self, azure: LocalAzure, cluster: Cluster, installation: Installation, picture: Picture) -> None:
        self._installation, self._picture = installation, picture
        self._karpenter, self._subscription = Karpenter(cluster), Subscription(azure)
        self._uid = ""
        self._told = Reservation()
        self.underway = False

    async def prepare(self) -> None:
        await self._karpenter.prepare()

    async def make(self) -> None:
        await self._subscription.build()
        self._uid = await self._karpenter.make()

    async def watched(self) -> bool:
        known = await Inventory(self._installation, NODECLAIMS.plural).recall_one(self._uid)
        return known is not None

    async def delete(self) -> str:
        await self._subscription.reserve()
        await self._karpenter.delete()
        self._picture.azure = self._told
        return f"{CALLED} deleted; a failed launch left {INTERFACE}"

    async def follow(self) -> bool:
        await self._subscription.look()
        told = read(self._subscription.entries, self._subscription.ours)
        if told.until is not None and not self._told.refused:
            span, end = f"{SPAN.total_seconds():.0f} s", self._picture.stamp(told.until)
            self._picture.say(f"{INTERFACE} is reserved for another VM for {span}, may go at {end}")
        self._picture.azure = self._told = told
        self.underway = self.underway or bool(told.refused and await self._written())
        return not self._subscription.there

    async def _written(self) -> bool:
        """Whoever was told dies with what it was told until then; that would be no fault."""
        waiting = (await list_jobs(self._installation, state="waiting", limit=_MOST)).jobs
        return any(job.target == INTERFACE and job.verdict == "blocked" for job in waiting)

    def ending(self, took: timedelta) -> str:
        self._picture.azure = None
        late = self._told.late
        if late is None:
            return f"{INTERFACE} is gone, {took.total_seconds():.1f} s after the deletion of its claim"
        return f"{INTERFACE} is gone, deleted {late.total_seconds():.2f} s after its reservation ended"

    async def summary(self, took: timedelta | None) -> AzureSummary:
        await self._subscription.look()
        book = self._picture.ledger
        return reckon_azure(self._subscription, killed=book.killed.values() if book is not None else (), took=took)
