"""Namespaces: the cluster's identity lies in one, and deleting one deletes what it holds.
A Namespace goes last, so whoever holds a finalizer in it holds it, too."""

import pytest

from tests.conformance.api_caller import Caller, eventually
from tests.conformance.object_paths import EVENTS, MAPS, NAMESPACES, NEW_EVENTS, Kind

pytestmark = pytest.mark.long

FINALIZER = "knell.dev/cleanup"


async def _gone(kube: Caller, path: str) -> None:
    await eventually(f"{path} is gone", lambda: kube.get(path), lambda reply: reply.status == 404)


async def test_the_clusters_identity_is_there_from_the_start(kube: Caller) -> None:
    first = await kube.get(f"{NAMESPACES}/kube-system")
    assert first.status == 200
    assert len(first.meta["uid"]) == 36
    assert (await kube.get(f"{NAMESPACES}/kube-system")).meta["uid"] == first.meta["uid"]
    assert (await kube.get(f"{NAMESPACES}/default")).status == 200


async def test_the_first_namespaces_cannot_be_deleted(kube: Caller) -> None:
    for name in ("kube-system", "default"):
        reply = await kube.delete(f"{NAMESPACES}/{name}")
        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.body["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


async def test_an_empty_namespace_goes(kube: Caller, namespace: str) -> None:
    reply = await kube.delete(f"{NAMESPACES}/{namespace}")
    assert (reply.status, reply.body["kind"]) == (200, "Namespace")
    assert reply.meta["deletionTimestamp"]
    assert reply.body["status"]["phase"] == "Terminating"
    await _gone(kube, f"{NAMESPACES}/{namespace}")


async def test_a_namespace_goes_after_everything_in_it(kube: Caller, namespace: str, widgets: Kind) -> None:
    for kind in (MAPS, widgets):
        await kube.made(kind.path(namespace), kind.body("plain"))
    await kube.made(widgets.path(namespace), widgets.body("held", metadata={"finalizers": [FINALIZER]}))
    held = widgets.path(namespace, "held")
    await kube.delete(f"{NAMESPACES}/{namespace}")
    await _gone(kube, widgets.path(namespace, "plain"))
    await _gone(kube, MAPS.path(namespace, "plain"))
    going = await eventually(
        "the held object is going", lambda: kube.get(held), lambda reply: "deletionTimestamp" in reply.meta
    )
    assert going.meta["finalizers"] == [FINALIZER]

    def tells(body: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
        conditions = {one["type"]: one for one in body["status"].get("conditions", [])}
        return conditions.get("NamespaceFinalizersRemaining", {}).get("status") == "True"

    told = await eventually(
        "the Namespace says what keeps it",
        lambda: kube.get(f"{NAMESPACES}/{namespace}"),
        lambda reply: reply.status == 200 and tells(reply.body),
    )
    assert FINALIZER in told.text
    assert widgets.name in told.text
    await kube.merge(held, {"metadata": {"finalizers": None}})
    await _gone(kube, f"{NAMESPACES}/{namespace}")


async def test_nothing_is_created_in_a_namespace_that_is_going(kube: Caller, namespace: str, widgets: Kind) -> None:
    await kube.made(widgets.path(namespace), widgets.body("held", metadata={"finalizers": [FINALIZER]}))
    await kube.delete(f"{NAMESPACES}/{namespace}")
    about = {"namespace": namespace, "name": "held", "kind": "Widget"}
    for kind, content in (
        (widgets, {}),
        (MAPS, {}),
        (EVENTS, {"involvedObject": about}),
        (
            NEW_EVENTS,
            {
                "regarding": about,
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reason": "Waiting",
                "action": "Deleting",
                "type": "Normal",
                "reportingController": "knell.dev/controller",
                "reportingInstance": "one",
            },
        ),
    ):
        reply = await kube.post(kind.path(namespace), kind.body("late", **content))
        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.body["message"] == (
            f'{kind.name} "late" is forbidden: unable to create new content in namespace {namespace} '
            "because it is being terminated"
        )
        (cause,) = reply.body["details"]["causes"]
        assert cause["reason"] == "NamespaceTerminating"
    held = widgets.path(namespace, "held")
    assert (await kube.merge(held, {"metadata": {"annotations": {"a": "b"}}})).status == 200
    await kube.merge(held, {"metadata": {"finalizers": None}})
    await _gone(kube, f"{NAMESPACES}/{namespace}")


async def test_a_finalizer_of_its_own_keeps_an_empty_namespace(kube: Caller, namespace: str) -> None:
    place = f"{NAMESPACES}/{namespace}"
    await kube.merge(place, {"metadata": {"finalizers": [FINALIZER]}})
    await kube.delete(place)
    emptied = await eventually(
        "the namespace controller is done",
        lambda: kube.get(place),
        lambda reply: not reply.body["spec"].get("finalizers"),
    )
    assert emptied.meta["finalizers"] == [FINALIZER]
    await kube.merge(place, {"metadata": {"finalizers": None}})
    await _gone(kube, place)


async def test_annotations_of_a_namespace_are_patched_and_read(kube: Caller, namespace: str) -> None:
    place = f"{NAMESPACES}/{namespace}"
    reply = await kube.merge(place, {"metadata": {"annotations": {"knell.dev/deletion-policy": "retain"}}})
    assert reply.status == 200
    assert (await kube.get(place)).meta["annotations"]["knell.dev/deletion-policy"] == "retain"
    assert reply.body["spec"] == {"finalizers": ["kubernetes"]}
