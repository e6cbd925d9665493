"""CustomResourceDefinitions: established by themselves, served in several versions, gone with all their objects.
Absence of a kind and absence of an object must never look alike."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import Caller, Reply, eventually
from tests.conformance.conftest import install, kind_of, served_at
from tests.conformance.object_paths import DEFINITIONS, GROUP, definition

pytestmark = pytest.mark.long

_SHORT = timedelta(seconds=10)
FINALIZER = "knell.dev/cleanup"


def _conditions(reply: Reply) -> dict[str, str]:
    found: list[dict[str, str]] = reply.body.get("status", {}).get("conditions") or []
    return {one["type"]: one["status"] for one in found}


async def _remove(kube: Caller, wanted: dict[str, Any]) -> None:
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"
    await kube.delete(path)
    await eventually(f"{path} is gone", lambda: kube.get(path), lambda reply: reply.status == 404)


async def test_a_definition_is_established_by_itself(kube: Caller, unique: str) -> None:
    wanted = definition(f"{unique}s")
    made = await kube.made(DEFINITIONS, wanted)
    path = f"{DEFINITIONS}/{unique}s.{GROUP}"
    assert made["status"]["storedVersions"] == ["v1"]
    found = await eventually(
        "it is established", lambda: kube.get(path), lambda reply: _conditions(reply).get("Established") == "True"
    )
    assert _conditions(found)["NamesAccepted"] == "True"
    assert found.body["status"]["acceptedNames"]["plural"] == f"{unique}s"
    assert found.body["spec"]["conversion"] == {"strategy": "None"}
    await served_at(kube, kind_of(wanted).path())
    await _remove(kube, wanted)


async def test_names_must_fit(kube: Caller) -> None:
    wrong = definition("wrongs")
    wrong["metadata"]["name"] = "other.knell.dev"
    reply = await kube.post(DEFINITIONS, wrong)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert 'must be spec.names.plural+"."+spec.group' in reply.body["message"]
    two = definition("wrongs", versions=("v1", "v2"))
    two["spec"]["versions"][1]["storage"] = True
    reply = await kube.post(DEFINITIONS, two)
    assert (reply.status, reply.reason) == (422, "Invalid")


async def test_an_object_has_one_identity_in_all_versions(kube: Caller, namespace: str, unique: str) -> None:
    wanted = definition(f"{unique}s", versions=("v1", "v1beta1"))
    await install(kube, wanted)
    stable, beta = kind_of(wanted, "v1"), kind_of(wanted, "v1beta1")
    made = await kube.made(beta.path(namespace), beta.body("one", spec={"a": 1}))
    assert made["apiVersion"] == f"{GROUP}/v1beta1"
    found = (await kube.get(stable.path(namespace, "one"))).body
    assert found["apiVersion"] == f"{GROUP}/v1"
    assert (found["metadata"]["uid"], found["spec"]) == (made["metadata"]["uid"], {"a": 1})
    version = made["metadata"]["resourceVersion"]
    async with kube.watch(stable.path(namespace), resourceVersion=version) as stream:
        await kube.merge(beta.path(namespace, "one"), {"spec": {"a": 2}})
        event = await stream.next(_SHORT)
    assert (event["object"]["apiVersion"], event["object"]["spec"]) == (f"{GROUP}/v1", {"a": 2})
    await _remove(kube, wanted)


async def test_a_version_that_stops_being_served_is_a_page_that_is_not_found(
    kube: Caller, namespace: str, unique: str
) -> None:
    wanted = definition(f"{unique}s", versions=("v1", "v1beta1"))
    await install(kube, wanted)
    await kube.made(kind_of(wanted).path(namespace), kind_of(wanted).body("one"))
    old = kind_of(wanted, "v1beta1").path(namespace, "one")
    path = f"{DEFINITIONS}/{unique}s.{GROUP}"
    reply = await kube.patch(path, {"op": "replace", "path": "/spec/versions/1/served", "value": False})
    assert (reply.status, reply.meta["generation"]) == (200, 2)
    missing = await eventually("the version is gone", lambda: kube.get(old), lambda reply: reply.status == 404)
    assert missing.text == "404 page not found\n"
    assert (await kube.get(kind_of(wanted).path(namespace, "one"))).status == 200
    await _remove(kube, wanted)


async def test_the_storage_version_moves_and_the_old_one_is_remembered(
    kube: Caller, namespace: str, unique: str
) -> None:
    wanted = definition(f"{unique}s", versions=("v1beta1", "v1"))
    await install(kube, wanted)
    beta, stable = kind_of(wanted, "v1beta1"), kind_of(wanted, "v1")
    made = await kube.made(beta.path(namespace), beta.body("one", spec={"a": 1}))
    path = f"{DEFINITIONS}/{unique}s.{GROUP}"
    await kube.patch(
        path,
        {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": True},
    )
    assert (await kube.get(path)).body["status"]["storedVersions"] == ["v1beta1", "v1"]
    found = await kube.get(stable.path(namespace, "one"))
    assert (found.status, found.meta["uid"]) == (200, made["metadata"]["uid"])
    await _remove(kube, wanted)


async def test_a_kind_of_cluster_scope_has_no_namespaces(kube: Caller, unique: str) -> None:
    wanted = definition(f"{unique}s", scope="Cluster")
    await install(kube, wanted)
    kind = kind_of(wanted)
    made = await kube.made(kind.path(), kind.body("one"))
    assert "namespace" not in made["metadata"]
    assert (await kube.get(kind.path("default", "one"))).status == 404
    assert (await kube.get(kind.path(name="one"))).status == 200
    await _remove(kube, wanted)


async def test_deleting_a_definition_deletes_its_objects_and_waits_for_them(
    kube: Caller, namespace: str, unique: str
) -> None:
    wanted = definition(f"{unique}s")
    await install(kube, wanted)
    kind, path = kind_of(wanted), f"{DEFINITIONS}/{unique}s.{GROUP}"
    held = kind.path(namespace, "held")
    await kube.made(kind.path(namespace), kind.body("plain"))
    await kube.made(kind.path(namespace), kind.body("held", metadata={"finalizers": [FINALIZER]}))
    reply = await kube.delete(path)
    assert (reply.status, reply.body["kind"]) == (200, "CustomResourceDefinition")
    assert "customresourcecleanup.apiextensions.k8s.io" in reply.meta["finalizers"]
    going = await eventually(
        "the held object is going", lambda: kube.get(held), lambda reply: "deletionTimestamp" in reply.meta
    )
    assert going.meta["finalizers"] == [FINALIZER]
    found = await kube.get(path)
    assert _conditions(found)["Terminating"] == "True"
    assert _conditions(found)["Established"] == "True"
    late = await kube.post(kind.path(namespace), kind.body("late"))
    assert (late.status, late.reason) == (403, "Forbidden")
    assert "create not allowed while custom resource definition is terminating" in late.body["message"]
    assert (await kube.get(kind.path(namespace))).status == 200
    await kube.merge(held, {"metadata": {"finalizers": None}})
    await eventually("the definition is gone", lambda: kube.get(path), lambda reply: reply.status == 404)
    missing = await eventually(
        "its objects are not served", lambda: kube.get(held), lambda reply: not reply.text.startswith("{")
    )
    assert (missing.status, missing.text) == (404, "404 page not found\n")


async def test_a_watch_of_a_kind_that_goes_tells_of_its_objects_and_ends(
    kube: Caller, namespace: str, unique: str
) -> None:
    wanted = definition(f"{unique}s")
    await install(kube, wanted)
    kind = kind_of(wanted)
    made = await kube.made(kind.path(namespace), kind.body("one"))
    async with kube.watch(kind.path(), resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        await kube.delete(f"{DEFINITIONS}/{unique}s.{GROUP}")
        events = await asyncio.wait_for(stream.rest(), 60)
    told = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert told == [("DELETED", "one")]


async def test_the_generated_client_reads_a_definition(kube: Caller, unique: str) -> None:
    wanted = definition(f"{unique}s")
    await install(kube, wanted)
    api = client.ApiextensionsV1Api(kube.client)
    found = await api.read_custom_resource_definition(f"{unique}s.{GROUP}")
    assert found.spec.versions[0].subresources.status == {}
    assert {one.type for one in found.status.conditions} >= {"Established", "NamesAccepted"}
    await _remove(kube, wanted)
