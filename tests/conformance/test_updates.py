"""Update and patch: optimistic, whole or in part.
A change decided on an old state must never land on a new one."""

import asyncio

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import MERGE, PATCH, STRATEGIC, Caller
from tests.conformance.object_paths import LEASES, MAPS, Kind

pytestmark = pytest.mark.long

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_an_update_of_an_old_state_is_a_conflict(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    made = await kube.made(widgets.path(namespace), widgets.body("one", spec={"a": 1}))
    newer = await kube.put(one, {**made, "spec": {"a": 2}})
    assert newer.status == 200
    assert int(newer.meta["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    reply = await kube.put(one, {**made, "spec": {"a": 3}})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert reply.body["message"] == f'Operation cannot be fulfilled on {widgets.name} "one": {_MODIFIED}'
    assert reply.body["details"] == {"name": "one", "group": widgets.group, "kind": "widgets"}
    assert (await kube.get(one)).body["spec"] == {"a": 2}


async def test_an_update_must_say_what_it_saw_where_the_kind_demands_it(
    kube: Caller, namespace: str, widgets: Kind
) -> None:
    for kind in (widgets, LEASES):
        await kube.made(kind.path(namespace), kind.body("one", spec={}))
        reply = await kube.put(kind.path(namespace, "one"), kind.body("one", spec={}))
        assert (reply.status, reply.reason) == (422, "Invalid")
        assert reply.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"
        assert "must be specified for an update" in reply.body["message"]
    await kube.made(MAPS.path(namespace), MAPS.body("one"))
    assert (await kube.put(MAPS.path(namespace, "one"), MAPS.body("one", data={"a": "b"}))).body["data"] == {"a": "b"}


async def test_an_update_of_another_object_of_that_name_is_a_conflict(
    kube: Caller, namespace: str, widgets: Kind
) -> None:
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    other = {**made, "metadata": {**made["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    reply = await kube.put(widgets.path(namespace, "one"), other)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 00000000-" in reply.body["message"]


async def test_an_update_must_be_of_the_name_in_the_path(kube: Caller, namespace: str, widgets: Kind) -> None:
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    renamed = {**made, "metadata": {**made["metadata"], "name": "two"}}
    reply = await kube.put(widgets.path(namespace, "one"), renamed)
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "(two) does not match the name on the URL (one)" in reply.body["message"]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_what_is_absent_cannot_be_changed(kube: Caller, namespace: str, widgets: Kind, method: str) -> None:
    body = None if method == "DELETE" else widgets.body("nobody", metadata={"resourceVersion": "5"})
    kind = MERGE if method == "PATCH" else "application/json"
    reply = await kube.ask(method, widgets.path(namespace, "nobody"), body, kind=kind)
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.body["details"] == {"name": "nobody", "group": widgets.group, "kind": "widgets"}


async def test_system_fields_that_are_left_out_stay(kube: Caller, namespace: str, widgets: Kind) -> None:
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    version = made["metadata"]["resourceVersion"]
    bare = widgets.body("one", metadata={"resourceVersion": version, "labels": {"a": "b"}, "generation": 99})
    reply = await kube.put(widgets.path(namespace, "one"), bare)
    kept = ("uid", "creationTimestamp", "generation")
    assert {name: reply.meta[name] for name in kept} == {name: made["metadata"][name] for name in kept}
    assert reply.meta["labels"] == {"a": "b"}


async def test_a_merge_patch_merges_and_null_removes(kube: Caller, namespace: str, widgets: Kind) -> None:
    meta = {"labels": {"keep": "1", "drop": "2"}}
    spec = {"list": [1, 2], "map": {"a": 1, "b": 2}}
    await kube.made(widgets.path(namespace), widgets.body("one", metadata=meta, spec=spec))
    patch = {"metadata": {"labels": {"drop": None, "new": "3"}}, "spec": {"list": [3], "map": {"a": None, "c": 3}}}
    reply = await kube.merge(widgets.path(namespace, "one"), patch)
    assert reply.status == 200
    assert reply.meta["labels"] == {"keep": "1", "new": "3"}
    assert reply.body["spec"] == {"list": [3], "map": {"b": 2, "c": 3}}


@pytest.mark.parametrize("form", ["merge", "json"])
async def test_a_patch_that_says_what_it_saw_conflicts_when_that_is_old(
    kube: Caller, namespace: str, widgets: Kind, form: str
) -> None:
    one = widgets.path(namespace, "one")
    made = await kube.made(widgets.path(namespace), widgets.body("one", spec={"a": 1}))
    seen = made["metadata"]["resourceVersion"]

    async def decide(version: str, finalizer: str) -> tuple[int, str]:
        if form == "merge":
            reply = await kube.merge(one, {"metadata": {"resourceVersion": version, "finalizers": [finalizer]}})
        else:
            reply = await kube.patch(
                one,
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]},
            )
        return reply.status, reply.body.get("message", "")

    newer = await kube.merge(one, {"spec": {"a": 2}})
    message = f'Operation cannot be fulfilled on {widgets.name} "one": {_MODIFIED}'
    assert await decide(seen, "knell.dev/late") == (409, message)
    assert (await decide(newer.meta["resourceVersion"], "knell.dev/cleanup"))[0] == 200
    assert (await kube.get(one)).meta["finalizers"] == ["knell.dev/cleanup"]
    await kube.merge(one, {"metadata": {"finalizers": None}})


async def test_a_json_patch_applies_in_order_or_not_at_all(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    spec = {"list": ["a", "b"], "a/b": 1, "x": {"deep": True}}
    made = await kube.made(widgets.path(namespace), widgets.body("one", spec=spec))
    reply = await kube.patch(
        one,
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "add", "path": "/spec/list/1", "value": "between"},
        {"op": "add", "path": "/spec/list/-", "value": "last"},
        {"op": "remove", "path": "/spec/list/0"},
        {"op": "replace", "path": "/spec/a~1b", "value": 2},
        {"op": "copy", "from": "/spec/x", "path": "/spec/y"},
        {"op": "move", "from": "/spec/x/deep", "path": "/spec/moved"},
    )
    assert reply.status == 200, reply.text
    assert reply.body["spec"] == {
        "list": ["between", "b", "last"],
        "a/b": 2,
        "x": {},
        "y": {"deep": True},
        "moved": True,
    }
    failed = await kube.patch(
        one, {"op": "add", "path": "/spec/new", "value": 1}, {"op": "test", "path": "/spec/a~1b", "value": 1}
    )
    assert failed.status == 422
    assert "new" not in (await kube.get(one)).body["spec"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/a", "value": 2},
        {"op": "test", "path": "/metadata/uid", "value": "another"},
        {"op": "test", "path": "/metadata/finalizers/0", "value": "knell.dev/cleanup"},
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "replace", "path": "/nothing/at/all", "value": 1},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "knell.dev/cleanup"},
        {"op": "dance", "path": "/spec/a"},
    ],
)
async def test_a_json_patch_that_does_not_apply_is_invalid(
    kube: Caller, namespace: str, widgets: Kind, operation: dict[str, object]
) -> None:
    await kube.made(widgets.path(namespace), widgets.body("one", spec={"a": 1}))
    reply = await kube.patch(widgets.path(namespace, "one"), operation)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["message"] == "the server rejected our request due to an error in our request"
    assert reply.body["details"] == {}


async def test_a_test_of_what_is_not_there_holds_for_null(kube: Caller, namespace: str, widgets: Kind) -> None:
    await kube.made(widgets.path(namespace), widgets.body("one", spec={"a": 1}))
    absent = {"op": "test", "path": "/metadata/finalizers", "value": None}
    assert (await kube.patch(widgets.path(namespace, "one"), absent)).status == 200


async def test_a_finalizer_is_taken_off_by_its_place_and_name(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    meta = {"finalizers": ["other.dev/a", "knell.dev/cleanup", "other.dev/b"]}
    await kube.made(widgets.path(namespace), widgets.body("one", metadata=meta))
    patch = (
        {"op": "test", "path": "/metadata/finalizers/1", "value": "knell.dev/cleanup"},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    )
    assert (await kube.patch(one, *patch)).meta["finalizers"] == ["other.dev/a", "other.dev/b"]
    assert (await kube.patch(one, *patch)).status == 422
    await kube.merge(one, {"metadata": {"finalizers": None}})


async def test_patches_of_different_parts_all_land(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    await kube.made(widgets.path(namespace), widgets.body("one"))
    replies = await asyncio.gather(*[kube.merge(one, {"spec": {f"k{n}": n}}) for n in range(4)])
    assert [reply.status for reply in replies] == [200] * 4
    assert (await kube.get(one)).body["spec"] == {f"k{n}": n for n in range(4)}


@pytest.mark.parametrize(
    ("field", "value"),
    [("uid", "00000000-0000-0000-0000-000000000000"), ("deletionTimestamp", "2001-01-01T00:00:00Z")],
)
async def test_what_is_the_servers_cannot_be_patched(
    kube: Caller, namespace: str, widgets: Kind, field: str, value: str
) -> None:
    await kube.made(widgets.path(namespace), widgets.body("one"))
    reply = await kube.merge(widgets.path(namespace, "one"), {"metadata": {field: value}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["causes"][0]["field"] == f"metadata.{field}"
    assert "field is immutable" in reply.body["message"]


async def test_a_patch_of_an_unknown_type_is_refused(kube: Caller, namespace: str, widgets: Kind) -> None:
    await kube.made(widgets.path(namespace), widgets.body("one"))
    one = widgets.path(namespace, "one")
    for kind in ("application/json", STRATEGIC):
        reply = await kube.ask("PATCH", one, {"spec": {"a": 1}}, kind=kind)
        assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    assert (await kube.ask("PATCH", one, ["no", "patch"], kind=MERGE)).status == 400
    assert (await kube.ask("PATCH", one, {"op": "test"}, kind=PATCH)).status == 400


async def test_a_built_in_kind_takes_a_strategic_patch_of_its_labels(kube: Caller, namespace: str) -> None:
    core = client.CoreV1Api(kube.client)
    labelled = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one", labels={"a": "1"}))
    await core.create_namespaced_config_map(namespace, labelled)
    body = {"metadata": {"labels": {"b": "2"}}, "data": {"x": "y"}}
    patched = await core.patch_namespaced_config_map("one", namespace, body)
    assert patched.metadata.labels == {"a": "1", "b": "2"}
    assert patched.data == {"x": "y"}


async def test_generation_rises_with_the_spec_alone(kube: Caller, namespace: str, widgets: Kind) -> None:
    one = widgets.path(namespace, "one")
    await kube.made(widgets.path(namespace), widgets.body("one", spec={"a": 1}))
    assert (await kube.merge(one, {"metadata": {"labels": {"a": "b"}}})).meta["generation"] == 1
    assert (await kube.merge(one, {"spec": {"a": 2}})).meta["generation"] == 2
    assert (await kube.merge(f"{one}/status", {"status": {"ready": True}})).meta["generation"] == 2
    assert (await kube.merge(one, {"status": {"ready": False}})).meta["generation"] == 2


async def test_what_becomes_empty_is_left_out(kube: Caller, namespace: str, widgets: Kind) -> None:
    meta = {"labels": {"a": "b"}, "finalizers": ["knell.dev/cleanup"]}
    await kube.made(widgets.path(namespace), widgets.body("one", metadata=meta))
    reply = await kube.merge(widgets.path(namespace, "one"), {"metadata": {"labels": {"a": None}, "finalizers": []}})
    assert not {"labels", "finalizers"} & set(reply.meta)
