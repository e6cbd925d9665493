"""Where our finalizers may be: resources of declared sources, of sources that only Redis still knows, and named ones.
A source that was removed from the settings leaves its finalizers behind, so the settings alone don't tell."""

from collections.abc import Iterable
from dataclasses import dataclass

import click
from redis.exceptions import RedisError

from service.cli import objects, output, session
from service.engine.calls import ServerAway
from service.engine.installation import Installation
from service.engine.views.sources import Watched, watched_before
from service.policy.services import service_of
from service.settings import Settings
from service.settings.sources import resource_fault
from service.watching.clusters import Identities, cluster_of
from service.watching.former import EVERYWHERE


@dataclass(frozen=True, slots=True)
class Places:
    """`named` are the resources that were given by hand, `uids` what each name of a cluster stands for."""

    settings: Settings
    named: tuple[str, ...]
    watched: list[Watched]
    uids: dict[str, str]

    def clusters(self) -> list[str]:
        """Those in which something of ours may be."""
        return [name for name in self.settings.clusters if self.sources(name) or self.named]

    def sources(self, cluster: str, uid: str = "") -> set[str]:
        """Names of the sources in a cluster, also of those that are not declared any more."""
        uid = uid or self.uids.get(cluster, "")
        declared = {name for name in self.settings.sources if cluster_of(self.settings, name) == cluster}
        return declared | {one.source for one in self.watched if uid and one.cluster_uid == uid}

    def resources(self, cluster: str, uid: str) -> list[str]:
        declared = self.settings.sources.items()
        found = {source.resource for name, source in declared if cluster_of(self.settings, name) == cluster}
        # Also of a declared one: it may have been about another resource before.
        found |= {one.resource for one in self.watched if one.cluster_uid == uid}
        return sorted(found | set(self.named))

    def namespaces(self, cluster: str, uid: str, resource: str) -> set[str]:
        """Outside of these nothing of the resource can have been marked; empty where it may have been anywhere."""
        declared = {
            name: set(source.namespaces)
            for name, source in self.settings.sources.items()
            if source.resource == resource and cluster_of(self.settings, name) == cluster
        }
        before = [one for one in self.watched if one.cluster_uid == uid and one.resource == resource]
        unknown = [one for one in before if not one.namespaces and one.source not in declared]
        found = [*declared.values(), *(set(one.namespaces) for one in before if one.namespaces)]
        if unknown or resource in self.named or any(not one or EVERYWHERE in one for one in found):
            return set()
        return set().union(*found)

    def services(self, cluster: str, resource: str) -> set[str]:
        """By whose prefixes objects of the resource may be protected."""
        group = resource.partition(".")[2]
        declared = {
            service_of(group, source.service)
            for name, source in self.settings.sources.items()
            if source.resource == resource and cluster_of(self.settings, name) == cluster
        }
        return declared or {service_of(group, "")}


def checked(named: Iterable[str]) -> tuple[str, ...]:
    """The resources that were given by hand; Misuse where one can't be a resource."""
    for one in named:
        if fault := resource_fault(one):
            raise session.Misuse(f"--resource: {output.clean(fault)}")
    return tuple(named)


async def places(settings: Settings, named: tuple[str, ...]) -> Places:
    """Goes on without Redis, and says what is not known then."""
    uids = {name: cluster.uid for name, cluster in settings.clusters.items() if cluster.uid is not None}
    installation = Installation(settings, name="knell-cli", patience=objects.PATIENCE)
    try:
        await installation.connections.client.execute_command("PING")
        remembered = await Identities(settings, installation).remembered()
        return Places(settings, named, await watched_before(installation), {**remembered, **uids})
    except (RedisError, OSError, ServerAway):
        click.echo(
            "Redis does not answer: which resources were watched by sources that the settings no longer declare is "
            "not known; name them by --resource.",
            err=True,
        )
        return Places(settings, named, [], uids)
    finally:
        await installation.aclose()
