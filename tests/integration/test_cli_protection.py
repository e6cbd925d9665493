"""`knell protection`: what it lists, what it says of the door, its manifests, and the dry run of a deletion."""

import json
from pathlib import Path
from typing import Any

import yaml

from service.admission.names import CONFIGURATION, POLICY
from tests.integration.protected_buckets import ACK, PLAIN, ProtectedBuckets, buckets

__all__ = ["buckets"]

OTHER = "example.com/other"
WEBHOOK = {"enabled": True, "url": "https://127.0.0.1:9"}


def listed(buckets: ProtectedBuckets, *words: str, config: Path | None = None) -> Any:
    answer = buckets.knell("protection", "list", "-n", buckets.namespace, "-o", "json", *words, config=config)
    assert answer.code == 0, answer.err
    return answer.json


def test_every_protected_object_is_listed_with_what_protects_it(buckets: ProtectedBuckets) -> None:
    buckets.annotate(**{f"s3.{PLAIN}": "true"})
    buckets.create("by-itself", annotations={PLAIN: "true"})
    buckets.create("by-namespace")
    buckets.create("free", annotations={ACK: "false"})
    buckets.create("invalid", annotations={ACK: "perhaps"}, finalizers=[OTHER])
    buckets.widgets.api.kube.delete(buckets.crd.path(buckets.namespace, "invalid"))
    # Of a source without a service: the annotation for S3 says nothing about it.
    buckets.widgets.create("apart")
    found = {one["name"]: one for one in listed(buckets)["protected"]}
    assert {name: (one["annotation"], one["level"], one["valid"]) for name, one in found.items()} == {
        "by-itself": (PLAIN, "object", True),
        "by-namespace": (f"s3.{PLAIN}", "Namespace", True),
        "invalid": (ACK, "object", False),
    }
    assert {name for name, one in found.items() if one["going"]} == {"invalid"}
    assert {one["resource"] for one in found.values()} == {buckets.crd.resource}


def test_the_table_fits_eighty_columns_and_names_what_is_invalid(buckets: ProtectedBuckets) -> None:
    buckets.create("a-bucket-with-a-name-as-long-as-names-of-buckets-are", annotations={f"s3.{ACK}": "true"})
    buckets.create("invalid", annotations={ACK: "perhaps"})
    words = ("protection", "list", "-n", buckets.namespace)
    answer = buckets.knell(*words)
    assert answer.code == 0, answer.err
    table = answer.out.split("\n\n")[0]
    assert "invalid value" in " ".join(table.split())
    assert max(map(len, table.splitlines())) <= 80
    wide = buckets.knell(*words, "-o", "wide")
    assert "has the value 'perhaps'; allowed: true, false" in wide.out
    names = buckets.knell(*words, "-o", "name")
    assert names.out.splitlines()[1] == f"{buckets.kind}.{buckets.crd.group}/invalid"


def test_the_list_is_bounded_and_says_how_many_there_are_besides(buckets: ProtectedBuckets) -> None:
    buckets.annotate(**{PLAIN: "true"})
    for number in range(3):
        buckets.create(f"b{number}")
    found = listed(buckets, "--limit", "2")
    assert ([one["name"] for one in found["protected"]], found["more"]) == (["b0", "b1"], 1)
    names = buckets.knell("protection", "list", "-n", buckets.namespace, "-o", "name", "--limit", "2")
    assert "and 1 more (--limit, now 2)" in names.err


def test_a_protected_namespace_without_objects_is_listed(buckets: ProtectedBuckets) -> None:
    buckets.annotate(**{PLAIN: "true"})
    found = listed(buckets)
    assert found["protected"] == []
    assert [(one["name"], one["annotation"]) for one in found["namespaces"]] == [(buckets.namespace, PLAIN)]
    table = buckets.knell("protection", "list", "-n", buckets.namespace)
    assert f"Also protected is what will be made in these Namespaces: {buckets.namespace}" in table.out


def test_all_namespaces_are_listed_unless_one_is_named(buckets: ProtectedBuckets) -> None:
    buckets.create("prod", annotations={PLAIN: "true"})
    elsewhere = buckets.widgets.api.namespace()
    buckets.widgets.api.kube.create(buckets.crd.path(elsewhere), buckets.crd.body("far", annotations={PLAIN: "true"}))
    assert [one["name"] for one in listed(buckets)["protected"]] == ["prod"]
    everywhere = buckets.knell("protection", "list", "-o", "json").json["protected"]
    ours = [one for one in everywhere if one["resource"] == buckets.crd.resource]
    assert {(one["namespace"], one["name"]) for one in ours} == {(buckets.namespace, "prod"), (elsewhere, "far")}


# ---- manifests


def test_the_manifests_are_what_the_settings_make(buckets: ProtectedBuckets) -> None:
    plain = buckets.knell("protection", "manifests")
    assert (plain.code, plain.err) == (0, "")
    made = list(yaml.safe_load_all(plain.out))
    assert [(one["kind"], one["metadata"]["name"]) for one in made] == [
        ("ValidatingAdmissionPolicy", POLICY),
        ("ValidatingAdmissionPolicyBinding", POLICY),
    ]
    assert json.loads(buckets.knell("protection", "manifests", "-o", "json").out)["items"] == made
    config = buckets.widgets.config("webhook", protection={"webhook": WEBHOOK})
    answer = buckets.knell("protection", "manifests", config=config)
    assert [one["kind"] for one in yaml.safe_load_all(answer.out)][-1] == "ValidatingWebhookConfiguration"
    assert "start Knell first" in answer.err
    lenient = buckets.widgets.config("lenient", protection={"webhook": {**WEBHOOK, "failure_policy": "Ignore"}})
    assert buckets.knell("protection", "manifests", config=lenient).err == ""


# ---- test


def test_a_test_deletes_nothing(buckets: ProtectedBuckets) -> None:
    buckets.create("prod")
    answer = buckets.knell("protection", "test", f"{buckets.kind}/prod", "-n", buckets.namespace)
    assert answer.code == 0, answer.err
    assert (
        answer.out
        == f"{buckets.kind}/prod in Namespace {buckets.namespace} would be deleted: the server denies nothing.\n"
    )
    assert "deletionTimestamp" not in buckets.get("prod")["metadata"]
    namespace = buckets.knell("protection", "test", f"namespace/{buckets.namespace}", "-o", "json")
    assert (namespace.code, namespace.json["denied"]) == (0, False)
    path = f"/api/v1/namespaces/{buckets.namespace}"
    found: Any = buckets.widgets.api.kube.get(path)
    assert "deletionTimestamp" not in found["metadata"]
    assert found["status"]["phase"] == "Active"


def test_a_test_of_a_namespace_that_is_never_deleted_says_so(buckets: ProtectedBuckets) -> None:
    answer = buckets.knell("protection", "test", "namespace/kube-system")
    assert answer.code == 0
    assert answer.out == 'denied: namespaces "kube-system" is forbidden: this namespace may not be deleted\n'


def test_a_test_of_what_is_not_there_is_an_error(buckets: ProtectedBuckets) -> None:
    answer = buckets.knell("protection", "test", f"{buckets.kind}/nothing", "-n", buckets.namespace)
    assert (answer.code, answer.out, "there is no" in answer.err) == (1, "", True)


def test_what_is_listed_does_not_depend_on_the_configuration(buckets: ProtectedBuckets) -> None:
    """The name of the configuration is fixed, so that a webhook that the settings forgot is found."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [],
    }
    buckets.widgets.api.kube.create(path, body)
    try:
        checks = {one["check"]: one for one in listed(buckets)["checks"]}
    finally:
        buckets.widgets.api.kube.delete(f"{path}/{CONFIGURATION}")
    assert checks["protection webhook"]["state"] == "warning"
    assert "protection.webhook.enabled is false" in checks["protection webhook"]["what"]
