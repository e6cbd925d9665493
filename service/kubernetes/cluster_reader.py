"""Reads of objects by resource, for the functions of a source's declaration (`ReadCluster`). How a resource is served
is discovered once, and again after it was not served any more."""

from collections.abc import Sequence
from contextlib import aclosing

from service.kubernetes.client import KubernetesClient
from service.kubernetes.errors import NotServed
from service.kubernetes.objects import ServedResource
from service.sources.declaration import CannotRead


class ClusterReader:
    """Of one cluster. Raises CannotRead for a resource that is not served, and ClusterError."""

    def __init__(self, cluster: KubernetesClient) -> None:
        self._cluster = cluster
        self._served: dict[str, ServedResource] = {}

    async def get(self, resource: str, namespace: str, name: str) -> bytes | None:
        try:
            found = await self._cluster.get(await self._resource(resource), namespace, name)
        except NotServed as error:
            raise self._forgotten(resource, error) from error
        return None if found is None else bytes(found.raw)

    async def list(self, resource: str, namespace: str) -> Sequence[bytes]:
        """In all namespaces if none is given."""
        items: list[bytes] = []
        try:
            pages = self._cluster.pages(await self._resource(resource), namespace or None)
            async with aclosing(pages):
                async for page in pages:
                    if page.unreadable:
                        raise CannotRead(page.unreadable[0])
                    items += [bytes(item.raw) for item in page.items]
        except NotServed as error:
            raise self._forgotten(resource, error) from error
        return items

    async def _resource(self, resource: str) -> ServedResource:
        if resource not in self._served:
            self._served[resource] = await self._cluster.discover(resource)
        return self._served[resource]

    def _forgotten(self, resource: str, error: NotServed) -> CannotRead:
        """Next time it may be served in another version."""
        self._served.pop(resource, None)
        return CannotRead(str(error))
