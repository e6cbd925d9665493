"""Watch: every change once, in order, from a given version.
An object that a selector hides and shows again must look deleted and added."""

import asyncio
from datetime import timedelta

import pytest
from kubernetes_asyncio import client, watch

from tests.conformance.api_caller import PARTIAL, Caller
from tests.conformance.object_paths import MAPS, Kind

pytestmark = pytest.mark.long

_SHORT = timedelta(seconds=10)


def _told(event: dict[str, dict[str, dict[str, str]]]) -> tuple[object, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def test_a_watch_from_a_list_tells_of_everything_after_it(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    await kube.made(path, widgets.body("before"))
    version = (await kube.get(path)).meta["resourceVersion"]
    async with kube.watch(path, resourceVersion=version) as stream:
        made = await kube.made(path, widgets.body("one"))
        changed = (await kube.merge(widgets.path(namespace, "one"), {"spec": {"a": 1}})).body
        await kube.delete(widgets.path(namespace, "one"))
        added, modified, deleted = [await stream.next(_SHORT) for _ in range(3)]
    assert added == {"type": "ADDED", "object": made}
    assert modified == {"type": "MODIFIED", "object": changed}
    assert deleted["type"] == "DELETED"
    assert deleted["object"]["spec"] == {"a": 1}
    assert deleted["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


async def test_a_watch_is_resumed_after_any_event(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    version = (await kube.get(path)).meta["resourceVersion"]
    for name in ("a", "b", "c"):
        await kube.made(path, widgets.body(name))
    await kube.delete(widgets.path(namespace, "b"))
    async with kube.watch(path, resourceVersion=version) as stream:
        events = [await stream.next(_SHORT) for _ in range(4)]
    expected = [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("DELETED", "b")]
    assert [_told(event) for event in events] == expected
    for index in range(3):
        seen = events[index]["object"]["metadata"]["resourceVersion"]
        async with kube.watch(path, resourceVersion=seen) as stream:
            rest = [await stream.next(_SHORT) for _ in range(3 - index)]
        assert [_told(event) for event in rest] == expected[index + 1 :]


async def test_a_watch_from_nowhere_begins_with_everything(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    for name in ("a", "b"):
        await kube.made(path, widgets.body(name))
    async with kube.watch(path) as stream:
        first = sorted([_told(await stream.next(_SHORT)) for _ in range(2)])
        await kube.made(path, widgets.body("c"))
        assert _told(await stream.next(_SHORT)) == ("ADDED", "c")
    assert first == [("ADDED", "a"), ("ADDED", "b")]


async def test_an_object_that_leaves_a_selector_goes_and_comes_back(
    kube: Caller, namespace: str, widgets: Kind
) -> None:
    path, one = widgets.path(namespace), widgets.path(namespace, "one")
    version = (await kube.get(path)).meta["resourceVersion"]
    async with kube.watch(path, resourceVersion=version, labelSelector="on=yes") as stream:
        await kube.made(path, widgets.body("other", metadata={"labels": {"on": "no"}}))
        await kube.made(path, widgets.body("one", metadata={"labels": {"on": "yes"}}))
        await kube.merge(one, {"spec": {"a": 1}})
        left = (await kube.merge(one, {"metadata": {"labels": {"on": "no"}}})).body
        await kube.merge(one, {"spec": {"a": 2}})
        await kube.merge(one, {"metadata": {"labels": {"on": "yes"}}})
        await kube.delete(one)
        events = [await stream.next(_SHORT) for _ in range(5)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    gone = events[2]["object"]
    assert gone["metadata"]["labels"] == {"on": "yes"}
    assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    assert events[3]["object"]["spec"] == {"a": 2}


async def test_a_watch_of_one_name_tells_of_no_other(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    version = (await kube.get(path)).meta["resourceVersion"]
    async with kube.watch(path, resourceVersion=version, fieldSelector="metadata.name=one") as stream:
        await kube.made(path, widgets.body("other"))
        await kube.made(path, widgets.body("one"))
        assert _told(await stream.next(_SHORT)) == ("ADDED", "one")


async def test_a_watch_of_all_namespaces_tells_of_this_one(kube: Caller, namespace: str, widgets: Kind) -> None:
    version = (await kube.get(widgets.path())).meta["resourceVersion"]
    selector = f"metadata.namespace={namespace}"
    async with kube.watch(widgets.path(), resourceVersion=version, fieldSelector=selector) as stream:
        made = await kube.made(widgets.path(namespace), widgets.body("one"))
        assert (await stream.next(_SHORT))["object"]["metadata"]["uid"] == made["metadata"]["uid"]


async def test_changes_outside_the_watched_namespace_are_not_sent(
    kube: Caller, namespace: str, widgets: Kind, unique: str
) -> None:
    version = (await kube.get(widgets.path(namespace))).meta["resourceVersion"]
    async with kube.watch(widgets.path(namespace), resourceVersion=version) as stream:
        await kube.made(widgets.path("default"), widgets.body(unique))
        await kube.made(MAPS.path(namespace), MAPS.body("one"))
        await kube.made(widgets.path(namespace), widgets.body("mine"))
        assert _told(await stream.next(_SHORT)) == ("ADDED", "mine")
    await kube.delete(widgets.path("default", unique))


async def test_a_patch_that_changes_nothing_is_no_event(kube: Caller, namespace: str, widgets: Kind) -> None:
    path, one = widgets.path(namespace), widgets.path(namespace, "one")
    made = await kube.made(path, widgets.body("one", spec={"a": 1}))
    async with kube.watch(path, resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        same = await kube.merge(one, {"spec": {"a": 1}})
        assert same.meta["resourceVersion"] == made["metadata"]["resourceVersion"]
        await kube.merge(one, {"spec": {"a": 2}})
        event = await stream.next(_SHORT)
    assert event["object"]["spec"] == {"a": 2}


async def test_a_watch_ends_at_its_time_with_a_bookmark_before(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    version = (await kube.get(path)).meta["resourceVersion"]
    query = {"resourceVersion": version, "timeoutSeconds": 5, "allowWatchBookmarks": "true"}
    async with kube.watch(path, **query) as stream:
        made = await kube.made(path, widgets.body("one"))
        events = await stream.rest(_SHORT)
    assert events[0]["type"] == "ADDED"
    assert {event["type"] for event in events[1:]} == {"BOOKMARK"}
    mark = events[-1]["object"]
    assert (mark["kind"], mark["apiVersion"]) == ("Widget", widgets.api_version)
    assert int(mark["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert "name" not in mark["metadata"]
    query = {"resourceVersion": mark["metadata"]["resourceVersion"], "timeoutSeconds": 5}
    async with kube.watch(path, **query) as stream:
        await kube.made(path, widgets.body("two"))
        assert _told(await stream.next(_SHORT)) == ("ADDED", "two")


async def test_bookmarks_are_sent_only_when_requested(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    version = (await kube.get(path)).meta["resourceVersion"]
    async with kube.watch(path, resourceVersion=version, timeoutSeconds=4) as stream:
        await kube.made(path, widgets.body("one"))
        assert [event["type"] for event in await stream.rest(_SHORT)] == ["ADDED"]


async def test_only_metadata_is_streamed_when_requested(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    version = (await kube.get(path)).meta["resourceVersion"]
    async with kube.watch(path, accept=PARTIAL, resourceVersion=version) as stream:
        made = await kube.made(path, widgets.body("one", spec={"big": "x"}))
        shown = (await stream.next(_SHORT))["object"]
    assert (shown["kind"], shown["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert shown["metadata"] == made["metadata"]
    assert "spec" not in shown


async def test_many_watchers_all_hear(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    version = (await kube.get(path)).meta["resourceVersion"]

    async def hear() -> tuple[object, str]:
        async with kube.watch(path, resourceVersion=version) as stream:
            return _told(await stream.next(_SHORT))

    async with asyncio.TaskGroup() as tasks:
        hearing = [tasks.create_task(hear()) for _ in range(20)]
        await kube.made(path, widgets.body("one"))
    assert {task.result() for task in hearing} == {("ADDED", "one")}


async def test_a_compacted_version_is_gone_within_the_stream(kube: Caller, namespace: str, widgets: Kind) -> None:
    async with kube.watch(widgets.path(namespace), resourceVersion=1) as stream:
        (event,) = await stream.rest(_SHORT)
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert "too old resource version" in status["message"]


async def test_the_generated_client_watches(kube: Caller, namespace: str) -> None:
    core = client.CoreV1Api(kube.client)
    version = (await core.list_namespaced_config_map(namespace)).metadata.resource_version
    await core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="mine")))
    await core.delete_namespaced_config_map("mine", namespace)
    async with watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=version,
        field_selector="metadata.name=mine",
        timeout_seconds=2,
    ) as stream:
        seen = [(event["type"], event["object"].metadata.name) async for event in stream]
    assert seen == [("ADDED", "mine"), ("DELETED", "mine")]
