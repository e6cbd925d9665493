"""Resources and namespaces that may have our finalizer: of declared sources, of sources in Redis, and given by option.
A source that was removed from the settings leaves its finalizers behind, so the settings alone are not enough."""

from collections.abc import Iterable
from dataclasses import dataclass

import click
from redis.exceptions import RedisError

from service.cli import cluster_clients, output, session
from service.engine.calls import ServerUnavailable
from service.engine.installation import Installation
from service.engine.views.sources import WatchedResource, watched_before
from service.policy.services import service_of
from service.settings import Settings
from service.settings.sources import resource_fault
from service.watching.cluster_identity import ClusterIdentities, cluster_of
from service.watching.finalizer_mode import ALL_NAMESPACES


@dataclass(frozen=True, slots=True)
class FinalizerLocations:
    """`named` are the resources of --resource, `uids` the uid of each cluster by name."""

    settings: Settings
    named: tuple[str, ...]
    watched: list[WatchedResource]
    uids: dict[str, str]

    def clusters(self) -> list[str]:
        """Clusters that may have finalizers of ours."""
        return [name for name in self.settings.clusters if self.sources(name) or self.named]

    def sources(self, cluster: str, uid: str = "") -> set[str]:
        """Sources in a cluster, including those that are no longer declared."""
        uid = uid or self.uids.get(cluster, "")
        declared = {name for name in self.settings.sources if cluster_of(self.settings, name) == cluster}
        return declared | {one.source for one in self.watched if uid and one.cluster_uid == uid}

    def resources(self, cluster: str, uid: str) -> list[str]:
        declared = self.settings.sources.items()
        found = {source.resource for name, source in declared if cluster_of(self.settings, name) == cluster}
        # Also for declared sources: they may have had another resource before.
        found |= {one.resource for one in self.watched if one.cluster_uid == uid}
        return sorted(found | set(self.named))

    def namespaces(self, cluster: str, uid: str, resource: str) -> set[str]:
        """The only namespaces in which objects of the resource may have the finalizer; empty means all."""
        declared = {
            name: set(source.namespaces)
            for name, source in self.settings.sources.items()
            if source.resource == resource and cluster_of(self.settings, name) == cluster
        }
        before = [one for one in self.watched if one.cluster_uid == uid and one.resource == resource]
        unknown = [one for one in before if not one.namespaces and one.source not in declared]
        found = [*declared.values(), *(set(one.namespaces) for one in before if one.namespaces)]
        if unknown or resource in self.named or any(not one or ALL_NAMESPACES in one for one in found):
            return set()
        return set().union(*found)

    def services(self, cluster: str, resource: str) -> set[str]:
        """Services whose annotation prefixes may protect objects of the resource."""
        group = resource.partition(".")[2]
        declared = {
            service_of(group, source.service)
            for name, source in self.settings.sources.items()
            if source.resource == resource and cluster_of(self.settings, name) == cluster
        }
        return declared or {service_of(group, "")}


def check_resources(named: Iterable[str]) -> tuple[str, ...]:
    """Raises InvalidUsage for an invalid --resource."""
    for one in named:
        if fault := resource_fault(one):
            raise session.InvalidUsage(f"--resource: {output.clean(fault)}")
    return tuple(named)


async def find_locations(settings: Settings, named: tuple[str, ...]) -> FinalizerLocations:
    """Without Redis the result has only the declared sources, and a warning is printed."""
    uids = {name: cluster.uid for name, cluster in settings.clusters.items() if cluster.uid is not None}
    installation = Installation(settings, name="knell-cli", patience=cluster_clients.PATIENCE)
    try:
        await installation.connections.client.execute_command("PING")
        remembered = await ClusterIdentities(settings, installation).remembered()
        return FinalizerLocations(settings, named, await watched_before(installation), {**remembered, **uids})
    except (RedisError, OSError, ServerUnavailable):
        click.echo(
            "Redis does not answer: which resources were watched by sources that the settings no longer declare is "
            "not known; name them by --resource.",
            err=True,
        )
        return FinalizerLocations(settings, named, [], uids)
    finally:
        await installation.aclose()
