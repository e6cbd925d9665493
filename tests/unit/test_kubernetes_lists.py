"""Lists and watches that contain what was not requested: they are unreadable, and never an empty list."""

import tracemalloc
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.kubernetes import (
    CONFIGMAPS,
    NAMESPACES,
    KubernetesClient,
    ListPage,
    ServedResource,
    Unreadable,
    WatchEvent,
)
from tests.canned_calls import CHUNKED, OK, canned_calls

THINGS = msgspec.structs.replace(CONFIGMAPS, resource="things.knell.test", group="knell.test", kind="Thing")
METADATA = {"resourceVersion": "7"}
MEBIBYTE = 1024 * 1024


def _answer(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _object(name: str = "one", namespace: str = "ns", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"} | more
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


async def _listed(
    *bodies: object, served: ServedResource = CONFIGMAPS, namespace: str | None = "ns", metadata_only: bool = False
) -> list[ListPage]:
    answers = [body if isinstance(body, bytes) else msgspec.json.encode(body) for body in bodies]
    async with canned_calls([[_answer(body) for body in answers]]) as (_, calls):
        pages = KubernetesClient("odd", calls).pages(served, namespace, metadata_only=metadata_only)
        return [page async for page in pages]


async def _watched(
    *objects: object, served: ServedResource = CONFIGMAPS, namespace: str | None = "ns"
) -> list[WatchEvent]:
    lines = b"".join(msgspec.json.encode({"type": "ADDED", "object": one}) + b"\n" for one in objects)
    async with canned_calls([[CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(lines), lines)]]) as (_, calls):
        silence = timedelta(seconds=20)
        async with aclosing(KubernetesClient("odd", calls).watch(served, namespace, "", "5", silence=silence)) as watch:
            return [change async for change in watch]


@pytest.mark.parametrize("item", [b"1", b"{}", b'""', b"[]", b'{"metadata":{"uid":5}}'])
async def test_a_page_of_millions_of_items_is_unreadable_before_they_take_memory(item: bytes) -> None:
    size = 8 * MEBIBYTE
    items = (item + b",") * (size // (len(item) + 1)) + item
    body = b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[' + items + b"]}"
    del items
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match=r"more than 250,000 items|Expected `object`|more than 100 items"):
            await _listed(body)
        assert tracemalloc.get_traced_memory()[1] < 8 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [100, 101])
async def test_a_hundred_items_of_a_page_may_be_unreadable_and_no_more(count: int) -> None:
    body = {"kind": "ConfigMapList", "metadata": METADATA, "items": [_object(), *([1] * count)]}
    if count == 100:
        (page,) = await _listed(body)
        assert (len(page.items), len(page.unreadable)) == (1, 100)
    else:
        with pytest.raises(Unreadable, match="more than 100 items of one page can't be read, the first: object"):
            await _listed(body)


async def test_a_server_that_ignores_the_limit_is_read_all_the_same() -> None:
    items = [_object(f"n{number}", labels=dict.fromkeys("abcdefghij", "")) for number in range(25_000)]
    (page,) = await _listed({"kind": "ConfigMapList", "metadata": METADATA, "items": items})
    assert (len(page.items), page.unreadable) == (25_000, ())


NO_LISTS = [
    {"kind": "ConfigMap", **_object()},
    {"kind": "ConfigMap", **_object(), "items": []},
    {"kind": "SecretList", "metadata": METADATA, "items": []},
    {"kind": "PartialObjectMetadataList", "metadata": METADATA, "items": []},
    {"kind": "Table", "metadata": METADATA, "rows": []},
    {"kind": "ConfigMapList", "metadata": METADATA},
    {"kind": "", "metadata": METADATA, "items": []},
    {"metadata": METADATA, "items": []},
]


@pytest.mark.parametrize("body", NO_LISTS)
async def test_an_answer_that_is_no_list_of_the_kind_is_no_empty_list(body: dict[str, Any]) -> None:
    with pytest.raises(Unreadable, match=r"the answer is no ConfigMapList|the list can't be decoded"):
        await _listed(body)


async def test_a_list_of_metadata_is_one_only_where_it_was_asked_for() -> None:
    (page,) = await _listed(
        {"kind": "PartialObjectMetadataList", "metadata": METADATA, "items": [_object()]}, metadata_only=True
    )
    assert [one.name for one in page.items] == ["one"]
    with pytest.raises(Unreadable, match="no PartialObjectMetadataList, but ConfigMapList"):
        await _listed({"kind": "ConfigMapList", "metadata": METADATA, "items": []}, metadata_only=True)


async def test_null_is_an_empty_list() -> None:
    (page,) = await _listed({"kind": "ConfigMapList", "metadata": METADATA, "items": None})
    assert page.items == []


async def test_a_list_may_have_the_kind_that_its_definition_gives_to_lists() -> None:
    def body(token: str) -> dict[str, Any]:
        return {"kind": "Stuff", "metadata": {**METADATA, "continue": token}, "items": [_object()]}

    definition = {"kind": "CustomResourceDefinition", "spec": {"names": {"kind": "Thing", "listKind": "Stuff"}}}
    pages = await _listed(body("more"), definition, body(""), served=THINGS)
    assert [len(page.items) for page in pages] == [1, 1]
    other = {"spec": {"names": {"kind": "Thing", "listKind": "ThingList"}}}
    for answer in (other, {}):
        with pytest.raises(Unreadable, match="no ThingList, but Stuff"):
            await _listed(body(""), answer, served=THINGS)


MISPLACED = [
    (CONFIGMAPS, "ns", _object(namespace="other")),
    (CONFIGMAPS, "ns", _object(namespace="")),
    (CONFIGMAPS, None, _object(namespace="")),
    (NAMESPACES, None, _object()),
    (CONFIGMAPS, "ns", {"kind": "Secret", **_object()}),
    (CONFIGMAPS, "ns", _object(uid="")),
    (CONFIGMAPS, "ns", _object(name="")),
    (CONFIGMAPS, "ns", _object(resourceVersion="")),
]


@pytest.mark.parametrize(("served", "namespace", "item"), MISPLACED)
async def test_an_object_that_does_not_belong_there_is_unreadable(
    served: ServedResource, namespace: str | None, item: dict[str, Any]
) -> None:
    body = {"kind": f"{served.kind}List", "metadata": METADATA, "items": [item]}
    (page,) = await _listed(body, served=served, namespace=namespace)
    assert (page.items, len(page.unreadable)) == ([], 1)
    (change,) = await _watched(item, served=served, namespace=namespace)
    assert change.unreadable == page.unreadable[0]


async def test_objects_of_all_namespaces_belong_where_all_were_asked_for() -> None:
    items = [_object(namespace="a"), _object(namespace="b")]
    (page,) = await _listed({"kind": "ConfigMapList", "metadata": METADATA, "items": items}, namespace=None)
    assert [one.namespace for one in page.items] == ["a", "b"]
    assert [change.unreadable for change in await _watched(*items, namespace=None)] == ["", ""]


async def test_nesting_without_end_is_unreadable() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(Unreadable, match="the list can't be decoded: maximum recursion depth"):
        await _listed(b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[' + deep + b"]}")


async def test_the_name_of_an_unreadable_object_is_found_without_decoding_the_rest_of_its_metadata() -> None:
    item = _object(uid=5, filler=[{}] * 2_000_000)
    body = msgspec.json.encode({"kind": "ConfigMapList", "metadata": METADATA, "items": [item]})
    del item
    tracemalloc.start()
    try:
        (page,) = await _listed(body)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(body)
    finally:
        tracemalloc.stop()
    assert page.unreadable[0].startswith("object ns/one (uid unknown)")
