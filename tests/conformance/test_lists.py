"""List: pages of one snapshot, selectors, and metadata alone.
A diff against a list is only safe if all its pages show the same moment."""

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import PARTIAL, PARTIAL_LIST, Caller
from tests.conformance.object_paths import MAPS, NAMESPACES, Kind

pytestmark = pytest.mark.long


async def _many(kube: Caller, kind: Kind, namespace: str, count: int) -> list[str]:
    names = [f"n{number:02}" for number in range(count)]
    for number, name in enumerate(names):
        await kube.made(kind.path(namespace), kind.body(name, metadata={"labels": {"odd": str(number % 2)}}))
    return names


def _names(body: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


async def test_pages_are_of_one_moment_whatever_happens_meanwhile(kube: Caller, namespace: str, widgets: Kind) -> None:
    names = await _many(kube, widgets, namespace, 7)
    path = widgets.path(namespace)
    first = await kube.get(path, limit=3)
    assert first.meta["remainingItemCount"] == 4
    await kube.delete(widgets.path(namespace, "n05"))
    await kube.made(path, widgets.body("n04a"))
    await kube.merge(widgets.path(namespace, "n06"), {"spec": {"changed": True}})
    seen, pages, reply = _names(first.body), [first], first
    while token := reply.meta.get("continue"):
        reply = await kube.get(path, limit=3, **{"continue": token})
        assert reply.status == 200
        seen += _names(reply.body)
        pages.append(reply)
    assert seen == names
    assert {page.meta["resourceVersion"] for page in pages} == {first.meta["resourceVersion"]}
    assert "changed" not in pages[-1].body["items"][-1].get("spec", {})
    assert "remainingItemCount" not in pages[-1].meta


async def test_a_list_is_as_new_as_what_was_just_written(kube: Caller, namespace: str, widgets: Kind) -> None:
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    listed = (await kube.get(widgets.path(namespace))).body
    assert _names(listed) == ["one"]
    assert int(listed["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert listed["kind"] == "WidgetList"
    assert listed["apiVersion"] == widgets.api_version
    item = listed["items"][0]
    assert (item["kind"], item["apiVersion"]) == ("Widget", widgets.api_version)
    assert item["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_empty_list_has_a_moment_too(kube: Caller, namespace: str, widgets: Kind) -> None:
    listed = (await kube.get(widgets.path(namespace), limit=5)).body
    assert listed["items"] == []
    assert int(listed["metadata"]["resourceVersion"]) > 0
    assert not listed["metadata"].get("continue")


async def test_all_namespaces_are_listed_in_the_order_of_their_keys(
    kube: Caller, namespace: str, widgets: Kind, unique: str
) -> None:
    for where in (unique, f"{unique}-b"):
        await kube.made(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}})
        await kube.made(widgets.path(where), widgets.body("one", metadata={"labels": {"of": unique}}))
    listed = (await kube.get(widgets.path(), labelSelector=f"of={unique}")).body
    assert [item["metadata"]["namespace"] for item in listed["items"]] == [f"{unique}-b", unique]
    for where in (unique, f"{unique}-b"):
        await kube.delete(f"{NAMESPACES}/{where}")


async def test_items_of_a_built_in_kind_do_not_repeat_their_kind(kube: Caller, namespace: str) -> None:
    await kube.made(MAPS.path(namespace), MAPS.body("one", data={"a": "b"}))
    listed = (await kube.get(MAPS.path(namespace), fieldSelector="metadata.name=one")).body
    assert listed["kind"] == "ConfigMapList"
    assert [sorted(item) for item in listed["items"]] == [["data", "metadata"]]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=gold", ["a"]),
        ("tier==gold", ["a"]),
        ("tier!=gold", ["b", "c", "d"]),
        ("tier in (gold, silver)", ["a", "b"]),
        ("tier notin (gold,silver)", ["c", "d"]),
        ("tier", ["a", "b", "c"]),
        ("!tier", ["d"]),
        ("tier,env=prod", ["a"]),
        ("env in (prod),tier notin (gold)", []),
        ("knell.dev/on=yes", ["d"]),
        ("tier=", ["c"]),
    ],
)
async def test_labels_select(kube: Caller, namespace: str, widgets: Kind, selector: str, expected: list[str]) -> None:
    labels = {
        "a": {"tier": "gold", "env": "prod"},
        "b": {"tier": "silver"},
        "c": {"tier": ""},
        "d": {"knell.dev/on": "yes"},
    }
    for name, given in labels.items():
        await kube.made(widgets.path(namespace), widgets.body(name, metadata={"labels": given}))
    listed = await kube.get(widgets.path(namespace), labelSelector=selector)
    assert _names(listed.body) == expected


async def test_a_selector_and_a_limit_work_together(kube: Caller, namespace: str, widgets: Kind) -> None:
    await _many(kube, widgets, namespace, 7)
    path, seen, token = widgets.path(namespace), [], ""
    while True:
        query = {"continue": token} if token else {}
        reply = await kube.get(path, labelSelector="odd=1", limit=2, **query)
        assert len(reply.body["items"]) <= 2
        seen += _names(reply.body)
        token = reply.meta.get("continue", "")
        if not token:
            break
    assert seen == ["n01", "n03", "n05"]


async def test_fields_select_by_name_and_namespace(kube: Caller, namespace: str, widgets: Kind) -> None:
    await _many(kube, widgets, namespace, 3)
    reply = await kube.get(widgets.path(namespace), fieldSelector="metadata.name=n01")
    assert _names(reply.body) == ["n01"]
    reply = await kube.get(widgets.path(), fieldSelector=f"metadata.namespace={namespace},metadata.name!=n01")
    assert _names(reply.body) == ["n00", "n02"]
    reply = await kube.get(widgets.path(namespace), fieldSelector="spec.size=1")
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "field label not supported: spec.size" in reply.body["message"]


@pytest.mark.parametrize("query", [{"labelSelector": "a in b"}, {"labelSelector": "=x"}, {"continue": "garbage!"}])
async def test_what_cannot_be_parsed_is_a_bad_request(
    kube: Caller, namespace: str, widgets: Kind, query: dict[str, str]
) -> None:
    reply = await kube.get(widgets.path(namespace), **query)
    assert (reply.status, reply.reason) == (400, "BadRequest")


async def test_only_metadata_is_sent_when_requested(kube: Caller, namespace: str, widgets: Kind) -> None:
    given = {"labels": {"a": "b"}, "annotations": {"knell.dev/x": "y"}, "finalizers": ["knell.dev/cleanup"]}
    made = await kube.made(widgets.path(namespace), widgets.body("one", metadata=given, spec={"big": "x"}))
    listed = (await kube.get(widgets.path(namespace), accept=PARTIAL_LIST, limit=5)).body
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed["metadata"]["resourceVersion"]
    (item,) = listed["items"]
    assert sorted(item) == ["apiVersion", "kind", "metadata"]
    assert (item["kind"], item["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert item["metadata"] == made["metadata"]
    one = (await kube.get(widgets.path(namespace, "one"), accept=PARTIAL)).body
    assert (one["kind"], one["metadata"], "spec" in one) == ("PartialObjectMetadata", made["metadata"], False)


async def test_a_moment_that_has_not_come_yet_is_a_timeout(kube: Caller, namespace: str, widgets: Kind) -> None:
    now = int((await kube.get(widgets.path(namespace))).meta["resourceVersion"])
    reply = await kube.get(widgets.path(namespace), resourceVersion=now + 1_000_000)
    assert (reply.status, reply.reason) == (504, "Timeout")
    assert "Too large resource version" in reply.body["message"]


async def test_the_generated_client_pages_through_a_list(kube: Caller, namespace: str) -> None:
    core = client.CoreV1Api(kube.client)
    for name in ("x1", "x2", "x3"):
        labelled = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"mine": "yes"}))
        await core.create_namespaced_config_map(namespace, labelled)
    first = await core.list_namespaced_config_map(namespace, limit=2, label_selector="mine=yes")
    rest = await core.list_namespaced_config_map(
        namespace, limit=2, label_selector="mine=yes", _continue=first.metadata._continue
    )
    assert [one.metadata.name for one in first.items + rest.items] == ["x1", "x2", "x3"]
    assert first.metadata.resource_version == rest.metadata.resource_version
