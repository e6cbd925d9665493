"""Events about denied deletions, on an API server: what they say, how many there are, and that no answer waits."""

from pathlib import Path
from typing import Any

import pytest

from service.admission import denial_events
from tests.api_servers import TestApi
from tests.engine.waiting import at_once, until
from tests.integration.cutting_proxy import CuttingProxy
from tests.integration.webhook_process import (
    BUCKETS,
    PROTECTING,
    WebhookClient,
    definition_review,
    namespace_review,
    review_of,
    webhook_on,
)
from tests.kube import Crd

TRUE = {PROTECTING: "true"}


def events(api: TestApi, namespace: str, name: str = "") -> list[Any]:
    found: Any = api.kube.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [one for one in found["items"] if name in ("", one["regarding"]["name"])]


async def posted(api: TestApi, namespace: str, name: str, number: int = 1) -> list[Any]:
    async def look() -> list[Any]:
        found = events(api, namespace, name)
        return found if len(found) >= number else []

    return await until(f"{number} Events about {name} are there", look)


def collection(namespace: str, name: str, **changes: Any) -> dict[str, Any]:
    """The review of one object of a deletecollection, which has no name."""
    return review_of(BUCKETS, name, namespace, name="", **changes)


async def test_a_denial_is_told_on_the_object(api: TestApi, tmp_path: Path) -> None:
    namespace = api.namespace()
    async with webhook_on(api, tmp_path) as webhook:
        answer = await webhook.ask(review_of(BUCKETS, "prod", namespace, metadata={"annotations": TRUE}))
        (event,) = await posted(api, namespace, "prod")
    assert (event["reason"], event["type"], event["reportingController"]) == ("DeletionDenied", "Warning", "knell")
    assert event["note"] == f"alice was denied: {answer.message}"
    regarding = event["regarding"]
    assert (regarding["apiVersion"], regarding["kind"]) == ("s3.services.k8s.aws/v1", "Bucket")
    assert (regarding["uid"], regarding["namespace"]) == ("uid-of-prod", namespace)


async def test_a_namespace_and_a_crd_get_theirs_in_the_default_namespace(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    api.kube.create(crd.path(namespace), crd.body("prod", annotations=TRUE))
    async with webhook_on(api, tmp_path, crd.resource) as webhook:
        await webhook.ask(namespace_review(api.kube.get(f"/api/v1/namespaces/{namespace}")))
        await webhook.ask(definition_review(api.kube.get(crd.own_path)))
        (event,) = await posted(api, "default", namespace)
        assert event["regarding"]["kind"] == "Namespace"
        assert " contains 1 protected object: " in event["note"]
        (event,) = await posted(api, "default", crd.resource)
        assert event["regarding"]["kind"] == "CustomResourceDefinition"
        assert " has 1 protected object: " in event["note"]


async def test_one_event_per_object_and_reason(api: TestApi, tmp_path: Path) -> None:
    namespace = api.namespace()
    async with webhook_on(api, tmp_path) as webhook:
        for _ in range(3):
            await webhook.ask(review_of(BUCKETS, "prod", namespace, metadata={"annotations": TRUE}))
        await webhook.ask(review_of(BUCKETS, "prod", namespace, metadata={"annotations": {PROTECTING: "maybe"}}))
        await webhook.ask(review_of(BUCKETS, "last", namespace, metadata={"annotations": TRUE}))
        await posted(api, namespace, "last")
    notes = [event["note"] for event in events(api, namespace, "prod")]
    assert len(notes) == 2
    assert {"says 'true'" in note for note in notes} == {True, False}


async def test_a_dry_run_is_answered_alike_and_tells_nothing(api: TestApi, tmp_path: Path) -> None:
    namespace = api.namespace()
    async with webhook_on(api, tmp_path) as webhook:
        answer = await webhook.ask(review_of(BUCKETS, "prod", namespace, metadata={"annotations": TRUE}, dryRun=True))
        assert not answer.allowed
        await webhook.ask(review_of(BUCKETS, "last", namespace, metadata={"annotations": TRUE}))
        await posted(api, namespace, "last")
    assert events(api, namespace, "prod") == []


async def test_a_stopped_deletecollection_names_what_went_before(api: TestApi, tmp_path: Path) -> None:
    namespace, other = api.namespace(), api.namespace()
    async with webhook_on(api, tmp_path) as webhook:
        await webhook.ask(collection(other, "elsewhere"))
        await webhook.ask(collection(namespace, "rehearsed", dryRun=True))
        await webhook.ask(collection(namespace, "of-bob", userInfo={"username": "bob"}))
        await webhook.ask(review_of(BUCKETS, "by-name", namespace))
        await webhook.ask(collection(namespace, "a"))
        await webhook.ask(collection(namespace, "b"))
        await webhook.ask(collection(namespace, "prod", metadata={"annotations": TRUE}))
        found = await posted(api, namespace, "prod", 2)
        notes = {event["reason"]: event["note"] for event in found}
        assert notes["DeleteCollectionStopped"] == (
            "a deletecollection of buckets.s3.services.k8s.aws by alice ended at this object; deletions that were "
            "allowed before it: a, b"
        )
        # The next one starts anew.
        await webhook.ask(collection(namespace, "next", metadata={"annotations": TRUE}))
        assert [event["reason"] for event in await posted(api, namespace, "next")] == ["DeletionDenied"]


async def test_a_long_deletecollection_names_the_first_ones(api: TestApi, tmp_path: Path) -> None:
    namespace = api.namespace()
    async with webhook_on(api, tmp_path) as webhook:
        for number in range(25):
            await webhook.ask(collection(namespace, f"some-{number}"))
        await webhook.ask(collection(namespace, "prod", metadata={"annotations": TRUE}))
        found = await posted(api, namespace, "prod", 2)
    (note,) = [event["note"] for event in found if event["reason"] == "DeleteCollectionStopped"]
    assert note.endswith("some-18, some-19 and 5 more")


async def test_events_that_cannot_be_posted_delay_no_answer_and_are_bounded(
    api: TestApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denial_events, "QUEUED", 5)
    namespace = api.namespace(**TRUE)
    async with CuttingProxy(api.url) as proxy:
        cluster = proxy.settings(api.server, tmp_path)
        async with webhook_on(api, tmp_path, cluster=cluster, live=False) as webhook:
            await proxy.shut()
            for number in range(20):
                await _denied(webhook, namespace, f"prod-{number}")
            assert webhook.events is not None
            assert webhook.events.dropped > 0
            proxy.open()
            await until("later ones are posted", lambda: _posted_again(api, webhook, namespace))


async def _denied(webhook: WebhookClient, namespace: str, name: str) -> None:
    answer = await webhook.ask(review_of(BUCKETS, name, namespace, metadata={"annotations": TRUE}))
    assert not answer.allowed


async def _posted_again(api: TestApi, webhook: WebhookClient, namespace: str) -> bool:
    await _denied(webhook, namespace, "last")
    return await at_once(bool(events(api, namespace, "last")))


async def test_an_object_without_a_namespace_gets_its_event_in_the_default_one(api: TestApi, tmp_path: Path) -> None:
    pools = Crd("karpenter.sh", "nodepools", "Cluster", called="NodePool")
    name = api.namespace()
    async with webhook_on(api, tmp_path, pools.resource) as webhook:
        await webhook.ask(review_of(pools, name, metadata={"annotations": TRUE}))
        (event,) = await posted(api, "default", name)
    assert event["regarding"].get("namespace", "") == ""
