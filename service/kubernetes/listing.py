"""Paged lists: of each page only the metadata of the objects is decoded, and it is freed before the next one is
requested. A list that can't be read to its end at one resource version raises, because half a list looks like
deletions."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final

import msgspec

from service.kubernetes.decoding import UNDECODABLE, decode_item
from service.kubernetes.errors import Expired, NotFound, Unreadable
from service.kubernetes.objects import CRDS, KubeObject, ListPage, ServedResource

Read = Callable[[str, Mapping[str, str], str], Awaitable[bytes]]

_JSON: Final = "application/json"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Of one page. Far more than the requested limit, because some servers ignore it and send the whole list.
_MOST_ITEMS: Final = 250_000
_MOST_UNREADABLE: Final = 100


class _ListMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class _List(msgspec.Struct):
    kind: str
    metadata: _ListMetadata
    # Servers written in Go send null for an empty list.
    items: list[msgspec.Raw] | None


class _ListKindNames(msgspec.Struct):
    list_kind: str = msgspec.field(name="listKind")


class _ListKindSpec(msgspec.Struct):
    names: _ListKindNames


class _ListKindCrd(msgspec.Struct):
    spec: _ListKindSpec


_lists: Final = msgspec.json.Decoder(_List)
_definitions: Final = msgspec.json.Decoder(_ListKindCrd)


async def pages(
    read: Read, served: ServedResource, namespace: str | None, selector: str, limit: int, *, metadata_only: bool
) -> AsyncGenerator[ListPage, None]:
    path = served.path(namespace)
    query = {"limit": str(limit)} | ({"labelSelector": selector} if selector else {})
    accept = _METADATA_LIST if metadata_only else _JSON
    kind = "PartialObjectMetadataList" if metadata_only else f"{served.kind}List"
    token, version = "", ""
    while True:
        whole = _decoded(await read(path, query | ({"continue": token} if token else {}), accept), path)
        if whole.kind != kind:
            kind = await _list_kind(read, served, path, whole.kind, kind)
        page, token = _page(whole, served, namespace, path), whole.metadata.token
        del whole
        if version and page.resource_version != version:
            raise Expired(f"{path}: the list went on at another resource version; start over")
        version = page.resource_version
        yield page
        # Otherwise it would stay in memory while the next one is read and decoded.
        del page
        if not token:
            return


def _decoded(body: bytes, path: str) -> _List:
    try:
        # There are at most as many items as commas, which are counted quickly.
        if body.count(b",") >= _MOST_ITEMS:
            _count_items(body)
        whole = _lists.decode(body)
    except UNDECODABLE as error:
        raise Unreadable(f"{path}: the list can't be decoded: {error}") from None
    if not whole.metadata.resource_version:
        raise Unreadable(f"{path}: the list names no resource version")
    return whole


def _count_items(body: bytes) -> None:
    """Raises at the first item too many, or that is no object, without keeping any of them: a page of the largest size
    has room for 32 million items."""
    count = 0

    class Item(msgspec.Struct):
        def __post_init__(self) -> None:
            nonlocal count
            count += 1
            if count > _MOST_ITEMS:
                raise ValueError(f"more than {_MOST_ITEMS:,} items")

    class Items(msgspec.Struct):
        items: list[Item] | None

    msgspec.json.decode(body, type=Items)


async def _list_kind(read: Read, served: ServedResource, path: str, found: str, expected: str) -> str:
    """A CRD may have its own listKind, which is not in the discovery documents."""
    error = Unreadable(f"{path}: the answer is no {expected}, but {found or 'of no kind'}")
    if expected != f"{served.kind}List" or "." not in served.group:
        raise error
    try:
        answer = await read(CRDS.path(name=served.resource), {}, _JSON)
        if _definitions.decode(answer).spec.names.list_kind == found:
            return found
    except (NotFound, *UNDECODABLE):
        pass
    raise error


def _page(whole: _List, served: ServedResource, namespace: str | None, path: str) -> ListPage:
    items: list[KubeObject] = []
    unreadable: list[str] = []
    for raw in whole.items or ():
        try:
            items.append(decode_item(raw, served, namespace))
        except Unreadable as error:
            unreadable.append(str(error))
            if len(unreadable) > _MOST_UNREADABLE:
                raise Unreadable(
                    f"{path}: more than {_MOST_UNREADABLE} items of one page can't be read, the first: {unreadable[0]}"
                ) from None
    return ListPage(
        resource_version=whole.metadata.resource_version,
        items=items,
        unreadable=tuple(unreadable),
        remaining=whole.metadata.remaining,
    )
