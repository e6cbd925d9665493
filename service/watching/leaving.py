"""Taking Knell out of a cluster: all our finalizers off every object of given resources, then Leases and ConfigMap.
Selectors and namespaces of the settings do not matter here: what we once marked may have left every scope."""

import asyncio
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from service.cluster import Cluster, ClusterError, NotFound, NotServed, Served, finalizers
from service.contract.traits import FINALIZERS
from service.watching.enabling import forget_all

AT_ONCE: Final = 16


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """An object that has a finalizer of ours."""

    namespace: str
    name: str
    uid: str
    going: bool

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What we left on the objects of one resource. `problem` says why nobody can tell."""

    resource: str
    served: Served | None
    objects: tuple[Marked, ...] = ()
    problem: str = ""


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    holder: str
    renewed: datetime | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    why: str


async def find_marked(cluster: Cluster, resource: str) -> Remains:
    """A resource that is not served has no objects, so it has nothing of ours."""
    try:
        served = await cluster.discover(resource)
    except NotServed:
        return Remains(resource=resource, served=None)
    except ClusterError as error:
        return Remains(resource=resource, served=None, problem=str(error))
    found: list[Marked] = []
    unreadable: list[str] = []
    try:
        async for page in cluster.pages(served, None, "", 500, metadata_only=True):
            unreadable += page.unreadable
            found += [
                Marked(namespace=one.namespace, name=one.name, uid=one.uid, going=one.going)
                for one in page.items
                if finalizers.marked(one, *FINALIZERS)
            ]
    except ClusterError as error:
        return Remains(resource=resource, served=served, problem=str(error))
    problem = f"{len(unreadable)} objects can't be read, {unreadable[0]}" if unreadable else ""
    return Remains(resource=resource, served=served, objects=tuple(found), problem=problem)


async def take_off(
    cluster: Cluster, served: Served, marked: Iterable[Marked], told: Callable[[], None]
) -> list[Failure]:
    """Our finalizers off every one of them; what could not be done comes back. An object of the same name and another
    uid is another object, and is left alone."""
    failures: list[Failure] = []
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(target: Marked) -> None:
        async with slots:
            try:
                await finalizers.unmark(cluster, served, target.namespace, target.name, target.uid, *FINALIZERS)
            except ClusterError as error:
                failures.append(Failure(what=f"{served.resource} {target}", why=str(error)))
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
    """The Leases of these sources, also of shares that the settings no longer have."""
    named = re.compile(rf"knell-(?:{'|'.join(map(re.escape, sources))})-\d+")
    answer = msgspec.json.decode(await cluster.request("GET", _leases_path(namespace)), type=_Leases)
    return [
        HeldLease(name=one.metadata.name, holder=one.spec.holder or "", renewed=one.spec.renewed)
        for one in answer.items
        if named.fullmatch(one.metadata.name)
    ]


def still_held(leases: Iterable[HeldLease], within: timedelta) -> list[HeldLease]:
    """Those that somebody renewed a moment ago: a replica runs, and would mark everything anew."""
    soonest = datetime.now(UTC) - within
    return [one for one in leases if one.holder and one.renewed is not None and one.renewed > soonest]


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
