"""Search for protected objects in a Namespace, or among all objects of a CRD, by lists of their metadata.
It is bounded in time and number: what it could not read is reported as unknown, never as absent."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from service.admission.api_discovery import discover_groups
from service.admission.judgement import JudgedObject
from service.admission.object_review import NamespaceLookup, review_object
from service.admission.protected_resources import ProtectedResources
from service.admission.reviews import Definition
from service.contract.names import ACK_PREFIX
from service.kubernetes import ClusterError, Forbidden, KubeObject, KubernetesClient, ServedResource

SHOWN: Final = 3
"""Protected objects that a denial names."""
AT_ONCE: Final = 8
"""Lists of one search at the same time."""
MOST: Final = 50_000
"""Objects that one search reads."""
_PAGE: Final = 500


class ProtectedObjects:
    """What a search found. `unknown` says why there may be more."""

    def __init__(self) -> None:
        self.count = 0
        self.unknown = ""
        self._names: list[str] = []
        self._read = 0

    def names(self) -> list[str]:
        """Of the first ones, and how many there are besides."""
        shown = sorted(self._names)[:SHOWN]
        return [*shown, *([f"{self.count - len(shown)} more"] if self.count > len(shown) else [])]

    def add(self, name: str) -> None:
        self.count += 1
        if len(self._names) < MOST:
            self._names.append(name)

    def read(self, number: int) -> bool:
        """Whether more may be read."""
        self._read += number
        if self._read > MOST:
            self.doubt(f"there are more than {MOST:,} objects to look at")
        return self._read <= MOST

    def doubt(self, why: str) -> None:
        """The first reason is kept."""
        self.unknown = self.unknown or why


class Contents:
    """`within` is for one search."""

    def __init__(
        self,
        cluster: KubernetesClient,
        protected: ProtectedResources,
        namespaces: NamespaceLookup,
        within: timedelta,
    ) -> None:
        self._cluster, self._protected, self._namespaces = cluster, protected, namespaces
        self._within = within

    async def in_namespace(self, namespace: str, annotations: Mapping[str, str]) -> ProtectedObjects:
        """`annotations` are those of the Namespace, as they are now."""
        found = ProtectedObjects()
        try:
            async with asyncio.timeout(self._within.total_seconds()):
                resources = [one for one in await self._protected_resources(found) if one.namespaced]
                await self._search(resources, namespace, _OneNamespace(annotations), found)
        except ClusterError as error:
            found.doubt(str(error))
        except TimeoutError:
            found.doubt(self._too_slow)
        return found

    async def of_definition(self, definition: Definition) -> ProtectedObjects:
        found, served = ProtectedObjects(), definition.served()
        if not definition.established:
            return found
        if served is None:
            found.doubt("no version of it is served, so that its objects can't be listed; serve one")
            return found
        try:
            async with asyncio.timeout(self._within.total_seconds()):
                await self._search([served], None, _SeenNamespaces(self._namespaces), found)
        except TimeoutError:
            found.doubt(self._too_slow)
        return found

    @property
    def _too_slow(self) -> str:
        return f"not everything could be read within {self._within.total_seconds():g} s"

    async def _protected_resources(self, found: ProtectedObjects) -> list[ServedResource]:
        groups = {resource.partition(".")[2] for resource in self._protected.declared} | set(self._protected.groups)
        discovered = await discover_groups(
            self._cluster, lambda group: group in groups or group.endswith(f".{ACK_PREFIX}")
        )
        for why in discovered.unknown:
            found.doubt(why)
        resources = [one for one in discovered.resources if self._protected.services(one.resource)]
        missing = set(self._protected.declared) - {one.resource for one in resources}
        for resource in sorted(missing):
            # Discovery is a moment behind: a CRD that was just installed may have objects.
            if await self._cluster.crd_state(resource) in ("established", "going"):
                found.doubt(f"{resource} are not in the discovery documents of the API server yet")
        return resources

    async def _search(
        self,
        resources: Iterable[ServedResource],
        namespace: str | None,
        namespaces: NamespaceLookup,
        found: ProtectedObjects,
    ) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def search(served: ServedResource) -> None:
            async with slots:
                try:
                    await self._search_one(served, namespace, namespaces, found)
                except Forbidden as error:
                    found.doubt(f"{error}; add group {served.group} to protection.groups and apply `knell role` again")
                except ClusterError as error:
                    found.doubt(str(error))

        async with asyncio.TaskGroup() as group:
            for served in resources:
                group.create_task(search(served))

    async def _search_one(
        self,
        served: ServedResource,
        namespace: str | None,
        namespaces: NamespaceLookup,
        found: ProtectedObjects,
    ) -> None:
        services = self._protected.services(served.resource)
        pages = self._cluster.pages(served, namespace, limit=_PAGE, metadata_only=True)
        async with aclosing(pages):
            async for page in pages:
                for why in page.unreadable:
                    found.doubt(why)
                for seen in page.items:
                    denial = await review_object(_judged(served, seen), services, namespaces)
                    if denial is not None and denial.why == "unknown":
                        found.doubt(denial.message)
                    elif denial is not None:
                        found.add(_shown(served, seen, in_one=namespace is not None))
                if not found.read(len(page.items)):
                    return


class _OneNamespace:
    """The annotations of the one Namespace that is searched."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._annotations = annotations

    async def annotations(self, name: str) -> Mapping[str, str]:
        return self._annotations


class _SeenNamespaces:
    """Looks each Namespace up once per search; one that can't be read, too."""

    def __init__(self, namespaces: NamespaceLookup) -> None:
        self._namespaces = namespaces
        self._seen: dict[str, Mapping[str, str] | ClusterError] = {}

    async def annotations(self, name: str) -> Mapping[str, str]:
        if name not in self._seen:
            try:
                self._seen[name] = await self._namespaces.annotations(name)
            except ClusterError as error:
                self._seen[name] = error
        seen = self._seen[name]
        if isinstance(seen, ClusterError):
            raise seen
        return seen


def _judged(served: ServedResource, seen: KubeObject) -> JudgedObject:
    return JudgedObject(served.resource, served.kind, seen.namespace, seen.name, seen.annotations)


def _shown(served: ServedResource, seen: KubeObject, *, in_one: bool) -> str:
    kind = served.kind.lower()
    if in_one:
        return f"{kind}.{served.group}/{seen.name}" if served.group else f"{kind}/{seen.name}"
    return f"{kind}/{seen.name} in Namespace {seen.namespace}" if seen.namespace else f"{kind}/{seen.name}"
