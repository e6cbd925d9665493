"""Events and conditions as an object's owner finds them on a real API server."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from service.contract.names import CONDITION, STATUS
from service.kubernetes import (
    CONFIGMAPS,
    NAMESPACES,
    KubeObject,
    KubernetesClient,
    ServedResource,
    connect,
    post_event,
    set_condition,
)
from tests.api_servers import TestApi
from tests.kube import Crd, wait_until
from tests.scripted_api import scripted_api, settings_for, status, thing


async def _arranged(api: TestApi, cluster: KubernetesClient) -> tuple[Crd, str, ServedResource, KubeObject]:
    crd, namespace = api.crd(), api.namespace()
    api.kube.create(crd.path(namespace), crd.body("one"))
    served = await cluster.discover(crd.resource)
    live = await cluster.get(served, namespace, "one")
    assert live is not None
    return crd, namespace, served, live


def _events(api: TestApi, namespace: str, uid: str) -> list[dict[str, Any]]:
    found = api.kube.get(f"/api/v1/namespaces/{namespace}/events")
    assert found is not None
    return [event for event in found["items"] if event["involvedObject"].get("uid") == uid]


def _conditions(api: TestApi, crd: Crd, namespace: str) -> list[dict[str, Any]]:
    found = api.kube.get(crd.path(namespace, "one"))
    assert found is not None
    conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions", [])
    return conditions


async def test_an_event_stands_beside_its_object(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, live = await _arranged(api, cluster)
    assert await post_event(cluster, served, live, "DeletionStarted", "3 targets", "Normal")
    (event,) = _events(api, namespace, live.uid)
    assert (event["reason"], event["message"], event["type"]) == ("DeletionStarted", "3 targets", "Normal")
    assert event["reportingComponent"] == "knell"
    assert event["involvedObject"]["kind"] == crd.kind
    assert event["involvedObject"]["name"] == "one"


async def test_a_long_message_is_cut_and_not_refused(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, live = await _arranged(api, cluster)
    assert await post_event(cluster, served, live, "Held", "ü" * 5000, "Warning")
    (event,) = _events(api, namespace, live.uid)
    assert 1000 < len(event["message"].encode()) <= 1024


async def test_an_event_of_a_cluster_scoped_object_stands_in_default(api: TestApi, cluster: KubernetesClient) -> None:
    namespace = api.namespace()
    live = await cluster.get(NAMESPACES, "", namespace)
    assert live is not None
    wait_until("there is the namespace default", lambda: api.kube.get("/api/v1/namespaces/default") is not None)
    assert await post_event(cluster, NAMESPACES, live, "Held", "why")
    assert [event["reason"] for event in _events(api, "default", live.uid)] == ["Held"]


async def test_an_event_that_is_refused_fails_nothing(cluster: KubernetesClient, tmp_path: Path) -> None:
    nowhere = KubeObject(uid="u", name="one", namespace="there-is-no-such-namespace")
    assert not await post_event(cluster, CONFIGMAPS, nowhere, "Held", "why")

    async def handler(_: web.Request) -> web.StreamResponse:
        return status(403, "Forbidden", "unable to create new content in namespace x because it is being terminated")

    async with scripted_api(handler) as address, await connect("x", settings_for(address, tmp_path)) as refusing:
        assert not await post_event(refusing, CONFIGMAPS, nowhere, "Held", "why")
        assert not await set_condition(refusing, CONFIGMAPS, nowhere, CONDITION, "False", "Held", "why")


async def test_a_condition_is_set_beside_those_of_others(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, live = await _arranged(api, cluster)
    ready = {"type": "Ready", "status": "True", "severity": "a field of their own"}
    await cluster.patch(
        served, namespace, "one", {"status": {"phase": "up", "conditions": [ready]}}, subresource="status"
    )
    # The view is stale by now, which must have no effect.
    assert await set_condition(cluster, served, live, CONDITION, "False", "Deleting", "2 of 3 are gone")
    first, ours = _conditions(api, crd, namespace)
    assert first == ready
    assert (ours["type"], ours["status"], ours["reason"]) == (CONDITION, "False", "Deleting")
    assert ours["message"] == "2 of 3 are gone"
    found = api.kube.get(crd.path(namespace, "one"))
    assert found is not None
    assert found["status"]["phase"] == "up"


async def test_the_last_transition_moves_only_with_the_status(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, live = await _arranged(api, cluster)
    long_ago = "2001-01-01T00:00:00Z"
    ours = {"type": CONDITION, "status": "False", "reason": "A", "message": "m", "lastTransitionTime": long_ago}
    await cluster.patch(served, namespace, "one", {"status": {"conditions": [ours]}}, subresource="status")
    assert await set_condition(cluster, served, live, CONDITION, "False", "B", "another reason")
    (kept,) = _conditions(api, crd, namespace)
    assert (kept["reason"], kept["lastTransitionTime"]) == ("B", long_ago)
    assert await set_condition(cluster, served, live.without_raw(), CONDITION, "True", "C", "done")
    (moved,) = _conditions(api, crd, namespace)
    assert moved["status"] == "True"
    assert moved["lastTransitionTime"] > long_ago


async def test_a_condition_that_says_the_same_writes_nothing(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, live = await _arranged(api, cluster)
    assert await set_condition(cluster, served, live, CONDITION, "False", "A", "m")
    before = await cluster.get(served, namespace, "one")
    assert await set_condition(cluster, served, live.without_raw(), CONDITION, "False", "A", "m")
    after = await cluster.get(served, namespace, "one")
    assert before is not None
    assert after is not None
    assert before.resource_version == after.resource_version


async def test_an_object_without_a_status_gets_an_annotation(api: TestApi, cluster: KubernetesClient) -> None:
    namespace = api.namespace()
    live = await cluster.create(CONFIGMAPS, namespace, {"metadata": {"name": "one"}, "data": {"kept": "yes"}})
    assert await set_condition(cluster, CONFIGMAPS, live, CONDITION, "False", "Held", "a wrong value")
    found = await cluster.get(CONFIGMAPS, namespace, "one")
    assert found is not None
    told = msgspec.json.decode(found.annotations[STATUS])
    assert (told["type"], told["status"], told["reason"], told["message"]) == (
        CONDITION,
        "False",
        "Held",
        "a wrong value",
    )
    assert await set_condition(cluster, CONFIGMAPS, live, CONDITION, "False", "Held", "another")
    again = await cluster.get(CONFIGMAPS, namespace, "one")
    assert again is not None
    assert msgspec.json.decode(again.raw)["data"] == {"kept": "yes"}
    assert msgspec.json.decode(again.annotations[STATUS])["message"] == "another"


@pytest.mark.parametrize("refusal", ["drops", "refuses"])
async def test_a_status_without_room_for_conditions_falls_back_to_the_annotation(tmp_path: Path, refusal: str) -> None:
    """A schema may drop what it does not know, or a webhook refuse it, as KubeFed's does."""
    live: dict[str, Any] = thing("one", namespace="ns")
    patched: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            patched.append(request.path)
            if request.path.endswith("/status") and refusal == "refuses":
                return status(422, "Invalid", "status.conditions[0].type: Unsupported value")
            live["metadata"].update((await request.json())["metadata"])
        return web.json_response(live)

    things = msgspec.structs.replace(CONFIGMAPS, plural="things", kind="Thing", status=True)
    seen = KubeObject(uid="uid-one", name="one", namespace="ns")
    async with scripted_api(handler) as address, await connect("x", settings_for(address, tmp_path)) as cluster:
        assert await set_condition(cluster, things, seen, CONDITION, "False", "Held", "why")
    assert patched == ["/api/v1/namespaces/ns/things/one/status", "/api/v1/namespaces/ns/things/one"]
    assert msgspec.json.decode(live["metadata"]["annotations"][STATUS])["reason"] == "Held"


async def test_another_object_of_the_same_name_gets_no_condition(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, live = await _arranged(api, cluster)
    api.kube.delete(crd.path(namespace, "one"))
    assert not await set_condition(cluster, served, live, CONDITION, "True", "Done", "all gone")
    api.kube.create(crd.path(namespace), crd.body("one"))
    assert not await set_condition(cluster, served, live.without_raw(), CONDITION, "True", "Done", "all gone")
    assert not await set_condition(cluster, served, live, CONDITION, "True", "Done", "all gone")
    assert _conditions(api, crd, namespace) == []
