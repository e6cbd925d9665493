"""Reviews of Namespaces and CRDs at the webhook over HTTPS, with their contents on an API server."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from service.admission import contents
from service.admission.contents import Contents
from service.admission.protected_resources import ProtectedResources
from service.admission.reviews import decode_definition, decode_review
from service.kubernetes import connect
from service.settings import ClusterSettings
from tests.api_servers import TestApi
from tests.integration.webhook_process import (
    PROTECTING,
    GivenNamespaces,
    ReviewAnswer,
    WebhookClient,
    definition_review,
    namespace_review,
    protection_settings,
    webhook_on,
)
from tests.kube import Crd, wait_until
from tests.recording_proxy import RecordingProxy
from tests.scripted_api import scripted_api, settings_for, status

TRUE = {PROTECTING: "true"}
FALSE = {PROTECTING: "false"}


@pytest.fixture
def crd(api: TestApi) -> Crd:
    return api.crd()


@pytest.fixture
async def webhook(api: TestApi, crd: Crd, tmp_path: Path) -> AsyncIterator[WebhookClient]:
    async with webhook_on(api, tmp_path, crd.resource) as made:
        yield made


def create(api: TestApi, crd: Crd, namespace: str, name: str, annotations: dict[str, str] | None = None) -> None:
    api.kube.create(crd.path(namespace), crd.body(name, annotations=annotations or {}))


async def ask_namespace(api: TestApi, webhook: WebhookClient, namespace: str, **changes: Any) -> ReviewAnswer:
    live = api.kube.get(f"/api/v1/namespaces/{namespace}")
    return await webhook.ask(namespace_review(live, **changes))


async def ask_definition(api: TestApi, webhook: WebhookClient, crd: Crd) -> ReviewAnswer:
    return await webhook.ask(definition_review(api.kube.get(crd.own_path)))


async def test_a_namespace_with_a_protected_object_is_denied(api: TestApi, crd: Crd, webhook: WebhookClient) -> None:
    namespace = api.namespace()
    create(api, crd, namespace, "free")
    create(api, crd, namespace, "prod", TRUE)
    answer = await ask_namespace(api, webhook, namespace)
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        f"namespace/{namespace} contains 1 protected object: {crd.kind.lower()}.{crd.group}/prod; to see what protects "
        f"them: knell protection list -n {namespace}"
    )


async def test_the_first_few_are_named_and_all_are_counted(api: TestApi, crd: Crd, webhook: WebhookClient) -> None:
    namespace = api.namespace()
    for number in range(5):
        create(api, crd, namespace, f"prod-{number}", {PROTECTING: ("true", "maybe")[number % 2]})
    answer = await ask_namespace(api, webhook, namespace)
    kind = f"{crd.kind.lower()}.{crd.group}"
    names = f"{kind}/prod-0, {kind}/prod-1, {kind}/prod-2 and 2 more"
    assert f" contains 5 protected objects: {names}; " in answer.message


async def test_a_namespace_that_protects_its_objects_is_denied_while_it_has_any(
    api: TestApi, crd: Crd, webhook: WebhookClient
) -> None:
    namespace = api.namespace(**TRUE)
    assert (await ask_namespace(api, webhook, namespace)).allowed
    create(api, crd, namespace, "free", FALSE)
    assert (await ask_namespace(api, webhook, namespace)).allowed
    create(api, crd, namespace, "prod")
    assert " contains 1 protected object: " in (await ask_namespace(api, webhook, namespace)).message


async def test_a_namespace_without_protected_objects_is_allowed(api: TestApi, crd: Crd, webhook: WebhookClient) -> None:
    namespace, other = api.namespace(), api.namespace()
    create(api, crd, namespace, "free")
    create(api, crd, other, "prod", TRUE)
    assert (await ask_namespace(api, webhook, namespace)).allowed


async def test_the_annotations_of_the_namespace_are_those_of_the_review(
    api: TestApi, crd: Crd, webhook: WebhookClient
) -> None:
    """The cache may be behind; the API server sends the Namespace as it is."""
    namespace = api.namespace()
    create(api, crd, namespace, "prod")
    live: Any = api.kube.get(f"/api/v1/namespaces/{namespace}")
    live["metadata"]["annotations"] = TRUE
    assert not (await webhook.ask(namespace_review(live))).allowed


@pytest.mark.parametrize("name", ["kube-system", "knell"])
async def test_the_namespaces_of_knell_and_of_the_control_plane_are_always_allowed(
    webhook: WebhookClient, name: str
) -> None:
    assert (await webhook.ask(namespace_review({"metadata": {"name": name, "annotations": TRUE}}))).allowed


async def test_contents_on_many_pages_are_all_looked_at(
    api: TestApi, crd: Crd, webhook: WebhookClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_PAGE", 2)
    namespace = api.namespace()
    for number in range(7):
        create(api, crd, namespace, f"some-{number}", TRUE if number > 4 else None)
    assert " contains 2 protected objects: " in (await ask_namespace(api, webhook, namespace)).message


async def test_more_objects_than_are_looked_at_are_denied(
    api: TestApi, crd: Crd, webhook: WebhookClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_PAGE", 2)
    monkeypatch.setattr(contents, "MOST", 4)
    namespace = api.namespace()
    for number in range(6):
        create(api, crd, namespace, f"some-{number}")
    answer = await ask_namespace(api, webhook, namespace)
    assert answer.message == (
        f"namespace/{namespace} is not deleted now: whether it contains protected objects can't be known (there are "
        "more than 4 objects to look at); try again"
    )
    create(api, crd, namespace, "a-prod", TRUE)
    assert " contains at least 1 protected object: " in (await ask_namespace(api, webhook, namespace)).message


async def test_a_crd_with_protected_objects_is_denied(api: TestApi, crd: Crd, webhook: WebhookClient) -> None:
    namespace, free = api.namespace(), api.namespace()
    assert (await ask_definition(api, webhook, crd)).allowed
    create(api, crd, free, "free")
    assert (await ask_definition(api, webhook, crd)).allowed
    create(api, crd, namespace, "one", TRUE)
    create(api, crd, namespace, "two", TRUE)
    answer = await ask_definition(api, webhook, crd)
    kind = crd.kind.lower()
    names = f"{kind}/one in Namespace {namespace} and {kind}/two in Namespace {namespace}"
    assert answer.message == (
        f"customresourcedefinition/{crd.resource} has 2 protected objects: {names}, which would be deleted with it; to "
        "see what protects them: knell protection list"
    )


async def test_a_crd_is_denied_for_an_object_that_its_namespace_protects(
    api: TestApi, crd: Crd, webhook: WebhookClient
) -> None:
    namespace = api.namespace(**TRUE)
    create(api, crd, namespace, "prod")
    assert " has 1 protected object: " in (await ask_definition(api, webhook, crd)).message


async def test_a_crd_of_cluster_scoped_objects_is_judged_by_their_own_annotations(api: TestApi, tmp_path: Path) -> None:
    crd = api.crd(scope="Cluster")
    async with webhook_on(api, tmp_path, crd.resource) as webhook:
        create(api, crd, "", "prod", TRUE)
        answer = await ask_definition(api, webhook, crd)
        assert f" has 1 protected object: {crd.kind.lower()}/prod, which would be deleted with it; " in answer.message


async def test_a_crd_of_others_is_allowed_without_looking_at_it(api: TestApi, crd: Crd, tmp_path: Path) -> None:
    async with webhook_on(api, tmp_path, "widgets.knell.example") as webhook:
        create(api, crd, api.namespace(), "prod", TRUE)
        assert (await ask_definition(api, webhook, crd)).allowed


async def test_a_crd_that_was_never_established_has_no_objects(api: TestApi, crd: Crd, webhook: WebhookClient) -> None:
    live: Any = api.kube.get(crd.own_path)
    create(api, crd, api.namespace(), "prod", TRUE)
    live["status"]["conditions"] = [{"type": "Established", "status": "False"}]
    assert (await webhook.ask(definition_review(live))).allowed


async def test_a_crd_without_a_served_version_is_denied(api: TestApi, crd: Crd, webhook: WebhookClient) -> None:
    live: Any = api.kube.get(crd.own_path)
    live["spec"]["versions"] = [{**one, "served": False} for one in live["spec"]["versions"]]
    answer = await webhook.ask(definition_review(live))
    assert answer.message == (
        f"customresourcedefinition/{crd.resource} is not deleted now: whether it has protected objects can't be known "
        "(no version of it is served, so that its objects can't be listed; serve one); try again"
    )


async def test_a_configured_group_is_protected_with_all_its_resources(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    async with webhook_on(api, tmp_path, groups=(crd.group,)) as webhook:
        create(api, crd, namespace, "prod", TRUE)
        assert " contains 1 protected object: " in (await ask_namespace(api, webhook, namespace)).message


# ---- what can't be known


async def test_a_forbidden_list_denies_and_says_what_to_grant(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    async with RecordingProxy(api) as proxy:
        cluster = ClusterSettings(kubeconfig=proxy.kubeconfig(tmp_path / "proxy"))
        async with webhook_on(api, tmp_path, crd.resource, cluster=cluster, live=False) as webhook:
            proxy.refuse(403, lambda method, path: path.endswith(f"/{crd.plural}"))
            answer = await ask_namespace(api, webhook, namespace)
            assert answer.message.startswith(
                f"namespace/{namespace} is not deleted now: whether it contains protected objects can't be known ("
            )
            assert f"add group {crd.group} to protection.groups and apply `knell role` again" in answer.message
            proxy.pass_on()
            assert (await ask_namespace(api, webhook, namespace)).allowed


async def test_a_group_whose_resources_cannot_be_read_denies(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    async with RecordingProxy(api) as proxy:
        cluster = ClusterSettings(kubeconfig=proxy.kubeconfig(tmp_path / "proxy"))
        async with webhook_on(api, tmp_path, crd.resource, cluster=cluster, live=False) as webhook:
            proxy.refuse(503, lambda method, path: path.startswith("/apis") and "namespaces" not in path)
            answer = await ask_namespace(api, webhook, namespace)
            assert (answer.allowed, "can't be known" in answer.message) == (False, True)


async def test_a_search_that_takes_too_long_is_denied_in_time(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    async with RecordingProxy(api) as proxy:
        cluster = ClusterSettings(kubeconfig=proxy.kubeconfig(tmp_path / "proxy"))
        within = timedelta(milliseconds=500)
        async with webhook_on(api, tmp_path, crd.resource, cluster=cluster, live=False, within=within) as webhook:
            proxy.keep_waiting(lambda method, path: path.endswith(f"/{crd.plural}"))
            answer = await ask_namespace(api, webhook, namespace)
            assert not answer.allowed
            assert "within 0.5 s" in answer.message
            proxy.pass_on()


DISCOVERY: dict[str, Any] = {
    "kind": "APIGroupDiscoveryList",
    "apiVersion": "apidiscovery.k8s.io/v2",
    "items": [
        {
            "metadata": {"name": "s3.services.k8s.aws"},
            "versions": [
                {
                    "version": "v1beta1",
                    "freshness": "Current",
                    "resources": [
                        {
                            "resource": "buckets",
                            "responseKind": {"group": "", "version": "", "kind": "Bucket"},
                            "scope": "Namespaced",
                            "verbs": ["delete", "list"],
                        },
                        {"resource": "bucketreviews", "scope": "Namespaced", "verbs": ["create"]},
                        {"resource": "owners", "scope": "Cluster", "verbs": ["list"]},
                    ],
                },
                {
                    "version": "v1alpha1",
                    "freshness": "Current",
                    "resources": [{"resource": "buckets", "scope": "Namespaced", "verbs": ["list"]}],
                },
            ],
        },
        {
            "metadata": {"name": "batch.example.org"},
            "versions": [{"version": "v1", "freshness": "Stale", "resources": []}],
        },
    ],
}


class AggregatingApi:
    """Serves the aggregated discovery document, and buckets in one Namespace."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.document = DISCOVERY

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path == "/apis":
            assert "APIGroupDiscoveryList" in request.headers["Accept"]
            return web.json_response(self.document)
        if request.path.endswith("/buckets"):
            items = [{"metadata": {"name": "prod", "namespace": "shop", "uid": "1", "resourceVersion": "1",
                                   "annotations": TRUE}}]  # fmt: skip
            body = {"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "9"}, "items": items}
            return web.json_response(body)
        return status(404, "NotFound")


async def test_aggregated_discovery_needs_one_request_and_lists_each_resource_in_one_version(
    api: TestApi, tmp_path: Path
) -> None:
    server = AggregatingApi()
    async with (
        scripted_api(server.answer) as address,
        webhook_on(api, tmp_path, cluster=settings_for(address, tmp_path), live=False) as webhook,
    ):
        # In a dry run, so that no Event is posted, which would be one request more.
        answer = await webhook.ask(namespace_review({"metadata": {"name": "shop"}}, dryRun=True))
    assert " contains 1 protected object: bucket.s3.services.k8s.aws/prod; " in answer.message
    assert server.asked == ["/apis", "/apis/s3.services.k8s.aws/v1beta1/namespaces/shop/buckets"]


async def test_a_group_that_the_api_server_could_not_read_denies(api: TestApi, tmp_path: Path) -> None:
    server = AggregatingApi()
    server.document = {**DISCOVERY, "items": DISCOVERY["items"][1:]}
    async with scripted_api(server.answer) as address:
        cluster = settings_for(address, tmp_path)
        review = namespace_review({"metadata": {"name": "shop"}})
        async with webhook_on(api, tmp_path, cluster=cluster, live=False) as webhook:
            assert (await webhook.ask(review)).allowed
        async with webhook_on(api, tmp_path, groups=("batch.example.org",), cluster=cluster, live=False) as webhook:
            assert "could not read the resources of batch.example.org/v1" in (await webhook.ask(review)).message


def bucket(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "prod", "namespace": "shop", "uid": "1", "resourceVersion": "1", **metadata}}


def listed(*items: Any) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "9"}, "items": list(items)}


BUCKETS_PATH = "/apis/s3.services.k8s.aws/v1beta1"
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLAIN_GROUPS: dict[str, Any] = {
    "kind": "APIGroupList",
    "groups": [{"name": "s3.services.k8s.aws", "versions": [{"version": "v1beta1"}]}],
}
BUCKETS_CRD: dict[str, Any] = {
    "metadata": {"name": "buckets.s3.services.k8s.aws", "uid": "2", "resourceVersion": "3"},
    "spec": {
        "group": "s3.services.k8s.aws",
        "names": {"plural": "buckets", "kind": "Bucket"},
        "scope": "Namespaced",
        "versions": [{"name": "v1beta1", "served": True, "storage": True}],
    },
    "status": {"conditions": [{"type": "Established", "status": "True"}]},
}


async def answered(api: TestApi, folder: Path, review: dict[str, Any], **answers: Any) -> ReviewAnswer:
    """By a webhook on a server that answers each path so: an object, or the code of a failure."""
    known = {"/apis": DISCOVERY, f"{BUCKETS_PATH}/namespaces/shop/buckets": listed(), **answers}

    async def answer(request: web.Request) -> web.StreamResponse:
        found = known.get(request.path, 404)
        return web.json_response(found) if isinstance(found, dict) else status(found, "InternalError")

    async with (
        scripted_api(answer) as address,
        webhook_on(api, folder, cluster=settings_for(address, folder), live=False) as hook,
    ):
        return await hook.ask(review)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({f"{BUCKETS_PATH}/namespaces/shop/buckets": 500}, "buckets"),
        ({f"{BUCKETS_PATH}/namespaces/shop/buckets": listed(bucket(annotations="many"))}, "annotations"),
        ({"/apis": PLAIN_GROUPS, BUCKETS_PATH: 503}, BUCKETS_PATH),
    ],
    ids=["a list that fails", "an object that can't be decoded", "a group that fails"],
)
async def test_whatever_can_not_be_read_of_a_namespace_denies(
    tmp_path: Path, api: TestApi, answers: dict[str, Any], said: str
) -> None:
    review = namespace_review({"metadata": {"name": "shop"}}, dryRun=True)
    assert (await answered(api, tmp_path, review)).allowed
    answer = await answered(api, tmp_path, review, **answers)
    assert "whether it contains protected objects can't be known (" in answer.message
    assert said in answer.message


async def test_a_source_whose_crd_discovery_does_not_show_yet_denies(tmp_path: Path, api: TestApi) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        definition = {**BUCKETS_CRD, "metadata": {**BUCKETS_CRD["metadata"], "name": "buckets.example.org"}}
        known = {"/apis": {**DISCOVERY, "items": []}, f"{CRDS_PATH}/buckets.example.org": definition}
        return web.json_response(known[request.path]) if request.path in known else status(404, "NotFound")

    review = namespace_review({"metadata": {"name": "shop"}}, dryRun=True)
    async with (
        scripted_api(answer) as address,
        webhook_on(
            api, tmp_path, "buckets.example.org", cluster=settings_for(address, tmp_path), live=False
        ) as webhook,
    ):
        assert "buckets.example.org are not in the discovery documents" in (await webhook.ask(review)).message


async def test_a_crd_is_denied_while_the_namespace_of_an_object_can_not_be_read(tmp_path: Path, api: TestApi) -> None:
    review = definition_review(BUCKETS_CRD, dryRun=True)
    known = {f"{BUCKETS_PATH}/buckets": listed(bucket())}
    assert (await answered(api, tmp_path, review, **known, **{"/api/v1/namespaces/shop": namespace_body()})).allowed
    answer = await answered(api, tmp_path, review, **known, **{"/api/v1/namespaces/shop": 500})
    assert "whether its Namespace protects it can't be known" in answer.message


def namespace_body() -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "metadata": {"name": "shop", "uid": "4", "resourceVersion": "5"}}


async def test_a_search_that_ends_at_its_own_limit_of_time_is_not_taken_for_complete(tmp_path: Path) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return status(500, "InternalError")

    request = decode_review(msgspec.json.encode(definition_review(BUCKETS_CRD)))
    async with scripted_api(never) as address:
        settings = protection_settings(settings_for(address, tmp_path))
        async with await connect("here", settings.clusters["here"]) as client:
            protected = ProtectedResources(settings, "here")
            search = Contents(client, protected, GivenNamespaces({}), timedelta(milliseconds=200))
            for made in (search.in_namespace("shop", {}), search.of_definition(decode_definition(request))):
                found = await made
                assert found.unknown == "not everything could be read within 0.2 s"


async def test_equal_reviews_at_the_same_time_are_all_answered(api: TestApi, crd: Crd, webhook: WebhookClient) -> None:
    namespace = api.namespace()
    create(api, crd, namespace, "prod", TRUE)
    answers = await asyncio.gather(*(ask_namespace(api, webhook, namespace) for _ in range(20)))
    assert {answer.allowed for answer in answers} == {False}
    api.kube.delete(crd.path(namespace, "prod"))
    wait_until("it is gone", lambda: api.kube.get(crd.path(namespace, "prod")) is None)
    answers = await asyncio.gather(*(ask_namespace(api, webhook, namespace) for _ in range(20)))
    assert {answer.allowed for answer in answers} == {True}
