"""Discovery: what a client reads before it knows any kind.
A missing path gives plain text, which can't be mistaken for the absence of an object."""

from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import Caller, Reply, eventually
from tests.conformance.conftest import install
from tests.conformance.object_paths import DEFINITIONS, GROUP, Kind, definition

pytestmark = pytest.mark.long


def _groups(reply: Reply) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reply.body["groups"]
    return found


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_server_that_runs_says_that_it_is_well(kube: Caller, path: str) -> None:
    reply = await kube.get(path)
    assert (reply.status, reply.text) == (200, "ok")


async def test_the_version_is_served(kube: Caller) -> None:
    version = await client.VersionApi(kube.client).get_code()
    assert version.major == "1"
    assert int(version.minor) >= 30
    assert version.git_version.startswith("v1.")


async def test_the_core_group_lists_its_resources_with_scope_and_verbs(kube: Caller) -> None:
    assert "v1" in (await kube.get("/api")).body["versions"]
    found = {one.name: one for one in (await client.CoreV1Api(kube.client).get_api_resources()).resources}
    assert found["configmaps"].namespaced is True
    assert found["namespaces"].namespaced is False
    assert found["configmaps"].kind == "ConfigMap"
    assert {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} <= set(
        found["configmaps"].verbs
    )
    assert {"serviceaccounts/token", "namespaces/status", "namespaces/finalize"} <= set(found)


async def test_groups_are_listed_with_their_preferred_versions(kube: Caller, widgets: Kind) -> None:
    # Discovery follows a new definition after a moment, also when its objects are served already.
    found = await eventually(
        "the group is listed", lambda: kube.get("/apis"), lambda reply: GROUP in {one["name"] for one in _groups(reply)}
    )
    groups = {one["name"]: one for one in _groups(found)}
    assert groups["coordination.k8s.io"]["preferredVersion"]["version"] == "v1"
    assert groups["apiextensions.k8s.io"]["preferredVersion"]["groupVersion"] == "apiextensions.k8s.io/v1"
    assert {"groupVersion": f"{GROUP}/v1", "version": "v1"} in groups[GROUP]["versions"]
    one = (await kube.get(f"/apis/{GROUP}")).body
    assert (one["kind"], one["name"]) == ("APIGroup", GROUP)


async def test_a_custom_kind_is_listed_with_its_status(kube: Caller, widgets: Kind) -> None:
    listed = await eventually(
        "the kind is listed",
        lambda: kube.get(f"/apis/{GROUP}/v1"),
        lambda reply: reply.status == 200 and '"widgets/status"' in reply.text,
    )
    assert listed.body["groupVersion"] == f"{GROUP}/v1"
    found = {one["name"]: one for one in listed.body["resources"]}
    assert (found["widgets"]["kind"], found["widgets"]["namespaced"]) == ("Widget", True)
    assert found["widgets"]["singularName"] == "widget"
    assert "patch" in found["widgets/status"]["verbs"]


async def test_stable_versions_are_preferred_over_newer_tries(kube: Caller, unique: str) -> None:
    wanted = definition(f"{unique}s", versions=("v1alpha1", "v1beta1", "v1", "v2alpha1"))
    group = f"{unique}.{GROUP}"
    wanted["spec"]["group"] = group
    wanted["metadata"]["name"] = f"{unique}s.{group}"
    await kube.made(DEFINITIONS, wanted)
    found = await eventually(
        "all versions are listed",
        lambda: kube.get(f"/apis/{group}"),
        lambda reply: reply.status == 200 and len(reply.body["versions"]) == 4,
    )
    assert [one["version"] for one in found.body["versions"]] == ["v1", "v1beta1", "v2alpha1", "v1alpha1"]
    assert found.body["preferredVersion"]["version"] == "v1"
    await kube.delete(f"{DEFINITIONS}/{unique}s.{group}")


@pytest.mark.parametrize(
    "path",
    [
        "/apis/nobody.knell.dev",
        "/apis/nobody.knell.dev/v1",
        "/apis/nobody.knell.dev/v1/widgets",
        "/apis/nobody.knell.dev/v1/namespaces/default/widgets/one",
        f"/apis/{GROUP}/v1/nothings",
        f"/apis/{GROUP}/v9/widgets",
        f"/apis/{GROUP}/v1/namespaces/default/gadgets",
        f"/apis/{GROUP}/v1/widgets/one",
        "/nothing",
    ],
)
async def test_what_is_not_served_is_a_page_that_is_not_found(
    kube: Caller, widgets: Kind, gadgets: Kind, path: str
) -> None:
    reply = await kube.get(path)
    assert (reply.status, reply.text) == (404, "404 page not found\n")
    assert reply.kind.startswith("text/plain")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nothings",
        "/api/v9",
        "/api/v1/namespaces/default/nothings/one",
        "/api/v1/namespaces/default/configmaps/one/status",
        "/apis/coordination.k8s.io/v1/nothings",
        "/apis/coordination.k8s.io/v9/leases",
        "/apis/apiextensions.k8s.io/v1/nothings",
    ],
)
async def test_what_a_group_of_the_servers_own_does_not_serve_names_no_object(kube: Caller, path: str) -> None:
    reply = await kube.get(path)
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.body["details"] == {}
    assert reply.body["message"] == "the server could not find the requested resource"


async def test_a_version_that_is_not_served_is_a_page_that_is_not_found(kube: Caller, unique: str) -> None:
    wanted = definition(f"{unique}s", versions=("v1", "v2"), served=("v1",))
    await install(kube, wanted)
    reply = await kube.get(f"/apis/{GROUP}/v2/{unique}s")
    assert (reply.status, reply.text) == (404, "404 page not found\n")
    await kube.delete(f"{DEFINITIONS}/{unique}s.{GROUP}")
