"""Detection of clusters that were restored from a backup, by a counter on our Leases (annotation knell.dev/witness).

The counter grows with every renewal, in the cluster first and in Redis afterwards. If a Lease is behind Redis, missing
or has another uid, the absence of objects in the cluster proves nothing until an operator accepts the restore.
"""

from typing import Final

import structlog
from redis.exceptions import RedisError

from service.contract.names import WITNESS
from service.engine.installation import Installation
from service.engine.lease_counters import LeaseCounterStore, StoredCounter, restore_reason
from service.kubernetes import LEASES, KubeObject, KubernetesClient, Unreadable

log = structlog.get_logger(__name__)

_DIGITS: Final = 15
"""More than any counter needs, and few enough to be exact in Lua."""
_TRIES: Final = 3


def value_of(live: KubeObject) -> int:
    """The counter on a Lease, 0 where it has none or an invalid one."""
    value = live.annotations.get(WITNESS, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= _DIGITS else 0


class RestoreDetector:
    """Compares `leases` of one cluster, all in one namespace, with Redis. Leases without a value in Redis are not
    read."""

    def __init__(
        self, installation: Installation, cluster: KubernetesClient, uid: str, namespace: str, leases: tuple[str, ...]
    ) -> None:
        self._counters, self._cluster, self._uid = LeaseCounterStore(installation), cluster, uid
        self._namespace, self._leases = namespace, leases
        self._names = [f"{namespace}/{lease}" for lease in leases]

    async def check(self) -> str:
        """Why objects that were found missing before this call do not count as deleted, empty where the Leases agree
        with Redis. Raises ClusterError."""
        why = ""
        for _ in range(_TRIES):
            # Redis first: it follows the cluster, so a Lease that is read later can't be behind it without a restore.
            stored = await self._counters.read(self._uid, self._names)
            if stored.reason:
                return restore_reason(self._cluster.name, stored.reason)
            why = await self._disagreement(stored.counters)
            if not why or await self._mark_restored(stored.record, why):
                break
        return restore_reason(self._cluster.name, why) if why else ""

    async def known_reason(self) -> str:
        """The stored reason, without reading from the cluster."""
        return (await self._counters.read(self._uid)).reason

    async def stored_record(self) -> str:
        """The stored record of the cluster, to be read before the evidence that is passed to `mark_restored`."""
        return (await self._counters.read(self._uid)).record

    async def mark_restored(self, seen: str, why: str) -> str:
        """Stores a reason other than a Lease. Returns why absence does not count."""
        await self._mark_restored(seen, why)
        return restore_reason(self._cluster.name, why)

    async def _mark_restored(self, seen: str, why: str) -> bool:
        kept = await self._counters.mark_restored(self._uid, seen, why)
        if kept:
            reason = restore_reason(self._cluster.name, why)
            log.error("cluster seems to be restored from a backup", cluster=self._cluster.name, why=reason)
        return kept

    async def _disagreement(self, noted: dict[str, StoredCounter | None]) -> str:
        for name, lease in zip(self._names, self._leases, strict=True):
            if name not in noted:
                continue
            live = await self._cluster.get(LEASES, self._namespace, lease, metadata_only=True)
            if why := disagreement(name, noted[name], live):
                # Checked last: the Lease of another cluster says nothing about this one.
                if (found := await self._cluster.identity()) != self._uid:
                    raise Unreadable(f"cluster {self._cluster.name} had uid {self._uid}, and {found} answers now")
                return why
        return ""


def disagreement(name: str, noted: StoredCounter | None, live: KubeObject | None) -> str:
    """How a Lease differs from Redis, empty where it does not."""
    if noted is None:
        return f"what Redis keeps of Lease {name} can't be read"
    if live is None:
        return f"Lease {name} is missing: it was deleted, or the cluster was restored from a backup older than that"
    if live.uid != noted.uid:
        return (
            f"Lease {name} is another one (uid {live.uid}, before {noted.uid}): it was deleted and made anew, or the "
            f"cluster was restored from a backup older than that"
        )
    if value_of(live) < noted.value:
        return (
            f"the cluster was restored from a backup: the counter {WITNESS} of Lease {name} is at "
            f"{live.annotations.get(WITNESS, 'nothing')}, and was at {noted.value}"
        )
    return ""


class LeaseCounter:
    """The counter of one Lease, for its holder: incremented with each renewal, except where the Lease is behind
    Redis."""

    def __init__(
        self, installation: Installation, cluster: KubernetesClient, uid: str, namespace: str, lease: str
    ) -> None:
        self._counters = LeaseCounterStore(installation)
        self._detector = RestoreDetector(installation, cluster, uid, namespace, (lease,))
        self._uid, self._name = uid, f"{namespace}/{lease}"
        self._differs = False

    async def next_annotations(self, found: KubeObject | None) -> dict[str, str]:
        """The annotations for the next write of the Lease: none where the counter must not change."""
        try:
            stored = await self._counters.read(self._uid, [self._name])
        except RedisError as error:
            log.warning("lease counter not compared, and left unchanged", lease=self._name, error=str(error))
            return {}
        known = stored.counters.get(self._name)
        self._differs = self._name in stored.counters and bool(disagreement(self._name, known, found))
        if self._differs:
            return {}
        return {WITNESS: str(1 + (value_of(found) if found is not None else 0))}

    async def written(self, live: KubeObject) -> None:
        """Called after the API server has confirmed a write. A difference is checked again with fresh reads, because
        the Lease may have been read from a cache."""
        try:
            if self._differs:
                await self._detector.check()
            elif value := value_of(live):
                await self._counters.save(self._uid, self._name, live.uid, value)
        except RedisError as error:
            log.warning("lease counter not written to Redis", lease=self._name, error=str(error))
