"""An object as an operator names it: KIND/NAME, found among the sources of the settings, in the cluster it is in.
A name that could mean two things is never guessed at; the answer lists what it could mean. A Cluster of Cluster API
stands for what it has on AWS."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import click
from redis.exceptions import RedisError

from service.cli import output, session
from service.cli.addresses import Address
from service.cli.capi_clusters import followed, is_capi
from service.contract.resource_names import fits_kind
from service.engine.calls import ServerAway
from service.engine.installation import Installation
from service.kubernetes import Cluster, ClusterError, Live, NotServed, Served
from service.policy.selectors import parse
from service.settings import Settings, SourceSettings
from service.watching.clusters import Identities, cluster_of, reached

T = TypeVar("T")
PATIENCE: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The object, and the source by whose settings it is treated."""

    source: str
    settings: SourceSettings
    cluster: Cluster
    uid: str
    served: Served
    live: Live

    def __str__(self) -> str:
        where = f" in namespace {self.live.namespace}" if self.live.namespace else ""
        return f"{self.served.resource}/{self.live.name}{where}"


def object_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """KIND/NAME, with the options that say where."""
    command = click.option("--cluster", metavar="NAME", help="Which cluster, where several have the kind.")(command)
    command = click.option("--namespace", "-n", default="default", show_default=True, help="Namespace of the object.")(
        command
    )
    return click.argument("what", metavar="KIND/NAME")(command)


def run(work: Awaitable[T]) -> T:
    """A command's work with clusters; what they answer is said in a sentence."""

    async def awaited() -> T:
        return await work

    try:
        return asyncio.run(awaited())
    except ClusterError as error:
        raise session.Trouble(str(error)) from None


@asynccontextmanager
async def opened(settings: Settings, name: str) -> AsyncIterator[tuple[Cluster, str]]:
    """A cluster that is the right one, with its uid. Without Redis only the settings can say which one that is."""
    async with reached(settings, name) as cluster:
        uid = await cluster.identity()
        installation = Installation(settings, name="knell-cli", patience=PATIENCE)
        try:
            identities = Identities(settings, installation)
            try:
                await installation.connections.client.execute_command("PING")
                known = await identities.remembered()
            except (RedisError, OSError, ServerAway):
                known = {}
                if settings.clusters[name].uid is None:
                    click.echo(f"Redis does not answer: whether {name} is the cluster it was is not known.", err=True)
            identities.check(name, uid, known)
        finally:
            await installation.aclose()
        yield cluster, uid


@asynccontextmanager
async def chosen(settings: Settings, what: str, namespace: str, cluster: str | None) -> AsyncIterator[Chosen]:
    """The object that KIND/NAME means; Trouble or Misuse where there is none, or more than one."""
    named = Address(what).object
    if named is None:
        raise session.Misuse(f"{output.clean(what)!r} is no KIND/NAME; write it like nodeclaim/pool-1")
    kind, name = named
    if cluster is not None and cluster not in settings.clusters:
        raise session.Misuse(f"{cluster!r} is no cluster of the settings ({', '.join(settings.clusters) or 'none'})")
    if is_capi(settings, kind):
        *there, name = await followed(settings, name, namespace, cluster)
        where = _Place(*there)
    else:
        where = await _place(settings, kind, cluster)
    async with opened(settings, where.cluster) as (reached_cluster, uid):
        served = await reached_cluster.discover(where.resource)
        live = await reached_cluster.get(served, namespace if served.namespaced else "", name)
        if live is None:
            inside = f" in namespace {namespace}" if served.namespaced else ""
            raise session.Trouble(
                f"there is no {served.kind} {name}{inside} of cluster {where.cluster}"
                + ("; say which namespace by -n" if served.namespaced else "")
            )
        source = _source(settings, where, live)
        yield Chosen(source, settings.sources[source], reached_cluster, uid, served, live)


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    cluster: str
    resource: str


async def _place(settings: Settings, kind: str, cluster: str | None) -> _Place:
    """The one resource of one cluster that the word can mean, by its plural or singular, else by its Kind."""
    places = sorted(
        {
            _Place(cluster_of(settings, name), source.resource)
            for name, source in settings.sources.items()
            if cluster in (None, cluster_of(settings, name))
        }
    )
    fitting = [place for place in places if fits_kind(kind, place.resource)]
    if not fitting:
        # The plural may be any word, such as `data` of the Kind Datum.
        fitting = [place for place in places if kind.casefold() in await _kinds(settings, place)]
    if not fitting:
        known = ", ".join(sorted({place.resource for place in places})) or "none"
        raise session.Misuse(f"no source watches {output.clean(kind)!r}; resources of sources: {known}")
    if len(fitting) > 1:
        meant = ", ".join(f"{place.resource} of cluster {place.cluster}" for place in fitting)
        raise session.Misuse(f"{output.clean(kind)!r} could be {meant}; write plural.group, or say --cluster")
    return fitting[0]


async def _kinds(settings: Settings, place: _Place) -> tuple[str, ...]:
    async with reached(settings, place.cluster) as cluster:
        try:
            served = await cluster.discover(place.resource)
        except NotServed:
            return ()
    return (served.kind.casefold(), f"{served.kind}.{served.group}".casefold())


def _source(settings: Settings, place: _Place, live: Live) -> str:
    """Of the sources that watch the resource, the one whose scope has the object; else the first of them."""
    names = [
        name
        for name, source in settings.sources.items()
        if source.resource == place.resource and cluster_of(settings, name) == place.cluster
    ]
    return next((name for name in names if _watches(settings.sources[name], live)), names[0])


def why_unwatched(source: str, settings: SourceSettings, live: Live) -> str:
    """Why nobody would see the object go, or nothing."""
    if settings.namespaces and live.namespace not in settings.namespaces:
        return f"source {source} is not about namespace {live.namespace} (namespaces: {', '.join(settings.namespaces)})"
    if not parse(settings.selector).matches(live.labels):
        return f"its labels don't fit the selector of source {source}, {settings.selector!r}"
    return ""


def _watches(source: SourceSettings, live: Live) -> bool:
    return not why_unwatched("", source, live)
