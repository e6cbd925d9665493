"""Identity, discovery, lists and single objects, read from a real API server."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from service.kubernetes import (
    CRDS,
    NAMESPACES,
    Forbidden,
    Invalid,
    KubeObject,
    KubernetesClient,
    NotFound,
    NotServed,
    Unauthorized,
    Unreadable,
    connect,
)
from service.kubernetes.decoding import decode_item
from service.settings import ClusterSettings
from tests.api_servers import TestApi
from tests.kube import Crd, wait_until


def _fill(api: TestApi, crd: Crd, namespace: str, count: int, **metadata: object) -> None:
    for number in range(count):
        api.kube.create(crd.path(namespace), crd.body(f"w{number:03}", **metadata))


def _bearer(api: TestApi, folder: Path, token: str) -> ClusterSettings:
    """Settings that lead to this server with another token."""
    settings = api.settings(folder)
    assert settings.kubeconfig is not None
    settings.kubeconfig.write_text(settings.kubeconfig.read_text().replace(api.token, token))
    return settings


async def _all(
    cluster: KubernetesClient, crd: Crd, namespace: str | None, selector: str = "", limit: int = 500
) -> list[KubeObject]:
    served = await cluster.discover(crd.resource)
    return [seen async for page in cluster.pages(served, namespace, selector, limit) for seen in page.items]


async def test_the_identity_is_the_uid_of_kube_system(api: TestApi, cluster: KubernetesClient) -> None:
    found = api.kube.get("/api/v1/namespaces/kube-system")
    assert found is not None
    assert await cluster.identity() == found["metadata"]["uid"]


async def test_a_custom_resource_is_discovered_with_its_kind_scope_and_status(
    api: TestApi, cluster: KubernetesClient
) -> None:
    crd = api.crd()
    served = await cluster.discover(crd.resource)
    assert (served.group, served.version, served.plural, served.kind) == (crd.group, "v1", crd.plural, crd.kind)
    assert served.namespaced
    assert served.status
    assert {"list", "watch", "patch", "get"} <= set(served.verbs)


async def test_core_and_built_in_resources_are_discovered(cluster: KubernetesClient) -> None:
    namespaces = await cluster.discover("namespaces")
    assert (namespaces.group, namespaces.version, namespaces.namespaced) == ("", "v1", False)
    assert namespaces.path("", "one") == "/api/v1/namespaces/one"
    leases = await cluster.discover("leases.coordination.k8s.io")
    assert leases.path("ns", "one") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/one"
    assert not leases.status


@pytest.mark.long  # a CRD goes at its own pace
async def test_a_resource_without_a_crd_is_not_served(cluster: KubernetesClient) -> None:
    with pytest.raises(NotServed):
        await cluster.discover("nothings.nowhere.knell.test")
    with pytest.raises(NotServed):
        await cluster.discover("nothings")
    assert await cluster.crd_state("nothings.nowhere.knell.test") == "absent"


async def test_a_served_version_that_changes_is_discovered_again(api: TestApi, cluster: KubernetesClient) -> None:
    crd = api.crd(versions=("v1beta1",))
    namespace = api.namespace()
    _fill(api, crd, namespace, 1)
    old = await cluster.discover(crd.resource)
    assert old.version == "v1beta1"
    before = await cluster.get(old, namespace, "w000")
    definition = api.kube.get(crd.own_path)
    assert definition is not None
    (first,) = definition["spec"]["versions"]
    versions = [{**first, "served": False, "storage": False}, {**first, "name": "v1", "served": True, "storage": True}]
    api.kube.patch(crd.own_path, {"spec": {"versions": versions}})
    wait_until("v1 is served", lambda: api.kube.request("GET", f"/apis/{crd.group}/v1/{crd.plural}").status == 200)
    wait_until("v1beta1 is not", lambda: api.kube.request("GET", crd.path()).status == 404)
    with pytest.raises(NotServed):
        await cluster.get(old, namespace, "w000")
    with pytest.raises(NotServed):
        [page async for page in cluster.pages(old, namespace)]
    new = await cluster.discover(crd.resource)
    assert new.version == "v1"
    after = await cluster.get(new, namespace, "w000")
    assert before is not None
    assert after is not None
    assert after.uid == before.uid


@pytest.mark.long  # a CRD goes at its own pace
async def test_the_state_of_a_crd_is_read(api: TestApi, cluster: KubernetesClient) -> None:
    crd = api.crd()
    namespace = api.namespace()
    assert await cluster.crd_state(crd.resource) == "established"
    assert await cluster.crd_state("pods") == "built-in"
    assert await cluster.crd_state("deployments.apps") == "built-in"
    assert await cluster.crd_state("leases.coordination.k8s.io") == "built-in"
    _fill(api, crd, namespace, 1, finalizers=["knell.test/held"])
    api.kube.delete(crd.own_path)
    assert await cluster.crd_state(crd.resource) == "going"
    api.kube.patch(crd.path(namespace, "w000"), {"metadata": {"finalizers": []}})
    wait_until("the CRD is gone", lambda: api.kube.get(crd.own_path) is None)
    assert await cluster.crd_state(crd.resource) == "absent"


@pytest.mark.long  # a CRD goes at its own pace
async def test_an_object_of_a_crd_that_is_gone_is_not_called_absent(api: TestApi, cluster: KubernetesClient) -> None:
    crd = api.crd()
    namespace = api.namespace()
    _fill(api, crd, namespace, 1)
    served = await cluster.discover(crd.resource)
    api.kube.delete(crd.own_path)
    wait_until("its resource is gone", lambda: api.kube.request("GET", crd.path()).status == 404)
    with pytest.raises(NotServed):
        await cluster.get(served, namespace, "w000")


async def test_a_list_comes_in_pages_of_one_resource_version(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    _fill(api, crd, namespace, 25)
    served = await cluster.discover(crd.resource)
    versions, names = set(), []
    async for page in cluster.pages(served, namespace, limit=10):
        assert len(page.items) <= 10
        versions.add(page.resource_version)
        names += [seen.name for seen in page.items]
        if len(names) == 10:
            # What is created while the list goes on belongs to the watch, not to the list.
            api.kube.create(crd.path(namespace), crd.body("x-late"))
    assert names == [f"w{number:03}" for number in range(25)]
    assert len(versions) == 1


async def test_an_empty_list_is_one_page_with_a_resource_version(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    (page,) = [page async for page in cluster.pages(served, namespace)]
    assert page.items == []
    assert int(page.resource_version) > 0


async def test_a_selector_and_a_namespace_narrow_a_list(api: TestApi, cluster: KubernetesClient) -> None:
    crd, one, other = api.crd(), api.namespace(), api.namespace()
    api.kube.create(crd.path(one), crd.body("a", labels={"team": "x"}))
    api.kube.create(crd.path(one), crd.body("b", labels={"team": "y"}))
    api.kube.create(crd.path(other), crd.body("c", labels={"team": "x"}))
    assert [seen.name for seen in await _all(cluster, crd, one)] == ["a", "b"]
    assert sorted(seen.name for seen in await _all(cluster, crd, None)) == ["a", "b", "c"]
    assert sorted(seen.name for seen in await _all(cluster, crd, None, "team in (x)")) == ["a", "c"]
    with pytest.raises(Invalid):
        await _all(cluster, crd, None, "team in (")


async def test_what_is_kept_of_an_object_is_its_identity_and_its_marks(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    body = crd.body(
        "full",
        labels={"team": "x"},
        finalizers=["knell.test/one", "knell.test/two"],
        annotations={
            "knell.dev/dry-run": "true",
            "rds.services.k8s.aws/deletion-policy": "retain",
            "notknell.dev/mark": "no",
            "kubectl.kubernetes.io/last-applied-configuration": "x" * 1000,
        },
    )
    made = api.kube.create(crd.path(namespace), {**body, "spec": {"depth": [1, {"more": "yes"}]}})
    (seen,) = await _all(cluster, crd, namespace)
    assert (seen.uid, seen.name, seen.namespace) == (made["metadata"]["uid"], "full", namespace)
    assert seen.resource_version == made["metadata"]["resourceVersion"]
    assert seen.labels == {"team": "x"}
    assert seen.annotations == {"knell.dev/dry-run": "true", "rds.services.k8s.aws/deletion-policy": "retain"}
    assert seen.finalizers == ("knell.test/one", "knell.test/two")
    assert seen.generation == 1
    assert seen.created > 1_700_000_000_000
    assert (seen.deleting, seen.going) == (0, False)
    assert msgspec.json.decode(seen.raw)["spec"] == {"depth": [1, {"more": "yes"}]}
    assert bytes(seen.without_raw().raw) == b""
    api.kube.delete(crd.path(namespace, "full"))
    (going,) = await _all(cluster, crd, namespace)
    assert going.going
    assert going.deleting >= seen.created


async def test_metadata_alone_can_be_listed(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    body = crd.body("slim", labels={"team": "x"}, finalizers=["knell.test/one"])
    api.kube.create(crd.path(namespace), {**body, "spec": {"large": "x" * 10_000}})
    served = await cluster.discover(crd.resource)
    (page,) = [page async for page in cluster.pages(served, namespace, metadata_only=True)]
    (seen,) = page.items
    assert (seen.name, seen.labels, seen.finalizers) == ("slim", {"team": "x"}, ("knell.test/one",))
    assert len(bytes(seen.raw)) < 5_000


async def test_only_a_missing_object_is_none(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    assert await cluster.get(served, namespace, "nobody") is None
    _fill(api, crd, namespace, 1)
    live = await cluster.get(served, namespace, "w000")
    assert live is not None
    assert live.name == "w000"
    with pytest.raises(NotServed):
        await cluster.get(msgspec.structs.replace(served, version="v9"), namespace, "w000")
    with pytest.raises(ValueError, match="without a namespace"):
        await cluster.get(served, "", "w000")


async def test_the_annotations_of_a_namespace_are_read_live(api: TestApi, cluster: KubernetesClient) -> None:
    namespace = api.namespace(**{"knell.dev/dry-run": "true", "other.test/mark": "no"})
    assert await cluster.namespace_annotations(namespace) == {"knell.dev/dry-run": "true"}
    api.kube.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": {"knell.dev/dry-run": None}}})
    assert await cluster.namespace_annotations(namespace) == {}
    assert await cluster.namespace_annotations("") == {}
    with pytest.raises(NotFound):
        await cluster.namespace_annotations("there-is-no-such-namespace")


async def test_an_unknown_token_is_unauthorized_and_never_shown(api: TestApi, tmp_path: Path) -> None:
    async with await connect("test", _bearer(api, tmp_path, "not-a-token-anybody-knows")) as stranger:
        with pytest.raises(Unauthorized) as caught:
            await stranger.identity()
    assert "not-a-token-anybody-knows" not in repr(caught.value)


async def test_what_rbac_forbids_is_forbidden_and_not_absent(
    api: TestApi, cluster: KubernetesClient, tmp_path: Path
) -> None:
    namespace = api.namespace()
    crd = api.crd()
    api.kube.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "guest"}})
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/guest/token"
    issued = api.kube.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    served = await cluster.discover(crd.resource)
    async with await connect("guest", _bearer(api, tmp_path, issued["status"]["token"])) as guest:
        with pytest.raises(Forbidden):
            await guest.get(served, namespace, "nobody")
        with pytest.raises(Forbidden):
            [page async for page in guest.pages(served, namespace)]
        with pytest.raises(Forbidden):
            await guest.crd_state(crd.resource)
        with pytest.raises(Forbidden):
            await guest.identity()


async def test_many_requests_at_once_share_one_pool(api: TestApi, cluster: KubernetesClient) -> None:
    answers = await asyncio.gather(*(cluster.get(NAMESPACES, "", "kube-system") for _ in range(200)))
    assert len({answer.uid for answer in answers if answer is not None}) == 1
    assert None not in answers
    assert await cluster.get(CRDS, "", "nothings.nowhere.knell.test") is None


def test_an_object_that_can_not_be_decoded_is_named_as_well_as_it_can_be() -> None:
    with pytest.raises(Unreadable, match=r"ns/broken .*u-1"):
        decode_item(Raw(b'{"metadata":{"name":"broken","namespace":"ns","uid":"u-1","finalizers":"none"}}'), CRDS, "")
    with pytest.raises(Unreadable, match="no name"):
        decode_item(Raw(b"[1]"), CRDS, "")
