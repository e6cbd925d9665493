"""A client of a cluster some of whose objects can't be read, which no API server can be made to answer."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from service.kubernetes import KubernetesClient, ListPage, ServedResource


class BlurredLists(KubernetesClient):
    """No page of this resource is whole."""

    def __init__(self, resource: str, client: KubernetesClient) -> None:
        super().__init__(client.name, client._calls)
        self._resource = resource

    def blurred(self, page: ListPage) -> ListPage:
        return msgspec.structs.replace(page, unreadable=("one without a uid",))

    async def pages(self, served: ServedResource, *words: Any, **how: Any) -> AsyncGenerator[ListPage, None]:
        async for page in super().pages(served, *words, **how):
            yield self.blurred(page) if served.resource == self._resource else page


class BlurredSpecs(BlurredLists):
    """The spec of each object of this resource has a form that is not known."""

    def blurred(self, page: ListPage) -> ListPage:
        def changed(raw: bytes) -> msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(raw) | {"spec": {"region": 1}}))

        items = [msgspec.structs.replace(one, raw=changed(bytes(one.raw))) for one in page.items]
        return msgspec.structs.replace(page, items=items)
