"""Lifecycle of one cluster: connects to it, confirms its identity, runs its share Leases and its Namespace watch, and
disconnects at once when another cluster answers. An unreachable cluster is retried for ever; the others go on."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from service.engine.lease_counters import LeaseCounterStore, RestoreRecord
from service.kubernetes import ClusterError
from service.masking import mask_text
from service.settings import Settings
from service.watching.cluster_identity import ClusterIdentities, ConfirmedClient, WrongCluster, connect_to
from service.watching.namespace_watch import NamespaceWatch
from service.watching.share_lease import ShareLease

log = structlog.get_logger(__name__)

IDENTITY_CHECK: Final = timedelta(seconds=10)
"""How often the identity of a cluster is checked."""
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 10.0


class ClusterWatch:
    def __init__(
        self,
        name: str,
        settings: Settings,
        identities: ClusterIdentities,
        lease_counters: LeaseCounterStore,
        share_leases: Sequence[ShareLease],
    ) -> None:
        self.name, self.share_leases = name, share_leases
        self._lease_counters = lease_counters
        self.restored: RestoreRecord | None = None
        """What Redis says of a restore from a backup; None if there was none."""
        self.uid = ""
        self.refused = False
        """Whether it is reachable and the wrong one."""
        self.problem = "it has not answered yet"
        self.since = datetime.now(UTC)
        self._settings, self._identities = settings, identities

    @property
    def up(self) -> bool:
        return not self.problem

    async def run(self) -> None:
        """Until cancelled."""
        wait = _FIRST_WAIT
        while True:
            try:
                await self._watch_cluster()
            except* WrongCluster as errors:
                self._set_down(str(_first(errors)), refused=True)
                wait = self._settings.watch.retry.total_seconds()
            except* ClusterError as errors:
                wait = min(wait * 2, _LONGEST_WAIT) if not self.up else _FIRST_WAIT
                self._set_down(str(_first(errors)))
            except* Exception as errors:
                # An unforeseen error stays with this cluster: it is shown, and the other clusters go on.
                log.exception("cluster failed, connecting again", cluster=self.name)
                self._set_down(mask_text(f"{type(_first(errors)).__name__}: {_first(errors)}"))
                wait = self._settings.watch.retry.total_seconds()
            await asyncio.sleep(wait)

    async def _watch_cluster(self) -> None:
        async with connect_to(self._settings, self.name) as cluster:
            uid = await cluster.identity()
            await self._identities.confirm(self.name, uid)
            self._set_up(uid)
            confirmed = ConfirmedClient(cluster, uid)
            namespaces = NamespaceWatch(confirmed, self._settings.watch)
            async with contextlib.aclosing(confirmed), asyncio.TaskGroup() as group:
                group.create_task(self._check_identity(confirmed))
                group.create_task(namespaces.run())
                for share_lease in self.share_leases:
                    group.create_task(share_lease.run(confirmed, uid, namespaces))

    async def _check_identity(self, cluster: ConfirmedClient) -> None:
        """Periodically, and at once when a request was answered by another cluster."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDENTITY_CHECK.total_seconds()):
                    await cluster.wrong.wait()
            try:
                await cluster.confirm()
            except WrongCluster:
                raise
            except ClusterError as error:
                # The share Leases retry by themselves: a short outage costs no Lease and no list.
                self._set_down(str(error))
                continue
            cluster.wrong.clear()
            await self._identities.confirm(self.name, cluster.uid)
            self.restored = (await self._lease_counters.restored_clusters()).get(cluster.uid)
            self._set_up(cluster.uid)

    def _set_up(self, uid: str) -> None:
        if not self.up or uid != self.uid:
            log.info("cluster reached", cluster=self.name, uid=uid)
            self.since = datetime.now(UTC)
        self.uid, self.problem, self.refused = uid, "", False

    def _set_down(self, why: str, *, refused: bool = False) -> None:
        if self.up or refused != self.refused or why != self.problem:
            log.error("cluster refused" if refused else "cluster unreachable, retrying", cluster=self.name, why=why)
        if self.up:
            self.since = datetime.now(UTC)
        self.problem, self.refused = why, refused


def _first(errors: BaseExceptionGroup[Exception]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
