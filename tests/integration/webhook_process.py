"""Webhook of a test: a real HTTPS listener with real reviews, and a client that sends what an API server would send."""

import asyncio
import io
import itertools
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from service.admission.contents import Contents
from service.admission.denial_events import DenialEvents
from service.admission.metrics import AdmissionMetrics
from service.admission.names import PATH
from service.admission.namespace_cache import NamespaceCache
from service.admission.protected_resources import ProtectedResources
from service.admission.review_endpoint import ReviewEndpoint
from service.admission.reviewer import Reviewer
from service.kubernetes import KubernetesClient, connect
from service.settings import ClusterSettings, FeedbackSettings, Settings, SourceSettings
from service.settings.protection import ProtectionSettings
from tests.api_servers import TestApi
from tests.engine.waiting import at_once, until
from tests.kube import Crd
from tests.tls_files import make_tls_files

SERVICE: Final = "s3"
BUCKETS: Final = Crd("s3.services.k8s.aws", "buckets", called="Bucket")
PROTECTING: Final = "knell.dev/prevent-delete"
_numbers = itertools.count(1)


class ReviewAnswer(msgspec.Struct, frozen=True):
    """The response of a webhook to one review."""

    uid: str
    allowed: bool
    message: str = ""
    code: int = 0
    reason: str = ""


def review_of(crd: Crd, name: str, namespace: str = "", /, **changes: Any) -> dict[str, Any]:
    """A review of the deletion of one object, as an API server sends it. `metadata` are more fields of the object's;
    others replace fields of the request."""
    metadata = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "7", **changes.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    group, version = crd.group, crd.versions[0]
    kind = {"group": group, "version": version, "kind": crd.kind}
    resource = {"group": group, "version": version, "resource": crd.plural}
    request = {
        "uid": f"review-{next(_numbers)}",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": name,
        "namespace": namespace,
        "operation": "DELETE",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": None,
        "oldObject": {**crd.body(name), "metadata": metadata},
        "dryRun": False,
        "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"},
        **changes,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def namespace_review(live: Any, **changes: Any) -> dict[str, Any]:
    """`live` is the Namespace as the API server has it."""
    name = live["metadata"]["name"]
    request = {
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        "name": name,
        "namespace": name,
        "oldObject": live,
        **changes,
    }
    return review_of(BUCKETS, name, "", **request)


def definition_review(live: Any, **changes: Any) -> dict[str, Any]:
    """`live` is the CRD as the API server has it."""
    group, version = "apiextensions.k8s.io", "v1"
    request = {
        "kind": {"group": group, "version": version, "kind": "CustomResourceDefinition"},
        "resource": {"group": group, "version": version, "resource": "customresourcedefinitions"},
        "name": live["metadata"]["name"],
        "oldObject": live,
        **changes,
    }
    return review_of(BUCKETS, live["metadata"]["name"], "", **request)


@dataclass(slots=True)
class WebhookClient:
    """Sends reviews to a webhook."""

    session: aiohttp.ClientSession
    url: str
    events: DenialEvents | None = None
    namespaces: Any = None
    metrics: AdmissionMetrics = field(default_factory=AdmissionMetrics)
    settings: Settings = field(default_factory=Settings)

    async def post(self, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        async with self.session.post(self.url, data=io.BytesIO(body), headers=headers) as answer:
            return answer.status, await answer.read()

    async def ask(self, review: Mapping[str, Any]) -> ReviewAnswer:
        status, body = await self.post(msgspec.json.encode(review))
        assert status == 200, body
        answer = msgspec.json.decode(body)
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response = answer["response"]
        said = response.get("status", {})
        assert response["uid"] == review["request"]["uid"]
        assert response["allowed"] is not bool(said)
        return ReviewAnswer(
            response["uid"], response["allowed"], said.get("message", ""), said.get("code", 0), said.get("reason", "")
        )

    async def count(self, metric: str) -> float:
        samples = (sample for family in self.metrics.families() for sample in family.samples)
        return await at_once(sum(sample.value for sample in samples if sample.name == metric))


class GivenNamespaces:
    """Annotations of Namespaces as a test gives them."""

    def __init__(self, annotations: Mapping[str, Mapping[str, str]]) -> None:
        self.given = dict(annotations)

    async def annotations(self, name: str) -> Mapping[str, str]:
        return self.given[name]


@asynccontextmanager
async def https_client(ca: Path) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca), limit=16)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session
    # TLS connections are closed in the next iterations of the event loop.
    await asyncio.sleep(0)


@asynccontextmanager
async def webhook_listener(
    folder: Path,
    settings: Settings,
    cluster: KubernetesClient,
    namespaces: Any,
    within: timedelta = timedelta(seconds=60),
) -> AsyncIterator[WebhookClient]:
    """The endpoint with its reviewer, on a free port with TLS."""
    files = make_tls_files(folder, strict=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    protected = ProtectedResources(settings, next(iter(settings.clusters), ""))
    contents = Contents(cluster, protected, namespaces, within)
    metrics, events = AdmissionMetrics(), DenialEvents(cluster, settings.feedback)
    reviewer = Reviewer(protected, namespaces, contents, settings.watch.namespace)
    endpoint = ReviewEndpoint(reviewer, events, metrics, within)
    port = await endpoint.start("127.0.0.1", 0, tls)
    try:
        async with https_client(files.ca) as session:
            url = f"https://127.0.0.1:{port}{PATH}"
            yield WebhookClient(session, url, events, namespaces, metrics, settings)
    finally:
        await endpoint.stop()


def protection_settings(cluster: ClusterSettings, *resources: str, groups: tuple[str, ...] = ()) -> Settings:
    """Sources of these resources, without services of their own."""
    sources = {
        f"source-{number}": SourceSettings(resource=resource, collector="none")
        for number, resource in enumerate(resources)
    }
    return Settings(
        clusters={"here": cluster},
        sources=sources,
        protection=ProtectionSettings(groups=groups),
        feedback=FeedbackSettings(),
    )


@asynccontextmanager
async def webhook_on(
    api: TestApi,
    folder: Path,
    *resources: str,
    groups: tuple[str, ...] = (),
    cluster: ClusterSettings | None = None,
    live: bool = True,
    within: timedelta = timedelta(seconds=60),
) -> AsyncIterator[WebhookClient]:
    """A webhook on an API server, with its cache of Namespaces and its Events running. Without `live` nothing fills the
    cache."""
    settings = protection_settings(cluster or api.settings(folder), *resources, groups=groups)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await connect("here", settings.clusters["here"]))
        cache = NamespaceCache(client, settings.watch)
        webhook = await stack.enter_async_context(webhook_listener(folder, settings, client, cache, within))
        assert webhook.events is not None
        tasks = [asyncio.create_task(webhook.events.run())]
        if live:
            tasks.append(asyncio.create_task(cache.run()))
            await until("the Namespaces are cached", lambda: at_once(cache.live))
        try:
            yield webhook
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
