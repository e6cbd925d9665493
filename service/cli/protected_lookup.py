"""Lookup of the protected object that KIND/NAME on the command line means, or of a Namespace, in one cluster.
KIND may be any protected resource that the cluster serves, not only those of sources."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import click

from service.admission.judgement import JudgedObject
from service.admission.protected_discovery import ProtectedDiscovery, ServedProtectedResource, discover_protected
from service.admission.protected_resources import ProtectedResources
from service.cli import output, session
from service.cli.addresses import Address
from service.cli.cluster_clients import open_cluster
from service.cli.role import chosen_cluster
from service.contract.resource_names import fits_group, fits_kind, short_kind
from service.kubernetes import NAMESPACES, KubeObject, KubernetesClient, ServedResource
from service.settings import Settings

_NAMESPACE_WORDS: Final = ("namespace", "namespaces", "ns")
_MAX_NAMED: Final = 12


@dataclass(frozen=True, slots=True)
class ProtectedTarget:
    """The object, and the services whose annotations protect it; a Namespace has none."""

    cluster: KubernetesClient
    served: ServedResource
    services: tuple[str, ...]
    live: KubeObject

    @property
    def is_namespace(self) -> bool:
        return self.served is NAMESPACES

    @property
    def judged(self) -> JudgedObject:
        one, served = self.live, self.served
        return JudgedObject(served.resource, served.kind, one.namespace, one.name, one.annotations)

    @property
    def words(self) -> str:
        """As arguments of a command."""
        if self.is_namespace:
            return f"namespace/{self.live.name}"
        inside = f" -n {self.live.namespace}" if self.live.namespace else ""
        return f"{short_kind(self.served.resource)}/{self.live.name}{inside}"

    def __str__(self) -> str:
        return str(self.judged)


def protected_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument KIND/NAME or namespace/NAME with its options."""
    where = "Which cluster.  [default: protection.cluster, or the only one]"
    command = click.option("--cluster", metavar="NAME", help=where)(command)
    command = click.option("--namespace", "-n", default="default", show_default=True, help="Namespace of the object.")(
        command
    )
    return click.argument("what", metavar="KIND/NAME|namespace/NAME")(command)


def protection_cluster(settings: Settings, name: str | None) -> str:
    """The named cluster, that of the settings, or the only one."""
    return chosen_cluster(settings, name or settings.protection.cluster)


@asynccontextmanager
async def resolve_protected(
    settings: Settings, what: str, namespace: str, cluster: str | None
) -> AsyncIterator[ProtectedTarget]:
    """Raises CommandError if there is no such object, InvalidUsage if KIND is unknown, not protected or ambiguous."""
    named = Address(what).object
    if named is None:
        raise session.InvalidUsage(
            f"{output.clean(what)!r} is no KIND/NAME; write it like bucket/prod, or namespace/shop"
        )
    kind, name = named
    chosen = protection_cluster(settings, cluster)
    async with open_cluster(settings, chosen) as (client, _):
        found = ServedProtectedResource(NAMESPACES, ())
        if kind.casefold() not in _NAMESPACE_WORDS:
            found = await _find_resource(client, ProtectedResources(settings, chosen), kind)
        served, services = found
        live = await client.get(served, namespace if served.namespaced else "", name, metadata_only=True)
        if live is None:
            inside = f" in namespace {namespace}" if served.namespaced else ""
            raise session.CommandError(
                f"there is no {served.kind} {name}{inside} of cluster {chosen}"
                + ("; say which namespace by -n" if served.namespaced else "")
            )
        yield ProtectedTarget(client, served, services, live)


async def _find_resource(
    cluster: KubernetesClient, protected: ProtectedResources, kind: str
) -> ServedProtectedResource:
    group = kind.casefold().partition(".")[2]
    found = await discover_protected(cluster, protected, lambda known: fits_group(group, known))
    fitting = [one for one in found.resources if _fits(kind, one)]
    if len(fitting) > 1:
        meant = ", ".join(one.served.resource for one in fitting)
        raise session.InvalidUsage(f"{output.clean(kind)!r} could be {meant}; write plural.group")
    if not fitting:
        raise _unknown_kind(cluster, protected, kind, found)
    return fitting[0]


def _fits(kind: str, one: ServedProtectedResource) -> bool:
    """By its plural, singular or Kind, with or without the group. A plural may be irregular, such as `data`."""
    word, _, group = kind.casefold().partition(".")
    named = word == one.served.kind.casefold() and fits_group(group, one.served.group)
    return named or fits_kind(kind, one.served.resource)


def _unknown_kind(
    cluster: KubernetesClient, protected: ProtectedResources, kind: str, found: ProtectedDiscovery
) -> session.CommandError:
    if found.unread:
        # It may be in one of these, so it can't be said that it is not protected.
        unread = "; ".join(f"{one.what}: {one.why}" for one in found.unread[:_MAX_NAMED])
        return session.CommandError(f"{output.clean(kind)!r} was not found, and this can't be read: {unread}")
    known = [one.served.resource for one in found.resources]
    more = f" and {len(known) - _MAX_NAMED} more" if len(known) > _MAX_NAMED else ""
    served = f" ({', '.join(known[:_MAX_NAMED])}{more})" if known else ""
    groups = ", ".join(("*.services.k8s.aws", *protected.groups))
    return session.InvalidUsage(
        f"{output.clean(kind)!r} is no protected resource that cluster {cluster.name} serves{served}. Protected are "
        f"the resources of sources and of the groups {groups}; protection.groups adds others"
    )
