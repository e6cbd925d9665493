"""Lists in pages, each decoded only as far as an object's metadata and given away before the next is asked for.
A list that could not be read to its end at one resource version raises, for half a list looks like deletions."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final

import msgspec

from service.cluster.decoding import decode
from service.cluster.errors import Expired, Unreadable
from service.cluster.objects import Page, Seen, Served

Read = Callable[[str, Mapping[str, str], str], Awaitable[bytes]]

_JSON: Final = "application/json"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class _ListMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


_lists: Final = msgspec.json.Decoder(_List)


async def pages(
    read: Read, served: Served, namespace: str | None, selector: str, limit: int, *, metadata_only: bool
) -> AsyncGenerator[Page, None]:
    path = served.path(namespace)
    query = {"limit": str(limit)} | ({"labelSelector": selector} if selector else {})
    accept = _METADATA_LIST if metadata_only else _JSON
    token, version = "", ""
    while True:
        page, token = _page(await read(path, query | ({"continue": token} if token else {}), accept), path)
        if version and page.resource_version != version:
            raise Expired(f"{path}: the list went on at another resource version; start over")
        version = page.resource_version
        yield page
        # Otherwise it would live on while the next one is fetched and decoded.
        del page
        if not token:
            return


def _page(body: bytes, path: str) -> tuple[Page, str]:
    try:
        whole = _lists.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path}: the list can't be decoded: {error}") from None
    if not whole.metadata.resource_version:
        raise Unreadable(f"{path}: the list names no resource version")
    items: list[Seen] = []
    unreadable: list[str] = []
    for raw in whole.items or ():
        try:
            items.append(decode(raw))
        except Unreadable as error:
            unreadable.append(str(error))
    page = Page(
        resource_version=whole.metadata.resource_version,
        items=items,
        unreadable=tuple(unreadable),
        remaining=whole.metadata.remaining,
    )
    return page, whole.metadata.token
