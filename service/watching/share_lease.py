"""Lease of one share: this replica competes for it, watches the source while it holds it, and stops at once without it.
A problem of one share is shown and retried, and never stops the others."""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from service.engine.enabled_times import EnabledTimes
from service.engine.installation import Installation
from service.engine.restore_detection import LeaseCounter, RestoreDetector
from service.kubernetes import ClusterError, Forbidden, NotFound, NotServed, RecentObjects
from service.kubernetes.leases import Lease
from service.masking import mask_text
from service.settings import Settings
from service.sources.declaration import Source
from service.sources.registry import source_named
from service.watching.assignment import Assignment, SourceCounters
from service.watching.cluster_identity import ConfirmedClient, cluster_of
from service.watching.enabling_configmap import NotEnabled, first_enabled
from service.watching.namespace_watch import NamespaceWatch
from service.watching.shares import Share, ShareBalance
from service.watching.source_watch import SourceWatch

log = structlog.get_logger(__name__)

_SPARE: Final = 0.9
"""The part of `watch.lease` that the Lease itself may use; the rest is slack for a busy replica."""
_LEASE_CHECKS: Final = 8
"""How often the Lease of another replica is read during its duration."""


@dataclass(slots=True)
class ShareLease:
    """`problem` says why the share is not watched, and `since` when; it is empty if all is well."""

    share: Share
    settings: Settings
    installation: Installation
    balance: ShareBalance
    holder: str
    recent_objects: RecentObjects | None = None
    held: bool = False
    problem: str = ""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    counters: SourceCounters = field(default_factory=SourceCounters)
    _run: SourceWatch | None = None
    _handed_over: bool = False

    @property
    def cluster(self) -> str:
        return cluster_of(self.settings, self.share.source)

    @property
    def declaration(self) -> Source:
        return source_named(self.settings.sources[self.share.source].collector)

    async def run(self, cluster: ConfirmedClient, uid: str, namespaces: NamespaceWatch) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._acquire_and_watch(cluster, uid, namespaces)
                continue
            except (ClusterError, NotEnabled) as error:
                self._set_problem(str(error))
            except Exception as error:
                # A problem of one share never stops the others.
                log.exception("source failed, starting it again", source=self.share.source, share=self.share.part)
                self._set_problem(mask_text(f"{type(error).__name__}: {error}"))
            await asyncio.sleep(self.settings.watch.retry.total_seconds() * random.uniform(0.8, 1.0))

    @property
    def current_problem(self) -> str:
        """Of the Lease or of the running watch."""
        return self.problem or (self._run.problem if self._run is not None else "")

    async def _acquire_and_watch(self, cluster: ConfirmedClient, uid: str, namespaces: NamespaceWatch) -> None:
        """Waits for the Lease, and watches while it is held."""
        watch = self.settings.watch
        await cluster.confirm()
        enabled = await self._first_enabled(cluster, uid)
        counter = LeaseCounter(self.installation, cluster, uid, watch.namespace, self.share.lease)
        lasts = watch.lease * _SPARE
        lease = Lease(cluster, watch.namespace, self.share.lease, self.holder, lasts, counter=counter)
        if self._handed_over:
            # Long enough for another replica to read the Lease and take it.
            await asyncio.sleep(watch.lease.total_seconds() / 3)
        await self._acquire(lease)
        self.held, self.balance.held = True, self.balance.held + 1
        try:
            # The Lease and the time of first enabling may have come from another cluster.
            await cluster.confirm()
            self._run = SourceWatch(self._assignment(cluster, uid, enabled, lease, namespaces))
            self._handed_over = await _while_held(lease, self._run, self.balance)
        finally:
            self._run = None
            self.held, self.balance.held = False, self.balance.held - 1
            await lease.release()

    async def _first_enabled(self, cluster: ConfirmedClient, uid: str) -> datetime:
        """While the feature of its collector is off a source is not enabled, so the time is not stored."""
        source = self.share.source
        if not self.settings.features.on(self.declaration.feature):
            return await cluster.server_time()
        moments = EnabledTimes(self.installation)
        copy = await moments.get(uid, source)
        enabled = await first_enabled(cluster, self.settings.watch.namespace, source, copy=copy)
        await moments.add(uid, source, enabled)
        return enabled

    def _assignment(
        self, cluster: ConfirmedClient, uid: str, enabled: datetime, lease: Lease, namespaces: NamespaceWatch
    ) -> Assignment:
        return Assignment(
            name=self.share.source,
            settings=self.settings.sources[self.share.source],
            cluster=cluster,
            cluster_uid=uid,
            installation=self.installation,
            recognise=self.declaration.recognise,
            enabled_at=int(enabled.timestamp() * 1000),
            share=self.share.includes,
            lease_held=lambda: lease.held,
            part=self.share.label,
            namespaces=namespaces,
            recent_objects=self.recent_objects,
            restore_detector=RestoreDetector(
                self.installation, cluster, uid, self.settings.watch.namespace, (self.share.lease,)
            ),
            # The same object every time: metrics must never decrease.
            counters=self.counters,
        )

    async def _acquire(self, lease: Lease) -> None:
        every = self.settings.watch.lease.total_seconds() * _SPARE / _LEASE_CHECKS
        while True:
            try:
                taken = await lease.try_acquire()
                self._clear_problem()
                if taken and self._handed_over:
                    self.balance.handover_declined()
                # A share that another replica holds is watched, too.
                self._handed_over = False
                if taken:
                    return
            except (Forbidden, NotFound, NotServed):
                raise
            except ClusterError as error:
                self._set_problem(str(error))
            await asyncio.sleep(every * random.uniform(0.8, 1.0))

    def _clear_problem(self) -> None:
        if self.problem:
            log.info("source recovered", source=self.share.source, share=self.share.part)
            self.problem, self.since = "", datetime.now(UTC)

    def _set_problem(self, why: str) -> None:
        if why != self.problem:
            log.warning("source not watched", source=self.share.source, share=self.share.part, why=why)
            self.problem, self.since = why, datetime.now(UTC)


async def _while_held(lease: Lease, run: SourceWatch, balance: ShareBalance) -> bool:
    """Renews the Lease and watches: a lost Lease ends the watch at once, and a failed watch releases the Lease. True if
    the share is to be handed over to another replica."""
    keeping = asyncio.ensure_future(lease.keep())
    watching = asyncio.ensure_future(run.run())
    leaving = asyncio.ensure_future(balance.wait_for_excess())
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
