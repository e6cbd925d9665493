"""The cluster on AWS in the course of the demo: made as soon as AWS is there, deleted once it is marked, and followed.
It goes on beside the rest, which does not wait for the stand-in to start."""

import asyncio
import time
from datetime import timedelta
from typing import Final

from service.cluster import Cluster
from service.local.aws import LocalAws
from service.local.demo.amazon import REGION, Account
from service.local.demo.capi import CALLED, NAME, Capi
from service.local.demo.failing import DemoFailed
from service.local.demo.picture import Picture
from service.local.demo.reckoning import AwsSummary, reckon

_STEP: Final = 0.2
_LOOK_EVERY: Final = 0.7
_MARKED_WITHIN: Final = 30.0


class Subplot:
    """`deleted`: the DELETE call was made. `underway`: the first of what the cluster had is gone."""

    def __init__(self, aws: LocalAws, cluster: Cluster, picture: Picture) -> None:
        self._picture = picture
        self._capi, self._account = Capi(cluster), Account(aws, NAME)
        self._held = False
        self._took: timedelta | None = None
        self.deleted = False
        self.underway = False

    async def aclose(self) -> None:
        await self._account.aclose()

    async def prepare(self) -> None:
        await self._capi.prepare()

    async def run(self) -> None:
        vpc = await self._account.build()
        await self._capi.make(REGION, vpc)
        self._picture.aws = self._account.counts
        await self._until_marked()
        self._held, deleted_at = await self._capi.delete(), time.monotonic()
        self.deleted = True
        self._picture.say(f"{CALLED} deleted, by a DELETE call as well")
        while not await self._capi.gone():
            await self._account.look()
            self._picture.aws = counts = self._account.counts
            self.underway = any(left < of for left, of in counts.values())
            await asyncio.sleep(_LOOK_EVERY)
        self.underway = True
        self._took = timedelta(seconds=round(time.monotonic() - deleted_at, 1))
        self._picture.aws = {}
        self._picture.say(f"{CALLED} is gone, {self._took.total_seconds():.1f} s after its deletion")

    async def _until_marked(self) -> None:
        deadline = time.monotonic() + _MARKED_WITHIN
        while not await self._capi.marked():
            if time.monotonic() > deadline:
                raise DemoFailed(f"{CALLED} is not marked")
            await asyncio.sleep(_STEP)

    async def summary(self) -> AwsSummary:
        """As the API server and AWS show it now."""
        if not self.deleted:
            raise DemoFailed(f"{CALLED} could not be deleted in time")
        gone = await self._capi.gone()
        await self._account.look()
        return reckon(self._account, CALLED, held=self._held, gone=gone, took=self._took)
