"""Taking Knell out of a cluster: all our finalizers off every object of given resources, then Leases and ConfigMap.
Selectors and namespaces of the settings do not matter here: what we once marked may have left every scope."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract.names import sweep_lease
from service.contract.traits import FINALIZERS
from service.kubernetes import (
    Cluster,
    ClusterError,
    Forbidden,
    NotFound,
    NotServed,
    Seen,
    Served,
    Unreadable,
    finalizers,
)
from service.policy.protection import protected
from service.watching.enabling import forget_all

AT_ONCE: Final = 16


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """An object that has a finalizer of ours. `protection` says why nothing of one that is being deleted may be
    destroyed, or why that is not known; it is empty where nothing protects it, and for an object that lives."""

    namespace: str
    name: str
    uid: str
    going: bool
    protection: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What we left on the objects of one resource. `problem` says why nobody can tell; `only` names the namespaces that
    were looked through where these credentials may not list all of them."""

    resource: str
    served: Served | None
    objects: tuple[Marked, ...] = ()
    problem: str = ""
    only: tuple[str, ...] = ()


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    holder: str
    renewed: datetime | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    why: str


async def find_marked(
    cluster: Cluster, resource: str, services: Collection[str], namespaces: Collection[str] = ()
) -> Remains:
    """A resource that is not served has no objects, so it has nothing of ours. `namespaces` are looked through one by
    one where all together may not be listed; `services` are those by whose prefixes an object may be protected."""
    try:
        served = await cluster.discover(resource)
    except NotServed:
        return Remains(resource=resource, served=None)
    except ClusterError as error:
        return Remains(resource=resource, served=None, problem=str(error))
    only: tuple[str, ...] = ()
    try:
        try:
            found, unreadable = await _list(cluster, served, [None])
        except Forbidden:
            if not namespaces or not served.namespaced:
                raise
            only = tuple(sorted(namespaces))
            found, unreadable = await _list(cluster, served, only)
    except ClusterError as error:
        return Remains(resource=resource, served=served, problem=str(error))
    problem = f"{len(unreadable)} objects can't be read, {unreadable[0]}" if unreadable else ""
    spaces = {one.namespace for one in found if one.going}
    protection = _Protection({space: await _marks(cluster, space) for space in spaces}, services)
    marked = tuple(
        Marked(namespace=one.namespace, name=one.name, uid=one.uid, going=one.going, protection=protection.of(one))
        for one in found
    )
    return Remains(resource=resource, served=served, objects=marked, problem=problem, only=only)


async def _list(cluster: Cluster, served: Served, places: Iterable[str | None]) -> tuple[list[Seen], list[str]]:
    found: list[Seen] = []
    unreadable: list[str] = []
    for place in places:
        async for page in cluster.pages(served, place, "", 500, metadata_only=True):
            unreadable += page.unreadable
            found += [one for one in page.items if finalizers.marked(one, *FINALIZERS)]
    return found, unreadable


async def _marks(cluster: Cluster, namespace: str) -> Mapping[str, str] | ClusterError:
    try:
        return await cluster.namespace_marks(namespace)
    except ClusterError as error:
        return error


class _Protection(NamedTuple):
    namespaces: Mapping[str, Mapping[str, str] | ClusterError]
    services: Collection[str]

    def of(self, one: Seen) -> str:
        if not one.going:
            return ""
        namespace = self.namespaces[one.namespace]
        if isinstance(namespace, ClusterError):
            return f"not known, for its Namespace can't be read: {namespace}"
        found = [protected(one.annotations, namespace, service) for service in self.services or ("",)]
        return next((decision.reason for decision in found if decision.kind != "free"), "")


async def take_off(
    cluster: Cluster,
    served: Served,
    marked: Iterable[Marked],
    told: Callable[[], None],
    *,
    also_deleting: bool,
) -> list[Failure]:
    """Our finalizers off every one of them; what could not be done comes back. An object of the same name and another
    uid is another object, and is left alone. So is, unless that was asked for, one that is being deleted by now."""
    failures: list[Failure] = []
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(target: Marked) -> None:
        async with slots:
            try:
                became = await finalizers.unmark(
                    cluster, served, target.namespace, target.name, target.uid, *FINALIZERS, also_going=also_deleting
                )
                why = "it is being deleted by now" if became == "going" else ""
            except ClusterError as error:
                why = str(error)
            if why:
                failures.append(Failure(what=f"{served.resource} {target}", why=why))
            told()

    async with asyncio.TaskGroup() as group:
        for target in marked:
            group.create_task(one(target))
    return failures


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _LeaseSpec(msgspec.Struct, frozen=True):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    renewed: datetime | None = msgspec.field(default=None, name="renewTime")


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _LeaseSpec = _LeaseSpec()


class _Leases(msgspec.Struct, frozen=True):
    items: list[_Lease]


def _leases_path(namespace: str, name: str = "") -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


async def find_leases(cluster: Cluster, namespace: str, sources: Iterable[str]) -> list[HeldLease]:
    """The Leases of these sources and their sweeps, also of shares that the settings no longer have."""
    known = list(sources)
    shares = re.compile(rf"knell-(?:{'|'.join(map(re.escape, known))})-\d+")
    sweeps = {sweep_lease(source) for source in known}
    try:
        answer = msgspec.json.decode(await cluster.request("GET", _leases_path(namespace)), type=_Leases)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"cluster {cluster.name}: Leases in {namespace} can't be decoded: {error}") from None
    return [
        HeldLease(name=one.metadata.name, holder=one.spec.holder or "", renewed=one.spec.renewed)
        for one in answer.items
        if one.metadata.name in sweeps or shares.fullmatch(one.metadata.name)
    ]


def still_held(leases: Iterable[HeldLease], within: timedelta, now: datetime) -> list[HeldLease]:
    """Those that somebody renewed a moment ago: a replica runs, and would mark everything anew. Where the record does
    not say when, it may be so as well."""
    soonest = now - within
    return [one for one in leases if one.holder and (one.renewed is None or one.renewed > soonest)]


async def remove_rest(cluster: Cluster, namespace: str, leases: Iterable[HeldLease]) -> list[Failure]:
    failures: list[Failure] = []
    for lease in leases:
        try:
            await cluster.request("DELETE", _leases_path(namespace, lease.name))
        except NotFound:
            continue
        except ClusterError as error:
            failures.append(Failure(what=f"Lease {namespace}/{lease.name}", why=str(error)))
    try:
        await forget_all(cluster, namespace)
    except ClusterError as error:
        failures.append(Failure(what=f"ConfigMap in {namespace}", why=str(error)))
    return failures
