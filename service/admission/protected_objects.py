"""List of the protected objects of a cluster: which annotation protects each, and whether that is on the object or on
its Namespace. What can't be read is named, because there may be protected objects in it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from service.admission.judgement import protection_of
from service.admission.protected_discovery import ServedProtectedResource, UnreadPart, discover_protected
from service.admission.protected_resources import ProtectedResources
from service.contract.names import PREVENT_DELETE
from service.kubernetes import NAMESPACES, ClusterError, Expired, KubeObject, KubernetesClient, NotFound, ServedResource
from service.policy.annotations import FAMILIES, NAMESPACE
from service.policy.decisions import PolicyDecision
from service.policy.protection import decide_protection

Level = Literal["object", "Namespace", "settings"]
_AT_ONCE: Final = 8
_PAGE: Final = 500
_MOST_UNREADABLE: Final = 20


class ProtectedObject(msgspec.Struct, frozen=True, kw_only=True):
    """`level` is where the annotation is; `valid` is false if its value is neither true nor false, which protects,
    too."""

    resource: str
    kind: str
    namespace: str
    name: str
    uid: str
    going: bool
    annotation: str
    level: Level
    valid: bool
    reason: str


class MarkedNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A Namespace with an annotation that protects objects in it."""

    name: str
    annotation: str
    reason: str


class ProtectedListing(msgspec.Struct, frozen=True, kw_only=True):
    objects: list[ProtectedObject]
    namespaces: list[MarkedNamespace]
    unread: list[UnreadPart]


def level_of(decision: PolicyDecision, own: Mapping[str, str]) -> Level:
    """`own` are the annotations of the object, which count before those of its Namespace."""
    if not decision.mark:
        return "settings"
    return "object" if decision.mark in own else "Namespace"


def services_marked(annotations: Mapping[str, str]) -> list[str]:
    """The services that annotations of protection name; the empty one stands for all and comes first."""
    suffixes = [f"{family}/{PREVENT_DELETE}" for family in FAMILIES]
    found = {""}
    for name in annotations:
        found |= {name.removesuffix(f".{suffix}") for suffix in suffixes if name.endswith(f".{suffix}")}
    return sorted(found)


async def list_protected(
    cluster: KubernetesClient,
    protected: ProtectedResources,
    namespace: str | None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProtectedListing:
    """In one Namespace, or in all and of cluster-scoped resources. Raises ClusterError if nothing can be read.
    `on_progress` gets the number of resources that were read, and of all."""
    resources, unread = await discover_protected(cluster, protected)
    listing = _Listing(cluster, namespace, unread)
    await listing.read_namespaces()
    wanted = [one for one in resources if one.served.namespaced or namespace is None]
    slots = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def read(one: ServedProtectedResource) -> None:
        nonlocal done
        async with slots:
            await listing.read(one)
        done += 1
        on_progress(done, len(wanted))

    async with asyncio.TaskGroup() as tasks:
        for one in wanted:
            tasks.create_task(read(one))
    return listing.result()


class _Listing:
    """Only what is protected is kept, so that its size does not depend on the number of all objects."""

    def __init__(self, cluster: KubernetesClient, only: str | None, unread: list[UnreadPart]) -> None:
        self._cluster, self._only = cluster, only
        self._unread = unread
        self._objects: list[ProtectedObject] = []
        self._marked: list[MarkedNamespace] = []
        self._namespaces: dict[str, Mapping[str, str] | ClusterError] = {}
        self._undecided: dict[str, int] = {}

    async def read_namespaces(self) -> None:
        """If they can't be listed, each is read when an object in it was found."""
        if self._only is not None:
            self._keep_namespace(self._only, await self._cluster.namespace_annotations(self._only))
            return
        try:
            async for page in self._cluster.pages(NAMESPACES, None, "", _PAGE, metadata_only=True):
                for one in page.items:
                    self._keep_namespace(one.name, one.annotations)
                self._keep_unreadable("namespaces", page.unreadable)
        except ClusterError as error:
            self._unread.append(UnreadPart("Namespaces with annotations", str(error)))

    def _keep_namespace(self, name: str, annotations: Mapping[str, str]) -> None:
        self._namespaces[name] = annotations
        decisions = [decide_protection({}, annotations, service) for service in services_marked(annotations)]
        marked = {one.mark: one for one in decisions if one.kind != "free"}
        self._marked += [
            MarkedNamespace(name=name, annotation=mark, reason=one.reason.replace(NAMESPACE, "the Namespace"))
            for mark, one in marked.items()
        ]

    async def read(self, one: ServedProtectedResource) -> None:
        if "list" not in one.served.verbs:
            self._unread.append(UnreadPart(one.served.resource, "it can't be listed"))
            return
        for attempt in range(2):
            try:
                self._objects += await self._protected(one)
                return
            except Expired as error:
                if attempt:
                    self._unread.append(UnreadPart(one.served.resource, str(error)))
            except ClusterError as error:
                self._unread.append(UnreadPart(one.served.resource, str(error)))
                return

    async def _protected(self, one: ServedProtectedResource) -> list[ProtectedObject]:
        found: list[ProtectedObject] = []
        async for page in self._cluster.pages(one.served, self._only, "", _PAGE, metadata_only=True):
            self._keep_unreadable(one.served.resource, page.unreadable)
            for seen in page.items:
                decision = await self._decision(seen, one.services)
                if decision is not None:
                    found.append(_protected_object(one.served, seen, decision))
        return found

    async def _decision(self, seen: KubeObject, services: tuple[str, ...]) -> PolicyDecision | None:
        around = await self._annotations(seen.namespace)
        if not isinstance(around, ClusterError):
            return protection_of(seen.annotations, around, services)
        found = protection_of(seen.annotations, {}, services)
        if found is None and not all(decide_protection(seen.annotations, {}, one).mark for one in services):
            self._undecided[seen.namespace] = self._undecided.get(seen.namespace, 0) + 1
        return found

    async def _annotations(self, namespace: str) -> Mapping[str, str] | ClusterError:
        if not namespace:
            return {}
        if namespace not in self._namespaces:
            # Made after the list, or it could not be listed.
            try:
                self._keep_namespace(namespace, await self._cluster.namespace_annotations(namespace))
            except NotFound:
                self._namespaces[namespace] = {}
            except ClusterError as error:
                self._namespaces[namespace] = error
        return self._namespaces[namespace]

    def _keep_unreadable(self, resource: str, unreadable: tuple[str, ...]) -> None:
        self._unread += [UnreadPart(resource, why) for why in unreadable[:_MOST_UNREADABLE]]
        if len(unreadable) > _MOST_UNREADABLE:
            self._unread.append(UnreadPart(resource, f"{len(unreadable) - _MOST_UNREADABLE} more can't be read"))

    def result(self) -> ProtectedListing:
        unread = [
            UnreadPart(
                f"annotations of Namespace {name}",
                f"whether they protect {count} objects is not known: {self._namespaces[name]}",
            )
            for name, count in sorted(self._undecided.items())
        ]
        return ProtectedListing(
            objects=sorted(self._objects, key=lambda one: (one.namespace, one.resource, one.name)),
            namespaces=sorted(self._marked, key=lambda one: (one.name, one.annotation)),
            unread=[*self._unread, *unread],
        )


def _protected_object(served: ServedResource, seen: KubeObject, decision: PolicyDecision) -> ProtectedObject:
    return ProtectedObject(
        resource=served.resource,
        kind=served.kind,
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        going=seen.going,
        annotation=decision.mark,
        level=level_of(decision, seen.annotations),
        valid=decision.kind == "protected",
        reason=decision.reason,
    )
