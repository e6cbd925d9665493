"""Holders of the Leases of sources, read from their clusters with a short timeout.
They only supplement `knell sources list`: a cluster that does not answer is reported as unknown."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from service.cli import output
from service.kubernetes import ClusterError, KubernetesClient
from service.kubernetes.objects import LEASES
from service.settings import Settings
from service.watching.cluster_identity import cluster_of, connect_to
from service.watching.shares import shares_of
from service.watching.uninstall import HeldLease, recently_renewed

PATIENCE: Final = timedelta(seconds=2)


class _LeaseHolderSpec(msgspec.Struct, frozen=True):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    renewed: datetime | None = msgspec.field(default=None, name="renewTime")


class _HeldLeaseDocument(msgspec.Struct, frozen=True):
    spec: _LeaseHolderSpec = _LeaseHolderSpec()


class LeaseHolders(msgspec.Struct, frozen=True, kw_only=True):
    """Existing Leases of one source's shares; `unknown` says why they could not be read."""

    leases: list[HeldLease] = []
    unknown: str = ""


async def read_lease_holders(settings: Settings) -> dict[str, LeaseHolders]:
    """For every declared source; all clusters are read concurrently."""
    parts = await asyncio.gather(*(_of_cluster(settings, name) for name in settings.clusters))
    return {source: found for part in parts for source, found in part.items()}


async def _of_cluster(settings: Settings, name: str) -> dict[str, LeaseHolders]:
    sources = [source for source in settings.sources if cluster_of(settings, source) == name]
    if not sources:
        return {}
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()), connect_to(settings, name) as cluster:
            found = await asyncio.gather(*(_of_source(settings, cluster, source) for source in sources))
    except TimeoutError:
        return dict.fromkeys(
            sources, LeaseHolders(unknown=f"cluster {name} did not answer within {output.span(PATIENCE)}")
        )
    except ClusterError as error:
        return dict.fromkeys(sources, LeaseHolders(unknown=str(error)))
    return dict(zip(sources, found, strict=True))


async def _of_source(settings: Settings, cluster: KubernetesClient, source: str) -> LeaseHolders:
    leases: list[HeldLease] = []
    for share in shares_of(source, settings.sources[source]):
        try:
            live = await cluster.get(LEASES, settings.watch.namespace, share.lease)
            spec = _LeaseHolderSpec() if live is None else msgspec.json.decode(live.raw, type=_HeldLeaseDocument).spec
        except (ClusterError, msgspec.DecodeError) as error:
            return LeaseHolders(unknown=str(error))
        if live is not None:
            leases.append(HeldLease(name=share.lease, holder=spec.holder or "", renewed=spec.renewed))
    return LeaseHolders(leases=leases)


def holders_text(found: LeaseHolders | None, lasts: timedelta) -> str:
    """The current holders for a table, by the clock of this machine."""
    if found is None or found.unknown:
        return "not known"
    held = {lease.name for lease in recently_renewed(found.leases, lasts, datetime.now(UTC))}
    return ", ".join(dict.fromkeys(_holder_text(lease, held) for lease in found.leases)) or "none"


def _holder_text(lease: HeldLease, held: Iterable[str]) -> str:
    if lease.name in held:
        return lease.holder
    if not lease.holder or lease.renewed is None:
        return "none"
    return f"none ({lease.holder} until {output.span(datetime.now(UTC) - lease.renewed)} ago)"
