"""Uninstall from a cluster: removes our finalizers from all objects of the given resources, then Leases and ConfigMap.
Selectors and namespaces of the settings are ignored: an object with our finalizer may have left every scope."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract.names import sweep_lease
from service.kubernetes import (
    ClusterError,
    Forbidden,
    KubeObject,
    KubernetesClient,
    NotFound,
    NotServed,
    ServedResource,
    Unreadable,
    finalizers,
)
from service.policy.protection import decide_protection
from service.sources.registry import known_finalizers
from service.watching.enabling_configmap import delete_configmap

AT_ONCE: Final = 16


class FinalizedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object with one of our finalizers. `protection` says why the resources of one that is being deleted are
    protected, or why that is not known; it is empty if nothing protects them, and for a live object."""

    namespace: str
    name: str
    uid: str
    going: bool
    protection: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class RemainingFinalizers(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one resource with our finalizers. `problem` says why they are not known; `only` names the namespaces
    that were listed if the credentials may not list all."""

    resource: str
    served: ServedResource | None
    objects: tuple[FinalizedObject, ...] = ()
    problem: str = ""
    only: tuple[str, ...] = ()


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    holder: str
    renewed: datetime | None


class UninstallFailure(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    why: str


async def find_finalizers(
    cluster: KubernetesClient, resource: str, services: Collection[str], namespaces: Collection[str] = ()
) -> RemainingFinalizers:
    """A resource that is not served has no objects. `namespaces` are listed one by one if all together may not be
    listed; `services` are the prefixes of annotations that may protect an object."""
    try:
        served = await cluster.discover(resource)
    except NotServed:
        return RemainingFinalizers(resource=resource, served=None)
    except ClusterError as error:
        return RemainingFinalizers(resource=resource, served=None, problem=str(error))
    only: tuple[str, ...] = ()
    try:
        try:
            found, unreadable = await _list_finalized(cluster, served, [None])
        except Forbidden:
            if not namespaces or not served.namespaced:
                raise
            only = tuple(sorted(namespaces))
            found, unreadable = await _list_finalized(cluster, served, only)
    except ClusterError as error:
        return RemainingFinalizers(resource=resource, served=served, problem=str(error))
    problem = f"{len(unreadable)} objects can't be read, {unreadable[0]}" if unreadable else ""
    spaces = {one.namespace for one in found if one.going}
    protection = _ProtectionCheck({space: await _namespace_annotations(cluster, space) for space in spaces}, services)
    objects = tuple(
        FinalizedObject(
            namespace=one.namespace, name=one.name, uid=one.uid, going=one.going, protection=protection.of(one)
        )
        for one in found
    )
    return RemainingFinalizers(resource=resource, served=served, objects=objects, problem=problem, only=only)


async def _list_finalized(
    cluster: KubernetesClient, served: ServedResource, places: Iterable[str | None]
) -> tuple[list[KubeObject], list[str]]:
    found: list[KubeObject] = []
    unreadable: list[str] = []
    for place in places:
        async for page in cluster.pages(served, place, "", 500, metadata_only=True):
            unreadable += page.unreadable
            found += [one for one in page.items if finalizers.has_finalizer(one, *known_finalizers())]
    return found, unreadable


async def _namespace_annotations(cluster: KubernetesClient, namespace: str) -> Mapping[str, str] | ClusterError:
    try:
        return await cluster.namespace_annotations(namespace)
    except ClusterError as error:
        return error


class _ProtectionCheck(NamedTuple):
    namespaces: Mapping[str, Mapping[str, str] | ClusterError]
    services: Collection[str]

    def of(self, one: KubeObject) -> str:
        if not one.going:
            return ""
        namespace = self.namespaces[one.namespace]
        if isinstance(namespace, ClusterError):
            return f"not known, for its Namespace can't be read: {namespace}"
        found = [decide_protection(one.annotations, namespace, service) for service in self.services or ("",)]
        return next((decision.reason for decision in found if decision.kind != "free"), "")


async def remove_finalizers(
    cluster: KubernetesClient,
    served: ServedResource,
    objects: Iterable[FinalizedObject],
    on_progress: Callable[[], None],
    *,
    also_deleting: bool,
) -> list[UninstallFailure]:
    """Returns the failures. An object with another uid under the same name is left alone, and so is one that is being
    deleted by now, unless `also_deleting`."""
    failures: list[UninstallFailure] = []
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(target: FinalizedObject) -> None:
        async with slots:
            try:
                became = await finalizers.remove_finalizer(
                    cluster,
                    served,
                    target.namespace,
                    target.name,
                    target.uid,
                    *known_finalizers(),
                    also_deleting=also_deleting,
                )
                why = "it is being deleted by now" if became == "going" else ""
            except ClusterError as error:
                why = str(error)
            if why:
                failures.append(UninstallFailure(what=f"{served.resource} {target}", why=why))
            on_progress()

    async with asyncio.TaskGroup() as group:
        for target in objects:
            group.create_task(one(target))
    return failures


class _LeaseMetadata(msgspec.Struct, frozen=True):
    name: str


class _ListedLeaseSpec(msgspec.Struct, frozen=True):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    renewed: datetime | None = msgspec.field(default=None, name="renewTime")


class _ListedLease(msgspec.Struct, frozen=True):
    metadata: _LeaseMetadata
    spec: _ListedLeaseSpec = _ListedLeaseSpec()


class _LeaseList(msgspec.Struct, frozen=True):
    items: list[_ListedLease]


def _leases_path(namespace: str, name: str = "") -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


async def find_leases(cluster: KubernetesClient, namespace: str, sources: Iterable[str]) -> list[HeldLease]:
    """The Leases of these sources and their sweeps, also of shares that the settings no longer have."""
    known = list(sources)
    shares = re.compile(rf"knell-(?:{'|'.join(map(re.escape, known))})-\d+")
    sweeps = {sweep_lease(source) for source in known}
    try:
        answer = msgspec.json.decode(await cluster.request("GET", _leases_path(namespace)), type=_LeaseList)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"cluster {cluster.name}: Leases in {namespace} can't be decoded: {error}") from None
    return [
        HeldLease(name=one.metadata.name, holder=one.spec.holder or "", renewed=one.spec.renewed)
        for one in answer.items
        if one.metadata.name in sweeps or shares.fullmatch(one.metadata.name)
    ]


def recently_renewed(leases: Iterable[HeldLease], within: timedelta, now: datetime) -> list[HeldLease]:
    """Leases whose holder is probably running and would add the finalizers again. One without a renewTime counts,
    too."""
    soonest = now - within
    return [one for one in leases if one.holder and (one.renewed is None or one.renewed > soonest)]


async def remove_leases_and_configmap(
    cluster: KubernetesClient, namespace: str, leases: Iterable[HeldLease]
) -> list[UninstallFailure]:
    failures: list[UninstallFailure] = []
    for lease in leases:
        try:
            await cluster.request("DELETE", _leases_path(namespace, lease.name))
        except NotFound:
            continue
        except ClusterError as error:
            failures.append(UninstallFailure(what=f"Lease {namespace}/{lease.name}", why=str(error)))
    try:
        await delete_configmap(cluster, namespace)
    except ClusterError as error:
        failures.append(UninstallFailure(what=f"ConfigMap in {namespace}", why=str(error)))
    return failures
