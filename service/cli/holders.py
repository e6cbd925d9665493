"""Who holds the Leases of the sources, asked of their clusters in a moment, or not known.
It is an addition to a picture: a cluster that does not answer is waited for only shortly, and hides nothing else."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from service.cli import output
from service.kubernetes import Cluster, ClusterError
from service.kubernetes.objects import LEASES
from service.settings import Settings
from service.watching.clusters import cluster_of, reached
from service.watching.leaving import HeldLease, still_held
from service.watching.shares import shares_of

PATIENCE: Final = timedelta(seconds=2)


class _Spec(msgspec.Struct, frozen=True):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    renewed: datetime | None = msgspec.field(default=None, name="renewTime")


class _Lease(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class Holders(msgspec.Struct, frozen=True, kw_only=True):
    """The Leases of one source's shares that there are; `unknown` says why nobody can tell."""

    leases: list[HeldLease] = []
    unknown: str = ""


async def holders(settings: Settings) -> dict[str, Holders]:
    """For every declared source; all clusters are asked at once."""
    parts = await asyncio.gather(*(_of_cluster(settings, name) for name in settings.clusters))
    return {source: found for part in parts for source, found in part.items()}


async def _of_cluster(settings: Settings, name: str) -> dict[str, Holders]:
    sources = [source for source in settings.sources if cluster_of(settings, source) == name]
    if not sources:
        return {}
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()), reached(settings, name) as cluster:
            found = await asyncio.gather(*(_of_source(settings, cluster, source) for source in sources))
    except TimeoutError:
        return dict.fromkeys(sources, Holders(unknown=f"cluster {name} did not answer within {output.span(PATIENCE)}"))
    except ClusterError as error:
        return dict.fromkeys(sources, Holders(unknown=str(error)))
    return dict(zip(sources, found, strict=True))


async def _of_source(settings: Settings, cluster: Cluster, source: str) -> Holders:
    leases: list[HeldLease] = []
    for share in shares_of(source, settings.sources[source]):
        try:
            live = await cluster.get(LEASES, settings.watch.namespace, share.lease)
            spec = _Spec() if live is None else msgspec.json.decode(live.raw, type=_Lease).spec
        except (ClusterError, msgspec.DecodeError) as error:
            return Holders(unknown=str(error))
        if live is not None:
            leases.append(HeldLease(name=share.lease, holder=spec.holder or "", renewed=spec.renewed))
    return Holders(leases=leases)


def words(found: Holders | None, lasts: timedelta) -> str:
    """As a table shows it: who holds all or parts of it at the moment, by this machine's clock."""
    if found is None or found.unknown:
        return "not known"
    held = {lease.name for lease in still_held(found.leases, lasts, datetime.now(UTC))}
    return ", ".join(dict.fromkeys(_word(lease, held) for lease in found.leases)) or "nobody"


def _word(lease: HeldLease, held: Iterable[str]) -> str:
    if lease.name in held:
        return lease.holder
    if not lease.holder or lease.renewed is None:
        return "nobody"
    return f"nobody ({lease.holder} until {output.span(datetime.now(UTC) - lease.renewed)} ago)"
