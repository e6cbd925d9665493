"""Manifests of protection at the door, for several settings."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.admission.manifests import protection_manifests, webhook_configuration
from service.admission.policies import policy_manifests
from service.admission.protected_resources import ProtectedResources
from service.settings import ClusterSettings, Settings, SourceSettings, WatchSettings
from service.settings.protection import ProtectionSettings, WebhookSettings

POLICIES = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
WEBHOOK = "ValidatingWebhookConfiguration"


def settings(webhook: WebhookSettings | None = None, *, groups: tuple[str, ...] = (), marks: bool = False) -> Settings:
    return Settings(
        clusters={"here": ClusterSettings(), "there": ClusterSettings()},
        sources={
            "nodes": SourceSettings(resource="nodeclaims.karpenter.sh", collector="none", cluster="here"),
            "widgets": SourceSettings(resource="widgets.knell.test", collector="none", cluster="there", service="Shop"),
            "buckets": SourceSettings(resource="buckets.s3.services.k8s.aws", collector="none", cluster="here"),
        },
        watch=WatchSettings(namespace="operations"),
        protection=ProtectionSettings(
            cluster="here", groups=groups, restrict_marks=marks, webhook=webhook or WebhookSettings()
        ),
    )


def made(webhook: WebhookSettings, kind: str, name: str = "") -> dict[str, Any]:
    (found,) = (
        one
        for one in protection_manifests(settings(webhook), "here")
        if one["kind"] == kind and name in ("", one["metadata"]["name"])
    )
    return found


def kinds(webhook: WebhookSettings | None = None, *, marks: bool = False) -> list[str]:
    return [one["kind"] for one in protection_manifests(settings(webhook, marks=marks), "here")]


def condition(manifest: dict[str, Any]) -> str:
    (found,) = manifest["matchConditions"]
    expression: str = found["expression"]
    return expression


def test_without_a_webhook_there_are_only_policies_with_their_bindings() -> None:
    assert kinds() == POLICIES
    assert kinds(marks=True) == POLICIES * 2


def test_the_webhook_configuration_comes_last_when_all_that_it_needs_is_there() -> None:
    assert kinds(WebhookSettings(enabled=True)) == [*POLICIES, "Service", WEBHOOK]
    assert kinds(WebhookSettings(enabled=True, certificate="secret")) == [*POLICIES, "Service", WEBHOOK]
    assert kinds(WebhookSettings(enabled=True, url="https://knell.example.com")) == [*POLICIES, WEBHOOK]
    assert kinds(WebhookSettings(enabled=True, certificate="cert-manager")) == [
        *POLICIES,
        "Service",
        *("Issuer", "Certificate") * 2,
        WEBHOOK,
    ]


def test_the_policy_of_deletions_is_left_out_where_the_webhook_alone_is_to_judge_objects() -> None:
    chosen = settings(WebhookSettings(enabled=True, objects=True), marks=True)
    chosen = msgspec.structs.replace(chosen, protection=msgspec.structs.replace(chosen.protection, policy=False))
    found = {(one["kind"], one["metadata"]["name"]) for one in protection_manifests(chosen, "here")}
    assert {name for kind, name in found if kind in POLICIES} == {"knell-protection-marks"}
    assert (WEBHOOK, "knell-protection") in found


@pytest.mark.parametrize("webhook", [WebhookSettings(enabled=True), WebhookSettings(objects=True)])
def test_without_a_policy_the_webhook_has_to_judge_objects(webhook: WebhookSettings) -> None:
    refused = ProtectionSettings(policy=False, webhook=webhook).contradictions(["here"])
    assert [path for path, _ in refused] == ["protection.policy"]
    allowed = ProtectionSettings(policy=False, webhook=WebhookSettings(enabled=True, objects=True))
    assert allowed.contradictions(["here"]) == []


def test_every_manifest_has_the_labels_of_knell_and_a_name_that_nothing_else_of_its_kind_has() -> None:
    webhook = WebhookSettings(enabled=True, certificate="cert-manager")
    manifests = protection_manifests(settings(webhook, marks=True), "here")
    for one in manifests:
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "knell"
    assert len({(one["kind"], one["metadata"]["name"]) for one in manifests}) == len(manifests)


def test_policies_deny_and_are_bound_by_the_same_name() -> None:
    policy, binding, marks, marks_binding = protection_manifests(settings(marks=True), "here")
    for one, its in ((policy, binding), (marks, marks_binding)):
        assert its["spec"] == {"policyName": one["metadata"]["name"], "validationActions": ["Deny"]}
        assert one["spec"]["failurePolicy"] == "Fail"
        assert one["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] == ["*"]


def test_the_text_of_the_policies_is_the_same_every_time() -> None:
    texts = {
        msgspec.json.encode(
            policy_manifests(ProtectedResources(settings(groups=("apps", "batch")), "here"), restrict_marks=True)
        )
        for _ in range(3)
    }
    assert len(texts) == 1


def test_a_policy_names_the_resources_and_services_of_its_cluster_and_the_configured_groups() -> None:
    chosen = settings(groups=("apps",))
    here, _ = protection_manifests(chosen, "here")
    there, _ = protection_manifests(chosen, "there")
    group, resource = "request.resource.group", "request.resource.resource"
    assert condition(here["spec"]) == (
        f'{group}.endsWith(".services.k8s.aws")'
        f' || {resource} + ({group} == "" ? "" : "." + {group}) in ["nodeclaims.karpenter.sh"]'
        f' || {group} in ["apps"]'
    )
    declared = {one["name"]: one["expression"] for one in there["spec"]["variables"]}["declared"]
    assert declared == '{"widgets.knell.test": ["shop"]}'


def test_without_sources_and_groups_only_the_groups_of_ack_are_covered() -> None:
    policy, _ = policy_manifests(ProtectedResources(Settings(), "here"), restrict_marks=False)
    assert condition(policy["spec"]) == 'request.resource.group.endsWith(".services.k8s.aws")'


def test_the_webhook_is_asked_about_deletions_of_namespaces_and_definitions_and_of_objects_only_if_wanted() -> None:
    few = made(WebhookSettings(enabled=True), WEBHOOK)["webhooks"]
    all_three = made(WebhookSettings(enabled=True, objects=True), WEBHOOK)["webhooks"]
    assert few == all_three[:2]
    assert [(one["name"], one["rules"][0]["resources"]) for one in all_three] == [
        ("namespaces.protection.knell.dev", ["namespaces"]),
        ("definitions.protection.knell.dev", ["customresourcedefinitions"]),
        ("objects.protection.knell.dev", ["*"]),
    ]
    for one in all_three:
        assert [rule["operations"] for rule in one["rules"]] == [["DELETE"]]
        assert (one["matchPolicy"], one["sideEffects"]) == ("Equivalent", "NoneOnDryRun")
        # The API server evaluates these with a namespaceObject that is always null.
        assert "namespaceObject" not in msgspec.json.encode(one.get("matchConditions")).decode()


def test_definitions_are_judged_only_where_they_are_of_protected_resources() -> None:
    manifests = protection_manifests(settings(WebhookSettings(enabled=True), groups=("apps",)), "here")
    assert condition(manifests[-1]["webhooks"][1]) == (
        'oldObject.spec.group.endsWith(".services.k8s.aws") || oldObject.metadata.name in ["nodeclaims.karpenter.sh"]'
        ' || oldObject.spec.group in ["apps"]'
    )


def test_no_webhook_covers_its_own_namespace_or_the_control_plane() -> None:
    for one in made(WebhookSettings(enabled=True, objects=True), WEBHOOK)["webhooks"]:
        assert one["namespaceSelector"] == {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "operations"]}
            ]
        }


def test_a_selector_of_namespaces_narrows_what_is_covered_and_never_widens_it() -> None:
    webhook = WebhookSettings(enabled=True, namespaces="team in (b, a), !x, y, z!=1, tier=prod")
    _, *chosen = made(webhook, WEBHOOK)["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert chosen == [
        {"key": "team", "operator": "In", "values": ["a", "b"]},
        {"key": "x", "operator": "DoesNotExist"},
        {"key": "y", "operator": "Exists"},
        {"key": "z", "operator": "NotIn", "values": ["1"]},
        {"key": "tier", "operator": "In", "values": ["prod"]},
    ]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_failure_policy_and_timeout_are_those_of_the_settings(policy: Any) -> None:
    webhook = WebhookSettings(enabled=True, failure_policy=policy, timeout=timedelta(seconds=3))
    for one in made(webhook, WEBHOOK)["webhooks"]:
        assert (one["failurePolicy"], one["timeoutSeconds"]) == (policy, 3)


def test_the_api_server_calls_the_service_or_the_address_of_the_settings() -> None:
    service = made(WebhookSettings(enabled=True, port=9555, service="door"), "Service")
    assert service["metadata"]["namespace"] == "operations"
    # Not those of workers, where nothing listens.
    assert service["spec"]["selector"] == {
        "app.kubernetes.io/name": "knell",
        "app.kubernetes.io/component": "webhook",
    }
    assert [(one["port"], one["targetPort"]) for one in service["spec"]["ports"]] == [(443, 9555)]
    called = made(WebhookSettings(enabled=True, service="door"), WEBHOOK)["webhooks"][0]["clientConfig"]
    assert called == {"service": {"name": "door", "namespace": "operations", "path": "/protection", "port": 443}}
    outside = WebhookSettings(enabled=True, url="https://knell.example.com:9443")
    called = made(outside, WEBHOOK)["webhooks"][0]["clientConfig"]
    assert called == {"url": "https://knell.example.com:9443/protection"}


def test_cert_manager_makes_the_certificate_of_the_service_by_a_ca_that_stays() -> None:
    webhook = WebhookSettings(enabled=True, certificate="cert-manager", secret="door-tls")
    served = made(webhook, "Certificate", "knell-webhook")["spec"]
    assert served["secretName"] == "door-tls"
    assert served["dnsNames"][0] == "knell-webhook.operations.svc"
    assert served["issuerRef"] == {"kind": "Issuer", "name": "knell-webhook-ca"}
    authority = made(webhook, "Certificate", "knell-webhook-ca")["spec"]
    assert made(webhook, "Issuer", "knell-webhook-ca")["spec"] == {"ca": {"secretName": authority["secretName"]}}
    assert authority["isCA"]
    assert made(webhook, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    configuration = made(webhook, WEBHOOK)
    assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "operations/knell-webhook"}


@pytest.mark.parametrize(("host", "key"), [("knell.example.com", "dnsNames"), ("192.0.2.7", "ipAddresses")])
def test_cert_manager_makes_the_certificate_of_an_address(host: str, key: str) -> None:
    webhook = WebhookSettings(enabled=True, certificate="cert-manager", url=f"https://{host}:9443")
    served = made(webhook, "Certificate", "knell-webhook")["spec"]
    assert {name: value for name, value in served.items() if name in ("dnsNames", "ipAddresses")} == {key: [host]}


def test_the_webhook_configuration_is_that_of_the_cluster_of_the_settings() -> None:
    chosen = settings(WebhookSettings(enabled=True))
    assert webhook_configuration(chosen) == protection_manifests(chosen, "here")[-1]
