"""Accepting that a cluster was restored from a backup: from now on its witness counts above both values.
Leases first, then what Redis keeps of them, then the word itself: whoever stops in between begins anew."""

from typing import Final, NamedTuple

from service.contract import VERSION
from service.contract.names import WITNESS, sweep_lease
from service.contract.traits import traits_of
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.lease_witness import disagreement, value_of
from service.engine.witnesses import Noted, Witnesses
from service.kubernetes import LEASES, Cluster, Conflict, NotFound
from service.settings import Settings
from service.watching.clusters import cluster_of
from service.watching.listing import is_version
from service.watching.shares import shares_of

_TRIES: Final = 10


class Changing(Exception):
    """Somebody else changes the same all the time, or has just accepted it; nothing is lost by trying again."""


class Standing(NamedTuple):
    """How a cluster stands: `why` it seems to be restored, empty where it does not, and its record as it is stored."""

    why: str
    record: str


async def standing(installation: Installation, cluster: Cluster, uid: str) -> Standing:
    """Also where nobody has noticed yet. Raises ClusterError."""
    settings = installation.settings
    look = await Witnesses(installation).look(uid, leases_of(settings, cluster.name))
    why = look.restored
    for name, one in look.noted.items():
        namespace, _, lease = name.partition("/")
        why = why or disagreement(name, one, await cluster.get(LEASES, namespace, lease, metadata_only=True))
    return Standing(why, look.raw)


async def accept(installation: Installation, cluster: Cluster, uid: str, record: str, who: str) -> None:
    """`record` is that of `standing`, which a person has seen. Raises Changing and ClusterError."""
    witnesses, settings = Witnesses(installation), installation.settings
    look = await witnesses.look(uid, leases_of(settings, cluster.name))
    for name, noted in look.noted.items():
        await witnesses.replace(uid, name, await _raised(cluster, name, noted))
    sources = [Inventory(installation, source) for source in sources_of(settings, cluster.name)]
    for source in sources:
        # They are of the time that was undone: the next list would be compared with them once more.
        await source.clear(*(field for field in await source.facts() if is_version(field)))
    if not await witnesses.accept(uid, record, who):
        raise Changing("what is known of the cluster has changed meanwhile; look again and repeat it")
    for source in sources:
        await source.accept_restore()


def sources_of(settings: Settings, cluster: str) -> list[str]:
    return [source for source in settings.sources if cluster_of(settings, source) == cluster]


def leases_of(settings: Settings, cluster: str) -> list[str]:
    """Those of the sources that are declared there, as NAMESPACE/NAME. Nobody with these settings reads others."""
    found = [share.lease for name in sources_of(settings, cluster) for share in shares_of(name, settings.sources[name])]
    swept = (name for name in sources_of(settings, cluster) if traits_of(settings.sources[name].collector).swept)
    return [f"{settings.watch.namespace}/{lease}" for lease in (*found, *map(sweep_lease, swept))]


async def _raised(cluster: Cluster, name: str, noted: Noted | None) -> Noted | None:
    """The Lease above both values, None for one that is not there; whoever holds it may renew it meanwhile."""
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
        return Noted(v=VERSION, value=value_of(written), uid=written.uid)
    raise Changing(f"Lease {name} is changed by others all the time; repeat it")
