"""Lookup of the object that KIND/NAME on the command line means, among the sources of the settings.
An ambiguous name is an error that lists the matches. A Cluster of Cluster API stands for its infrastructure object."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import click

from service.cli import output, session
from service.cli.addresses import Address
from service.cli.cluster_clients import open_cluster
from service.contract.resource_names import fits_kind
from service.kubernetes import KubeObject, KubernetesClient, NotServed, ServedResource
from service.policy.capi import CLUSTERS, NoInfrastructure, infrastructure_of
from service.policy.selectors import parse_selector
from service.settings import Settings, SourceSettings
from service.sources.registry import source_named
from service.watching.cluster_identity import cluster_of, connect_to


@dataclass(frozen=True, slots=True)
class ResolvedObject:
    """The object, and the source whose settings apply to it."""

    source: str
    settings: SourceSettings
    cluster: KubernetesClient
    uid: str
    served: ServedResource
    live: KubeObject

    def __str__(self) -> str:
        where = f" in namespace {self.live.namespace}" if self.live.namespace else ""
        return f"{self.served.resource}/{self.live.name}{where}"


def object_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument KIND/NAME with its options."""
    command = click.option("--cluster", metavar="NAME", help="Which cluster, where several have the kind.")(command)
    command = click.option("--namespace", "-n", default="default", show_default=True, help="Namespace of the object.")(
        command
    )
    return click.argument("what", metavar="KIND/NAME")(command)


@asynccontextmanager
async def resolve_object(
    settings: Settings, what: str, namespace: str, cluster: str | None
) -> AsyncIterator[ResolvedObject]:
    """Raises CommandError if there is no such object, InvalidUsage if KIND is unknown or ambiguous."""
    named = Address(what).object
    if named is None:
        raise session.InvalidUsage(f"{output.clean(what)!r} is no KIND/NAME; write it like nodeclaim/pool-1")
    kind, name = named
    if cluster is not None and cluster not in settings.clusters:
        raise session.InvalidUsage(
            f"{cluster!r} is no cluster of the settings ({', '.join(settings.clusters) or 'none'})"
        )
    if is_capi_cluster(settings, kind):
        *there, name = await follow_capi_cluster(settings, name, namespace, cluster)
        where = _ClusterResource(*there)
    else:
        where = await _find_resource(settings, kind, cluster)
    async with open_cluster(settings, where.cluster) as (reached_cluster, uid):
        served = await reached_cluster.discover(where.resource)
        live = await reached_cluster.get(served, namespace if served.namespaced else "", name)
        if live is None:
            inside = f" in namespace {namespace}" if served.namespaced else ""
            raise session.CommandError(
                f"there is no {served.kind} {name}{inside} of cluster {where.cluster}"
                + ("; say which namespace by -n" if served.namespaced else "")
            )
        source = _choose_source(settings, where, live)
        yield ResolvedObject(source, settings.sources[source], reached_cluster, uid, served, live)


@dataclass(frozen=True, slots=True, order=True)
class _ClusterResource:
    cluster: str
    resource: str


async def _find_resource(settings: Settings, kind: str, cluster: str | None) -> _ClusterResource:
    """The resource that `kind` means, by its plural or singular, else by its Kind."""
    places = sorted(
        {
            _ClusterResource(cluster_of(settings, name), source.resource)
            for name, source in settings.sources.items()
            if cluster in (None, cluster_of(settings, name))
        }
    )
    fitting = [place for place in places if fits_kind(kind, place.resource)]
    if not fitting:
        # The plural may be irregular, such as `data` of the Kind Datum.
        fitting = [place for place in places if kind.casefold() in await _served_names(settings, place)]
    if not fitting:
        known = ", ".join(sorted({place.resource for place in places})) or "none"
        raise session.InvalidUsage(f"no source watches {output.clean(kind)!r}; resources of sources: {known}")
    if len(fitting) > 1:
        meant = ", ".join(f"{place.resource} of cluster {place.cluster}" for place in fitting)
        raise session.InvalidUsage(f"{output.clean(kind)!r} could be {meant}; write plural.group, or say --cluster")
    return fitting[0]


async def _served_names(settings: Settings, place: _ClusterResource) -> tuple[str, ...]:
    async with connect_to(settings, place.cluster) as cluster:
        try:
            served = await cluster.discover(place.resource)
        except NotServed:
            return ()
    return (served.kind.casefold(), f"{served.kind}.{served.group}".casefold())


def _choose_source(settings: Settings, place: _ClusterResource, live: KubeObject) -> str:
    """Of the sources of the resource, the first whose scope includes the object; else the first."""
    names = [
        name
        for name, source in settings.sources.items()
        if source.resource == place.resource and cluster_of(settings, name) == place.cluster
    ]
    return next((name for name in names if _watches(settings.sources[name], live)), names[0])


def why_unwatched(source: str, settings: SourceSettings, live: KubeObject) -> str:
    """Why the source does not watch the object; empty if it does."""
    if settings.namespaces and live.namespace not in settings.namespaces:
        return f"source {source} is not about namespace {live.namespace} (namespaces: {', '.join(settings.namespaces)})"
    if not parse_selector(settings.selector).matches(live.labels):
        return f"its labels don't fit the selector of source {source}, {settings.selector!r}"
    return ""


def _watches(source: SourceSettings, live: KubeObject) -> bool:
    return not why_unwatched("", source, live)


# ---- Clusters of Cluster API


def is_capi_cluster(settings: Settings, kind: str) -> bool:
    """Whether `kind` means a Cluster of Cluster API. A source whose own resource is called clusters comes first."""
    known = {source.resource for source in settings.sources.values()}
    plural, _, group = CLUSTERS.partition(".")
    if kind.casefold() in (CLUSTERS, f"cluster.{group}"):
        meant = CLUSTERS not in known
    else:
        meant = kind.casefold() in (plural, "cluster") and not any(one.partition(".")[0] == plural for one in known)
    return meant and any(source_named(source.collector).capi for source in settings.sources.values())


async def follow_capi_cluster(
    settings: Settings, name: str, namespace: str, cluster: str | None
) -> tuple[str, str, str]:
    """Cluster, resource and name of the infrastructure object. Raises CommandError or InvalidUsage if there is none."""
    sources = settings.sources.items()
    capi = {cluster_of(settings, known) for known, source in sources if source_named(source.collector).capi}
    kinds = {kind: known for _, one in sources for kind, known in source_named(one.collector).capi_kinds.items()}
    fitting = sorted(capi if cluster is None else capi & {cluster})
    if len(fitting) != 1:
        meant = "none of the clusters" if not fitting else f"clusters {', '.join(fitting)}"
        raise session.InvalidUsage(
            f"sources of Cluster API are in {meant}; say in which cluster {name} is by --cluster"
        )
    async with connect_to(settings, fitting[0]) as there:
        found = await there.get(await there.discover(CLUSTERS), namespace, name)
    if found is None:
        raise session.CommandError(
            f"there is no Cluster {name} in namespace {namespace} of cluster {fitting[0]}; say which namespace by -n"
        )
    try:
        resource, infrastructure = infrastructure_of(found.raw, kinds)
    except NoInfrastructure as error:
        raise session.CommandError(f"Cluster {namespace}/{name}: {error}") from None
    if not any(one.resource == resource and cluster_of(settings, known) == fitting[0] for known, one in sources):
        raise session.InvalidUsage(
            f"Cluster {namespace}/{name} has its resources by {resource}, which no source watches"
        )
    return fitting[0], resource, infrastructure
