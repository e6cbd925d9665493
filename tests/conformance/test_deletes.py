"""Delete: finalizers, preconditions, collections and owners.
Accepted is not gone, and each deletion is sent to watches once."""

from datetime import timedelta

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import Caller, eventually
from tests.conformance.object_paths import MAPS, Kind

pytestmark = pytest.mark.long

_SHORT = timedelta(seconds=10)
FINALIZER = "knell.dev/cleanup"


async def test_an_object_without_finalizers_is_gone_at_once(kube: Caller, namespace: str, widgets: Kind) -> None:
    for kind in (widgets, MAPS):
        made = await kube.made(kind.path(namespace), kind.body("one"))
        reply = await kube.delete(kind.path(namespace, "one"))
        assert (reply.status, reply.body["kind"], reply.body["status"]) == (200, "Status", "Success")
        assert reply.body["details"]["uid"] == made["metadata"]["uid"]
        assert reply.body["details"]["kind"] == kind.plural
        assert (await kube.get(kind.path(namespace, "one"))).status == 404


async def test_finalizers_keep_an_object_until_the_last_is_off(kube: Caller, namespace: str, widgets: Kind) -> None:
    path, one = widgets.path(namespace), widgets.path(namespace, "one")
    made = await kube.made(path, widgets.body("one", metadata={"finalizers": [FINALIZER, "other.dev/x"]}))
    async with kube.watch(path, resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        reply = await kube.delete(one)
        assert (reply.status, reply.body["kind"]) == (200, "Widget")
        assert reply.meta["deletionTimestamp"]
        assert reply.meta["deletionGracePeriodSeconds"] == 0
        assert reply.meta["generation"] == 2
        assert reply.meta["finalizers"] == [FINALIZER, "other.dev/x"]
        assert (await stream.next(_SHORT)) == {"type": "MODIFIED", "object": reply.body}
        await kube.merge(one, {"metadata": {"finalizers": ["other.dev/x"]}})
        assert (await stream.next(_SHORT))["type"] == "MODIFIED"
        assert (await kube.get(one)).status == 200
        last = await kube.merge(one, {"metadata": {"finalizers": []}})
        assert last.status == 200
        assert "finalizers" not in last.meta
        gone = await stream.next(_SHORT)
    assert gone["type"] == "DELETED"
    assert gone["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    # The removal shows the object as it last stood: with the finalizer that was just taken off.
    assert gone["object"]["metadata"]["finalizers"] == ["other.dev/x"]
    assert (await kube.get(one)).status == 404


async def test_a_second_delete_changes_nothing(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    await kube.made(widgets.path(namespace), widgets.body("one", metadata={"finalizers": [FINALIZER]}))
    first = await kube.delete(one)
    second = await kube.delete(one)
    assert (second.status, second.meta) == (200, first.meta)
    await kube.merge(one, {"metadata": {"finalizers": None}})


async def test_no_finalizer_is_added_to_what_is_going(kube: Caller, namespace: str, widgets: Kind) -> None:
    for kind in (widgets, MAPS):
        one = kind.path(namespace, "one")
        await kube.made(kind.path(namespace), kind.body("one", metadata={"finalizers": ["other.dev/x"]}))
        await kube.delete(one)
        reply = await kube.merge(one, {"metadata": {"finalizers": ["other.dev/x", FINALIZER]}})
        assert (reply.status, reply.reason) == (422, "Invalid")
        assert (
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
            f'found new finalizers []string{{"{FINALIZER}"}}'
        ) in reply.body["message"]
        cause = reply.body["details"]["causes"][0]
        assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", "metadata.finalizers")
        assert (await kube.get(one)).meta["finalizers"] == ["other.dev/x"]
        await kube.merge(one, {"metadata": {"finalizers": None}})


async def test_a_deletion_cannot_be_taken_back(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    await kube.made(widgets.path(namespace), widgets.body("one", metadata={"finalizers": [FINALIZER]}))
    going = await kube.delete(one)
    reply = await kube.merge(one, {"metadata": {"deletionTimestamp": None, "annotations": {"a": "b"}}})
    assert reply.meta["deletionTimestamp"] == going.meta["deletionTimestamp"]
    assert reply.meta["annotations"] == {"a": "b"}
    await kube.merge(one, {"metadata": {"finalizers": None}})


async def test_a_delete_of_another_object_of_that_name_is_a_conflict(
    kube: Caller, namespace: str, widgets: Kind
) -> None:
    one = widgets.path(namespace, "one")
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    for wrong, words in (
        ({"uid": "00000000-0000-0000-0000-000000000000"}, f"does not match the UID in record ({uid})"),
        ({"resourceVersion": "1"}, f"does not match the ResourceVersion in record ({version})"),
        ({"uid": uid, "resourceVersion": "1"}, "ResourceVersion"),
    ):
        reply = await kube.delete(one, {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wrong})
        assert (reply.status, reply.reason) == (409, "Conflict")
        assert words in reply.body["message"]
        assert reply.body["details"]["kind"] == "Widget"
    assert (await kube.get(one)).status == 200
    right = {"preconditions": {"uid": uid, "resourceVersion": version}}
    assert (await kube.delete(one, right)).status == 200
    assert (await kube.get(one)).status == 404


async def test_a_dry_run_of_a_delete_deletes_nothing(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    assert (await kube.delete(one, dryRun="All")).status == 200
    assert (await kube.get(one)).body == made


async def test_a_name_that_was_deleted_is_another_object_when_made_again(
    kube: Caller, namespace: str, widgets: Kind
) -> None:
    first = await kube.made(widgets.path(namespace), widgets.body("one"))
    await kube.delete(widgets.path(namespace, "one"))
    second = await kube.made(widgets.path(namespace), widgets.body("one"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_a_collection_is_deleted_by_selector(kube: Caller, namespace: str, widgets: Kind) -> None:
    path = widgets.path(namespace)
    for name, kept in (("a", "no"), ("b", "yes"), ("c", "no")):
        await kube.made(path, widgets.body(name, metadata={"labels": {"keep": kept}}))
    await kube.merge(widgets.path(namespace, "c"), {"metadata": {"finalizers": [FINALIZER]}})
    reply = await kube.delete(path, labelSelector="keep=no")
    assert reply.status == 200
    left = (await kube.get(path)).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["b", "c"]
    assert "deletionTimestamp" in left[1]["metadata"]
    await kube.merge(widgets.path(namespace, "c"), {"metadata": {"finalizers": None}})


async def test_the_generated_client_deletes_a_collection(kube: Caller, namespace: str) -> None:
    core = client.CoreV1Api(kube.client)
    for name in ("a", "b"):
        labelled = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"mine": "yes"}))
        await core.create_namespaced_config_map(namespace, labelled)
    await core.delete_collection_namespaced_config_map(namespace, label_selector="mine=yes")
    assert (await core.list_namespaced_config_map(namespace, label_selector="mine=yes")).items == []


async def test_dependents_go_after_their_owner(kube: Caller, namespace: str) -> None:
    owner = await kube.made(MAPS.path(namespace), MAPS.body("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    held = {"ownerReferences": [reference], "finalizers": [FINALIZER]}
    await kube.made(MAPS.path(namespace), MAPS.body("child", metadata={"ownerReferences": [reference]}))
    await kube.made(MAPS.path(namespace), MAPS.body("held", metadata=held))
    await kube.delete(MAPS.path(namespace, "owner"), propagationPolicy="Background")
    for_child, for_held = MAPS.path(namespace, "child"), MAPS.path(namespace, "held")
    await eventually("the child is gone", lambda: kube.get(for_child), lambda reply: reply.status == 404)
    going = await eventually(
        "the held child is going", lambda: kube.get(for_held), lambda reply: "deletionTimestamp" in reply.meta
    )
    assert going.meta["finalizers"] == [FINALIZER]
    await kube.merge(for_held, {"metadata": {"finalizers": None}})
    assert (await kube.get(for_held)).status == 404


async def test_a_dependent_with_another_owner_stays(kube: Caller, namespace: str) -> None:
    owners = [await kube.made(MAPS.path(namespace), MAPS.body(name)) for name in ("first", "second")]
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}
        for one in owners
    ]
    await kube.made(MAPS.path(namespace), MAPS.body("child", metadata={"ownerReferences": references}))
    await kube.delete(MAPS.path(namespace, "first"), propagationPolicy="Background")
    child = await eventually(
        "the child forgets the owner that is gone",
        lambda: kube.get(MAPS.path(namespace, "child")),
        lambda reply: len(reply.meta["ownerReferences"]) == 1,
    )
    assert child.meta["ownerReferences"][0]["name"] == "second"
    assert "deletionTimestamp" not in child.meta


async def test_orphans_outlive_their_owner(kube: Caller, namespace: str) -> None:
    owner = await kube.made(MAPS.path(namespace), MAPS.body("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await kube.made(MAPS.path(namespace), MAPS.body("child", metadata={"ownerReferences": [reference]}))
    await kube.delete(MAPS.path(namespace, "owner"), propagationPolicy="Orphan")
    await eventually(
        "the owner is gone", lambda: kube.get(MAPS.path(namespace, "owner")), lambda reply: reply.status == 404
    )
    child = await kube.get(MAPS.path(namespace, "child"))
    assert (child.status, "ownerReferences" in child.meta) == (200, False)


async def test_a_dependent_without_an_owner_is_collected(kube: Caller, namespace: str) -> None:
    absent = "00000000-0000-0000-0000-000000000000"
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": absent}
    await kube.made(MAPS.path(namespace), MAPS.body("child", metadata={"ownerReferences": [reference]}))
    await eventually(
        "the child is gone", lambda: kube.get(MAPS.path(namespace, "child")), lambda reply: reply.status == 404
    )
