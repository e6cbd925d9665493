"""The story of a Cluster API cluster on AWS: its finalizer holds it until nothing of it is left there.
It is underway when the first of what it had is gone: then its interfaces drain."""

from datetime import timedelta

from service.kubernetes import Cluster
from standins.aws import LocalAws
from standins.demo.amazon import REGION, Account
from standins.demo.capi import CALLED, NAME, Capi
from standins.demo.picture import Picture
from standins.demo.reckoning import AwsSummary, reckon


class ClusterOnAws:
    called = CALLED

    def __init__(self, aws: LocalAws, cluster: Cluster, picture: Picture) -> None:
        self._picture = picture
        self._capi, self._account = Capi(cluster), Account(aws, NAME)
        self._held = False
        self.underway = False

    async def aclose(self) -> None:
        await self._account.aclose()

    async def prepare(self) -> None:
        await self._capi.prepare()

    async def make(self) -> None:
        await self._capi.make(REGION, await self._account.build())
        self._picture.aws = self._account.counts

    async def watched(self) -> bool:
        return await self._capi.marked()

    async def delete(self) -> str:
        self._held = await self._capi.delete()
        return f"{CALLED} deleted, by a DELETE call as well"

    async def follow(self) -> bool:
        if await self._capi.gone():
            self._picture.aws = {}
            return True
        await self._account.look()
        self._picture.aws = counts = self._account.counts
        self.underway = any(left < of for left, of in counts.values())
        return False

    def ending(self, took: timedelta) -> str:
        return f"{CALLED} is gone, {took.total_seconds():.1f} s after its deletion"

    async def summary(self, took: timedelta | None) -> AwsSummary:
        gone = await self._capi.gone()
        await self._account.look()
        return reckon(self._account, CALLED, held=self._held, gone=gone, took=took)
