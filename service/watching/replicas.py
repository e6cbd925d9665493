"""One share as one replica sees it: it competes for the Lease, watches while it holds it, and stops at once without it.
Whatever goes wrong with a share stays with that share: it is shown, and tried again later."""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from service.contract.traits import traits_of
from service.engine.installation import Installation
from service.engine.lease_witness import LeaseCounter, Witness
from service.engine.moments import Moments
from service.kubernetes import ClusterError, Forbidden, NotFound, NotServed, Sightings
from service.kubernetes.leases import Lease
from service.masking import mask_text
from service.settings import Settings
from service.watching.assignment import Assignment, Tally
from service.watching.balance import Load
from service.watching.clusters import cluster_of
from service.watching.collectors import Recognise
from service.watching.confirmed import ConfirmedCluster
from service.watching.enabling import NotEnabled, first_enabled
from service.watching.namespace_marks import NamespaceMarks
from service.watching.run import SourceRun
from service.watching.shares import Share

log = structlog.get_logger(__name__)

_SPARE: Final = 0.9
"""The part of the promised time that the Lease itself may use; the rest is for a busy replica."""
_LOOKS: Final = 8
"""How often a Lease of another is looked at while it lasts."""


@dataclass(slots=True)
class Post:
    """`problem` says what keeps the share from being watched, since when; empty where nothing does."""

    share: Share
    settings: Settings
    installation: Installation
    recognise: Recognise
    load: Load
    holder: str
    sightings: Sightings | None = None
    held: bool = False
    problem: str = ""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    tally: Tally = field(default_factory=Tally)
    _run: SourceRun | None = None
    _handed_over: bool = False

    @property
    def cluster(self) -> str:
        return cluster_of(self.settings, self.share.source)

    async def run(self, cluster: ConfirmedCluster, uid: str, namespaces: NamespaceMarks) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._turn(cluster, uid, namespaces)
                continue
            except (ClusterError, NotEnabled) as error:
                self._trouble(str(error))
            except Exception as error:
                # One share's trouble never stops the others.
                log.exception("a source failed and is begun anew", source=self.share.source, share=self.share.part)
                self._trouble(mask_text(f"{type(error).__name__}: {error}"))
            await asyncio.sleep(self.settings.watch.retry.total_seconds() * random.uniform(0.8, 1.0))

    @property
    def trouble(self) -> str:
        """What is wrong with it at the moment, found here or by the one who watches."""
        return self.problem or (self._run.problem if self._run is not None else "")

    async def _turn(self, cluster: ConfirmedCluster, uid: str, namespaces: NamespaceMarks) -> None:
        """Wait for the Lease, and watch for as long as we have it."""
        watch = self.settings.watch
        await cluster.confirm()
        enabled = await self._enabled(cluster, uid)
        counter = LeaseCounter(self.installation, cluster, uid, watch.namespace, self.share.lease)
        lasts = watch.lease * _SPARE
        lease = Lease(cluster, watch.namespace, self.share.lease, self.holder, lasts, counter=counter)
        if self._handed_over:
            # Long enough for another who looks at it now and then.
            await asyncio.sleep(watch.lease.total_seconds() / 3)
        await self._acquire(lease)
        self.held, self.load.held = True, self.load.held + 1
        try:
            # A moment and a Lease of another cluster would be worth nothing.
            await cluster.confirm()
            self._run = SourceRun(self._assigned(cluster, uid, enabled, lease, namespaces))
            self._handed_over = await _while_held(lease, self._run, self.load)
        finally:
            self._run = None
            self.held, self.load.held = False, self.load.held - 1
            await lease.release()

    async def _enabled(self, cluster: ConfirmedCluster, uid: str) -> datetime:
        """While the feature of its collector is off a source is not enabled, so that moment is not kept."""
        source = self.share.source
        if not self.settings.features.on(traits_of(self.settings.sources[source].collector).feature):
            return await cluster.server_time()
        moments = Moments(self.installation)
        copy = await moments.of(uid, source)
        enabled = await first_enabled(cluster, self.settings.watch.namespace, source, copy=copy)
        await moments.keep(uid, source, enabled)
        return enabled

    def _assigned(
        self, cluster: ConfirmedCluster, uid: str, enabled: datetime, lease: Lease, namespaces: NamespaceMarks
    ) -> Assignment:
        return Assignment(
            name=self.share.source,
            settings=self.settings.sources[self.share.source],
            cluster=cluster,
            cluster_uid=uid,
            installation=self.installation,
            recognise=self.recognise,
            enabled_at=int(enabled.timestamp() * 1000),
            share=self.share.includes,
            may_act=lambda: lease.held,
            part=self.share.label,
            namespaces=namespaces,
            sightings=self.sightings,
            witness=Witness(self.installation, cluster, uid, self.settings.watch.namespace, (self.share.lease,)),
            # One for all turns: counts that are shown never go back.
            tally=self.tally,
        )

    async def _acquire(self, lease: Lease) -> None:
        every = self.settings.watch.lease.total_seconds() * _SPARE / _LOOKS
        while True:
            try:
                taken = await lease.try_acquire()
                self._well()
                if taken and self._handed_over:
                    self.load.nobody_came()
                # What another holds is watched as well as what we hold.
                self._handed_over = False
                if taken:
                    return
            except (Forbidden, NotFound, NotServed):
                raise
            except ClusterError as error:
                self._trouble(str(error))
            await asyncio.sleep(every * random.uniform(0.8, 1.0))

    def _well(self) -> None:
        if self.problem:
            log.info("source well again", source=self.share.source, share=self.share.part)
            self.problem, self.since = "", datetime.now(UTC)

    def _trouble(self, why: str) -> None:
        if why != self.problem:
            log.warning("source not watched", source=self.share.source, share=self.share.part, why=why)
            self.problem, self.since = why, datetime.now(UTC)


async def _while_held(lease: Lease, run: SourceRun, load: Load) -> bool:
    """Both together: who loses the Lease stops watching at once, and who can't watch must not keep the Lease.
    True where another replica shall have it."""
    keeping = asyncio.ensure_future(lease.keep())
    watching = asyncio.ensure_future(run.run())
    leaving = asyncio.ensure_future(load.too_many())
    tasks = (keeping, watching, leaving)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        return leaving.done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
