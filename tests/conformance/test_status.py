"""The status subresource: two ways in, each of which changes its own part only.
Conditions of ours must never touch what the user wrote, nor the other way round."""

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import Caller
from tests.conformance.object_paths import NAMESPACES, Kind

pytestmark = pytest.mark.long


async def test_a_status_is_written_only_through_its_own_path(kube: Caller, namespace: str, widgets: Kind) -> None:
    one, status = widgets.path(namespace, "one"), widgets.path(namespace, "one", "status")
    await kube.made(widgets.path(namespace), widgets.body("one", spec={"a": 1}))
    ignored = await kube.merge(one, {"status": {"phase": "Wrong"}, "spec": {"a": 2}})
    assert ("status" in ignored.body, ignored.body["spec"]) == (False, {"a": 2})
    more = {"spec": {"a": 3}, "metadata": {"labels": {"a": "b"}}}
    told = await kube.merge(status, {"status": {"phase": "Right"}, **more})
    assert told.status == 200
    assert told.body["status"] == {"phase": "Right"}
    assert told.body["spec"] == {"a": 2}
    assert "labels" not in told.meta
    kept = await kube.merge(one, {"spec": {"a": 4}})
    assert kept.body["status"] == {"phase": "Right"}


async def test_a_status_is_replaced_optimistically(kube: Caller, namespace: str, widgets: Kind) -> None:
    status = widgets.path(namespace, "one", "status")
    made = await kube.made(widgets.path(namespace), widgets.body("one", spec={"a": 1}))
    body = {**made, "status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"ignored": True}}
    reply = await kube.put(status, body)
    assert reply.status == 200
    assert reply.body["status"] == body["status"]
    assert reply.body["spec"] == {"a": 1}
    assert (await kube.put(status, body)).status == 409
    assert (await kube.get(status)).body["status"] == body["status"]


async def test_a_status_patch_in_json_tests_and_adds(kube: Caller, namespace: str, widgets: Kind) -> None:
    status = widgets.path(namespace, "one", "status")
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    uid = {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]}
    reply = await kube.patch(status, uid, {"op": "add", "path": "/status", "value": {"conditions": []}})
    assert reply.body["status"] == {"conditions": []}
    other = {"op": "test", "path": "/metadata/uid", "value": "another"}
    assert (await kube.patch(status, other, {"op": "remove", "path": "/status"})).status == 422


async def test_a_status_patch_that_says_what_it_saw_conflicts(kube: Caller, namespace: str, widgets: Kind) -> None:
    status = widgets.path(namespace, "one", "status")
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    await kube.merge(widgets.path(namespace, "one"), {"spec": {"a": 1}})
    old = {"resourceVersion": made["metadata"]["resourceVersion"]}
    assert (await kube.merge(status, {"metadata": old, "status": {"a": 1}})).status == 409


async def test_without_the_subresource_status_is_a_field_and_its_path_is_not_found(
    kube: Caller, gadgets: Kind, unique: str
) -> None:
    await kube.made(gadgets.path(), gadgets.body(unique))
    reply = await kube.merge(gadgets.path(name=unique), {"status": {"phase": "Plain"}})
    assert (reply.body["status"], reply.meta["generation"]) == ({"phase": "Plain"}, 2)
    missing = await kube.merge(gadgets.path(name=unique, subresource="status"), {"status": {}})
    assert (missing.status, missing.reason) == (404, "NotFound")
    await kube.delete(gadgets.path(name=unique))


async def test_the_generated_client_writes_a_status(kube: Caller, namespace: str, widgets: Kind) -> None:
    custom = client.CustomObjectsApi(kube.client)
    place = (widgets.group, widgets.version, namespace, widgets.plural)
    await custom.create_namespaced_custom_object(*place, widgets.body("one"))
    patch = [{"op": "add", "path": "/status", "value": {"phase": "Told"}}]
    await custom.patch_namespaced_custom_object_status(*place, "one", patch)
    found = await custom.get_namespaced_custom_object(*place, "one")
    assert found["status"] == {"phase": "Told"}


async def test_a_namespace_has_a_status_of_its_own(kube: Caller, namespace: str) -> None:
    found = (await kube.get(f"{NAMESPACES}/{namespace}/status")).body
    assert found["status"]["phase"] == "Active"
