"""Create: what the server adds, and what it refuses.
Identity is the server's to give, whatever a client sends."""

import re
import uuid
from datetime import UTC, datetime

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import Caller
from tests.conformance.object_paths import MAPS, NAMESPACES, SECRETS, Kind

pytestmark = pytest.mark.long


async def test_a_created_object_gets_an_identity_of_the_servers(kube: Caller, namespace: str, widgets: Kind) -> None:
    wishes = {"uid": str(uuid.uuid4()), "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}
    made = await kube.made(widgets.path(namespace), widgets.body("one", metadata=wishes, spec={"size": 1}))
    meta = made["metadata"]
    assert uuid.UUID(meta["uid"]) != uuid.UUID(str(wishes["uid"]))
    assert meta["generation"] == 1
    assert (meta["name"], meta["namespace"]) == ("one", namespace)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    age = datetime.now(UTC) - datetime.fromisoformat(meta["creationTimestamp"])
    assert abs(age.total_seconds()) < 60
    assert int(meta["resourceVersion"]) > 0
    assert made["spec"] == {"size": 1}
    assert (made["apiVersion"], made["kind"]) == (widgets.api_version, "Widget")


async def test_a_deletion_timestamp_cannot_be_brought_along(kube: Caller, namespace: str, widgets: Kind) -> None:
    wish = {"deletionTimestamp": "2001-01-01T00:00:00Z", "finalizers": ["knell.dev/cleanup"]}
    made = await kube.made(widgets.path(namespace), widgets.body("one", metadata=wish))
    assert "deletionTimestamp" not in made["metadata"]


async def test_resource_versions_rise_over_all_kinds(kube: Caller, namespace: str, widgets: Kind) -> None:
    first = await kube.made(MAPS.path(namespace), MAPS.body("one"))
    second = await kube.made(widgets.path(namespace), widgets.body("one"))
    third = await kube.made(MAPS.path(namespace), MAPS.body("two"))
    versions = [int(made["metadata"]["resourceVersion"]) for made in (first, second, third)]
    assert versions == sorted(set(versions))


async def test_a_name_is_made_from_a_prefix(kube: Caller, namespace: str) -> None:
    wish = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="some-"))
    core = client.CoreV1Api(kube.client)
    made = [await core.create_namespaced_config_map(namespace, wish) for _ in range(2)]
    assert all(re.fullmatch(r"some-[a-z0-9]{5}", one.metadata.name) for one in made)
    assert made[0].metadata.name != made[1].metadata.name


async def test_a_name_that_is_taken_is_a_conflict(kube: Caller, namespace: str, widgets: Kind) -> None:
    await kube.made(widgets.path(namespace), widgets.body("one"))
    reply = await kube.post(widgets.path(namespace), widgets.body("one"))
    assert (reply.status, reply.reason) == (409, "AlreadyExists")
    assert reply.body["message"] == f'{widgets.name} "one" already exists'
    assert reply.body["details"] == {"name": "one", "group": widgets.group, "kind": "widgets"}
    assert (reply.body["kind"], reply.body["status"], reply.body["code"]) == ("Status", "Failure", 409)


async def test_an_object_without_a_name_is_invalid(kube: Caller, namespace: str) -> None:
    reply = await kube.post(MAPS.path(namespace), MAPS.body())
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_name_outside_of_the_grammar_is_invalid(kube: Caller, namespace: str, widgets: Kind) -> None:
    reply = await kube.post(widgets.path(namespace), widgets.body("Not_A_Name"))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "a lowercase RFC 1123 subdomain must consist of" in reply.body["message"]


async def test_an_object_of_another_kind_or_version_is_refused(kube: Caller, namespace: str, widgets: Kind) -> None:
    reply = await kube.post(widgets.path(namespace), {**widgets.body("one"), "kind": "Gadget"})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["causes"][0]["message"] == 'Invalid value: "Gadget": must be Widget'
    reply = await kube.post(MAPS.path(namespace), {**MAPS.body("one"), "kind": "Gadget"})
    assert (reply.status, reply.reason) == (400, "BadRequest")
    reply = await kube.post(widgets.path(namespace), {**widgets.body("one"), "apiVersion": f"{widgets.group}/v9"})
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "does not match the expected API version" in reply.body["message"]
    reply = await kube.post(widgets.path(namespace), {"metadata": {"name": "one"}})
    assert (reply.status, reply.reason) == (400, "BadRequest")


async def test_finalizers_keep_to_the_grammar(kube: Caller, namespace: str, widgets: Kind) -> None:
    for kind, finalizer in ((widgets, "not one"), (MAPS, "unqualified")):
        reply = await kube.post(kind.path(namespace), kind.body("one", metadata={"finalizers": [finalizer]}))
        assert (reply.status, reply.reason) == (422, "Invalid")
        assert reply.body["details"]["causes"][0]["field"].startswith("metadata.finalizers")


async def test_a_resource_version_cannot_be_brought_along(kube: Caller, namespace: str) -> None:
    reply = await kube.post(MAPS.path(namespace), MAPS.body("one", metadata={"resourceVersion": "5"}))
    assert reply.status == 500
    assert reply.body["message"] == "resourceVersion should not be set on objects to be created"


async def test_creating_needs_a_namespace_in_the_path(kube: Caller, widgets: Kind) -> None:
    assert (await kube.post(MAPS.path(), MAPS.body("one"))).status == 405
    reply = await kube.post(widgets.path(), widgets.body("one"))
    assert (reply.status, reply.text) == (404, "404 page not found\n")


async def test_an_object_of_another_namespace_is_a_bad_request(kube: Caller, namespace: str, widgets: Kind) -> None:
    reply = await kube.post(widgets.path(namespace), widgets.body("one", metadata={"namespace": "default"}))
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "does not match the namespace sent on the request" in reply.body["message"]


async def test_an_annotation_that_is_no_text_is_refused(kube: Caller, namespace: str) -> None:
    wrong = MAPS.body("one", metadata={"annotations": {"knell.dev/dry-run": True}})
    reply = await kube.post(MAPS.path(namespace), wrong)
    assert (reply.status, reply.reason) == (400, "BadRequest")


async def test_garbage_is_a_bad_request(kube: Caller, namespace: str) -> None:
    reply = await kube.post(MAPS.path(namespace), ["not", "an", "object"])
    assert (reply.status, reply.reason) == (400, "BadRequest")


async def test_nothing_is_created_in_a_namespace_that_is_not_there(kube: Caller, widgets: Kind) -> None:
    for kind in (MAPS, widgets):
        reply = await kube.post(kind.path("nobody-made-this"), kind.body("one"))
        assert (reply.status, reply.reason) == (404, "NotFound")
        assert reply.body["message"] == 'namespaces "nobody-made-this" not found'
        assert reply.body["details"] == {"name": "nobody-made-this", "kind": "namespaces"}


async def test_a_dry_run_leaves_nothing_behind(kube: Caller, namespace: str, widgets: Kind) -> None:
    reply = await kube.post(widgets.path(namespace), widgets.body("one"), dryRun="All")
    assert reply.status == 201
    assert (await kube.get(widgets.path(namespace, "one"))).status == 404


async def test_status_is_dropped_where_it_is_a_subresource_and_kept_where_not(
    kube: Caller, namespace: str, widgets: Kind, gadgets: Kind, unique: str
) -> None:
    made = await kube.made(widgets.path(namespace), widgets.body("one", status={"phase": "Ready"}))
    assert "status" not in made
    made = await kube.made(gadgets.path(), gadgets.body(unique, status={"phase": "Ready"}))
    assert made["status"] == {"phase": "Ready"}
    assert "namespace" not in made["metadata"]
    await kube.delete(gadgets.path(name=unique))


async def test_a_secret_is_given_as_text_and_kept_in_base64(kube: Caller, namespace: str) -> None:
    made = await kube.made(SECRETS.path(namespace), SECRETS.body("one", stringData={"token": "abc"}))
    assert (made["type"], made["data"], made.get("stringData")) == ("Opaque", {"token": "YWJj"}, None)


async def test_a_namespace_begins_active_and_labelled(kube: Caller, unique: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    made = await kube.made(NAMESPACES, body)
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert made["status"]["phase"] == "Active"
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": unique}
    await kube.delete(f"{NAMESPACES}/{unique}")


async def test_an_absent_object_is_named_in_the_answer(kube: Caller, namespace: str, widgets: Kind) -> None:
    for kind, details in (
        (MAPS, {"name": "nobody", "kind": "configmaps"}),
        (widgets, {"name": "nobody", "group": widgets.group, "kind": "widgets"}),
    ):
        reply = await kube.get(kind.path(namespace, "nobody"))
        assert (reply.status, reply.reason) == (404, "NotFound")
        assert reply.body["message"] == f'{kind.name} "nobody" not found'
        assert reply.body["details"] == details
