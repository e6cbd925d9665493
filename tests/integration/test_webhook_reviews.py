"""Reviews of objects at the webhook over HTTPS: the table of cases, what can't be decoded, and what is not judged."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.admission.judgement import JudgedObject, judge_object
from service.kubernetes import KubernetesClient, connect
from service.settings import ClusterSettings
from tests.integration.webhook_process import (
    BUCKETS,
    PROTECTING,
    GivenNamespaces,
    WebhookClient,
    protection_settings,
    review_of,
    webhook_listener,
)
from tests.kube import Crd
from tests.protection_cases import SERVICE, protection_cases
from tests.scripted_api import settings_for

CASES = protection_cases()
POOLS = Crd("karpenter.sh", "nodepools", "Cluster", called="NodePool")
UNREACHABLE = "http://127.0.0.1:9"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    """Nothing listens there: reviews of objects need only the cache."""
    async with await connect("here", settings_for(UNREACHABLE, tmp_path)) as client:
        yield client


@pytest.fixture
async def webhook(cluster: KubernetesClient, tmp_path: Path) -> AsyncIterator[WebhookClient]:
    settings = protection_settings(ClusterSettings(in_cluster=True), POOLS.resource)
    namespaces = GivenNamespaces({"shop": {}, "kept": {PROTECTING: "true"}})
    async with webhook_listener(tmp_path, settings, cluster, namespaces) as made:
        yield made


async def test_every_row_of_the_table_is_answered_as_it_says(webhook: WebhookClient) -> None:
    webhook.namespaces.given |= {f"row{number}": case.namespace for number, case in enumerate(CASES)}

    async def answered(number: int) -> str:
        own = {"annotations": dict(CASES[number].own)} if CASES[number].own else {}
        answer = await webhook.ask(review_of(BUCKETS, "prod", f"row{number}", metadata=own))
        assert answer.allowed or (answer.code, answer.reason) == (403, "Forbidden")
        if answer.allowed:
            return "free"
        judged = JudgedObject(BUCKETS.resource, "Bucket", f"row{number}", "prod", CASES[number].own)
        denial = judge_object(judged, CASES[number].namespace, (SERVICE,))
        assert denial is not None
        assert answer.message == denial.message
        return "invalid" if "; allowed: " in answer.message or "disagree" in answer.message else "protected"

    answers = await asyncio.gather(*(answered(number) for number in range(len(CASES))))
    wrong = [case for case, answer in zip(CASES, answers, strict=True) if answer != case.expected]
    assert wrong == []
    assert await webhook.count("knell_admission_requests_total") == len(CASES)
    denied = sum(case.expected != "free" for case in CASES)
    assert await webhook.count("knell_admission_denials_total") == denied
    assert await webhook.count("knell_admission_seconds_count") == len(CASES)


async def test_a_denial_is_one_line(webhook: WebhookClient) -> None:
    review = review_of(BUCKETS, "prod", "shop", metadata={"annotations": {PROTECTING: "a\nb\t c"}})
    answer = await webhook.ask(review)
    assert not answer.allowed
    assert "\n" not in answer.message
    assert "'a\\nb\\t c'" in answer.message


@pytest.mark.parametrize(
    "review",
    [
        review_of(BUCKETS, "prod", "kept", operation="UPDATE"),
        review_of(Crd("apps", "deployments", called="Deployment"), "prod", "kept"),
        review_of(BUCKETS, "prod", "kube-system", metadata={"annotations": {PROTECTING: "true"}}),
        review_of(BUCKETS, "prod", "knell", metadata={"annotations": {PROTECTING: "true"}}),
        review_of(POOLS, "prod"),
    ],
    ids=["no deletion", "a resource that is not protected", "kube-system", "its own Namespace", "a free object"],
)
async def test_what_is_not_judged_is_allowed(webhook: WebhookClient, review: dict[str, Any]) -> None:
    assert (await webhook.ask(review)).allowed


async def test_a_cluster_scoped_object_is_judged_by_its_own_annotations(webhook: WebhookClient) -> None:
    answer = await webhook.ask(review_of(POOLS, "prod", metadata={"annotations": {PROTECTING: "true"}}))
    assert answer.message == (
        "nodepool/prod is protected from deletion: annotation knell.dev/prevent-delete of the object says 'true'; to "
        "lift it: kubectl annotate nodepools.karpenter.sh prod knell.dev/prevent-delete-"
    )


async def test_in_a_deletecollection_the_name_is_that_of_the_old_object(webhook: WebhookClient) -> None:
    answer = await webhook.ask(review_of(BUCKETS, "prod", "kept", name=""))
    assert answer.message.startswith("bucket/prod in Namespace kept is protected from deletion: ")


async def test_an_object_of_several_megabytes_is_judged_by_its_metadata(webhook: WebhookClient) -> None:
    review = review_of(BUCKETS, "prod", "kept")
    review["request"]["oldObject"]["spec"] = {"policy": ["x" * 1000] * 3000}
    assert not (await webhook.ask(review)).allowed
    review["request"]["namespace"] = review["request"]["oldObject"]["metadata"]["namespace"] = "shop"
    assert (await webhook.ask(review)).allowed


@pytest.mark.parametrize(
    "old", [None, {}, {"metadata": {}}, {"metadata": {"name": "prod", "annotations": "many"}}, "text"]
)
async def test_an_object_that_cannot_be_decoded_is_denied(webhook: WebhookClient, old: object) -> None:
    answer = await webhook.ask(review_of(BUCKETS, "prod", "shop", oldObject=old))
    assert not answer.allowed
    assert answer.message.startswith(
        "bucket/prod is not deleted: the object that is to be deleted can't be read from the review: "
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"no json",
        b"[" * 100_000,
        b"\xff\xfe",
        msgspec.json.encode({**review_of(BUCKETS, "prod", "shop"), "apiVersion": "admission.k8s.io/v1beta1"}),
        msgspec.json.encode(review_of(BUCKETS, "prod", "shop", uid="")),
        msgspec.json.encode(review_of(BUCKETS, "prod", "shop", resource=None)),
    ],
    ids=["nothing", "empty", "no JSON", "nested too deeply", "no text", "older version", "no uid", "no resource"],
)
async def test_what_is_no_review_is_refused(webhook: WebhookClient, body: bytes) -> None:
    status, said = await webhook.post(body)
    assert status == 400
    assert said.startswith(b"not an AdmissionReview of admission.k8s.io/v1")
    assert await webhook.count("knell_admission_malformed_total") == 1


async def test_a_review_that_fails_is_denied(webhook: WebhookClient) -> None:
    # The given Namespaces raise KeyError for it, as a defect of ours would.
    answer = await webhook.ask(review_of(BUCKETS, "prod", "nowhere"))
    assert answer.message == ("bucket/prod is not deleted: Knell failed to judge it (KeyError); its log says more")
