"""Restore of a cluster from a backup: detection by the resource versions of lists, and acceptance by an operator, which
sets the counter of each Lease, in the cluster and in Redis, above the higher of the two. An acceptance that stops half-
way can be repeated."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from service.contract import VERSION
from service.contract.names import WITNESS, sweep_lease
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.lease_counters import LeaseCounterStore, StoredCounter
from service.engine.restore_detection import disagreement, value_of
from service.kubernetes import LEASES, Conflict, KubernetesClient, NotFound
from service.settings import Settings
from service.sources.registry import source_named
from service.watching.assignment import VERSION_FIELD
from service.watching.cluster_identity import cluster_of
from service.watching.shares import shares_of

_TRIES: Final = 10
LEAP: Final = 10_000_000
RATE: Final = 10_000
"""By how much a resource version may grow between two lists: LEAP, and RATE per second. etcd writes no faster, and a
restore adds 1,000,000,000 (`etcdutl snapshot restore --bump-revision 1000000000`)."""


class ConcurrentChange(Exception):
    """The same was changed or accepted in the meantime; it can be repeated safely."""


class RestoreState(NamedTuple):
    """`why` a cluster seems to be restored, empty if it does not, and its stored record."""

    why: str
    record: str


async def restore_state(installation: Installation, cluster: KubernetesClient, uid: str) -> RestoreState:
    """Also detects a restore that no process has noticed yet. Raises ClusterError."""
    settings = installation.settings
    stored = await LeaseCounterStore(installation).read(uid, leases_in_cluster(settings, cluster.name))
    why = stored.reason
    for name, one in stored.counters.items():
        namespace, _, lease = name.partition("/")
        why = why or disagreement(name, one, await cluster.get(LEASES, namespace, lease, metadata_only=True))
    return RestoreState(why, stored.record)


async def accept_restore(
    installation: Installation, cluster: KubernetesClient, uid: str, record: str, who: str
) -> None:
    """`record` is that of `restore_state`, which the operator has seen. Raises ConcurrentChange and ClusterError.

    First the Leases, then what Redis keeps of them, then the acceptance itself."""
    lease_counters, settings = LeaseCounterStore(installation), installation.settings
    stored = await lease_counters.read(uid, leases_in_cluster(settings, cluster.name))
    for name, noted in stored.counters.items():
        await lease_counters.replace(uid, name, await _raise_counter(cluster, name, noted))
    sources = [Inventory(installation, source) for source in sources_in_cluster(settings, cluster.name)]
    for source in sources:
        # They are from before the restore: the next list would be compared with them again.
        await source.clear_state(*(field for field in await source.state() if is_version_field(field)))
    if not await lease_counters.accept(uid, record, who):
        raise ConcurrentChange("what is known of the cluster has changed meanwhile; check it and repeat the command")
    for source in sources:
        await source.accept_restore()


def sources_in_cluster(settings: Settings, cluster: str) -> list[str]:
    return [source for source in settings.sources if cluster_of(settings, source) == cluster]


def leases_in_cluster(settings: Settings, cluster: str) -> list[str]:
    """Leases of the sources that are declared there, as NAMESPACE/NAME."""
    found = [
        share.lease
        for name in sources_in_cluster(settings, cluster)
        for share in shares_of(name, settings.sources[name])
    ]
    swept = (
        name for name in sources_in_cluster(settings, cluster) if source_named(settings.sources[name].collector).swept
    )
    return [f"{settings.watch.namespace}/{lease}" for lease in (*found, *map(sweep_lease, swept))]


async def _raise_counter(cluster: KubernetesClient, name: str, noted: StoredCounter | None) -> StoredCounter | None:
    """Sets the counter on the Lease above both values; None if there is no such Lease. Its holder may renew it
    meanwhile."""
    namespace, _, lease = name.partition("/")
    for _ in range(_TRIES):
        live = await cluster.get(LEASES, namespace, lease, metadata_only=True)
        if live is None:
            return None
        value = max(value_of(live), noted.value if noted is not None else 0) + 1
        known = {"uid": live.uid, "resourceVersion": live.resource_version}
        patch = {"metadata": {**known, "annotations": {WITNESS: str(value)}}}
        try:
            written = await cluster.patch(LEASES, namespace, lease, patch, metadata_only=True)
        except (Conflict, NotFound):
            continue
        return StoredCounter(v=VERSION, value=value_of(written), uid=written.uid)
    raise ConcurrentChange(f"Lease {name} is changed by others all the time; repeat the command")


# ---- detection


class RestoreDoubt(NamedTuple):
    """`why` is empty if there is no doubt; `restored` says that the whole cluster was restored."""

    why: str
    restored: bool = False


def restore_doubt(facts: Mapping[str, str], version: str, began: int) -> RestoreDoubt:
    """Why nothing is concluded from what is missing in a list of this version that began at this time; `facts` are the
    fields of the source's hash before the list."""
    before, label = _latest_version(facts)
    if before is None:
        return RestoreDoubt("")
    if not version.isdecimal():
        return RestoreDoubt(
            f"the list's resource version {version[:40]!r} can't be compared with the last one seen, {before}"
        )
    if int(version) < before:
        return RestoreDoubt(
            f"the list is of resource version {version}, older than the last one seen, {before}: "
            "the cluster was restored from a backup",
            restored=True,
        )
    if int(version) - before > _most_changes(facts.get(f"listed_at{label}", ""), began):
        return RestoreDoubt(
            f"the list is of resource version {version}, and the last one seen was {before}: so many changes can't "
            "have been made since, so that the cluster was restored from a backup",
            restored=True,
        )
    return RestoreDoubt("")


def _most_changes(listed: str, began: int) -> float:
    """How much the resource version may have grown since a list; infinite if that is not known."""
    return LEAP + RATE * max(0, began - int(listed)) / 1000 if listed.isdecimal() else math.inf


def is_version_field(field: str) -> bool:
    """Whether a field of a source's hash is the resource version of a list scope."""
    return field == VERSION_FIELD or field.startswith(f"{VERSION_FIELD}@")


def _latest_version(facts: Mapping[str, str]) -> tuple[int | None, str]:
    """The highest resource version of any list scope of the source, and the suffix of that scope's fields."""
    seen = [
        (int(value), field.removeprefix(VERSION_FIELD))
        for field, value in facts.items()
        if is_version_field(field) and value.isdecimal()
    ]
    return max(seen, default=(None, ""))
