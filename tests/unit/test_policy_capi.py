"""Clusters on AWS: their owner, pauses and moves, and third-party annotations beside ours."""

from typing import Any

import msgspec
import pytest

from service.contract.names import FINALIZER, GC
from service.policy import capi
from service.policy.annotations import AnnotationValue
from service.policy.capi import CLUSTER_NAME, CLUSTER_PAUSED, DELETE_FOR_MOVE
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.policy.scope import gc_switch, scope_decision
from service.policy.stale_finalizers import stale_finalizer
from service.settings import FeatureSettings, PolicySettings, SourceSettings
from service.sources.capa import (
    AWS_CLUSTERS,
    AWS_FINALIZER,
    AWS_MANAGED_CONTROL_PLANES,
    CAPA,
    EXTERNAL_RESOURCE_GC,
    FEATURE,
)
from service.sources.registry import SOURCES, known_finalizers, source_named

ON = FeatureSettings(frozenset({FEATURE}))
KINDS = source_named(CAPA).capi_kinds
SOURCE = SourceSettings(resource=AWS_CLUSTERS, collector=CAPA)
PLAIN = SourceSettings(resource=AWS_CLUSTERS, collector="none")
CORE = "cluster.x-k8s.io"


def judged(annotations: dict[str, str], features: FeatureSettings = ON, **changes: Any) -> tuple[str, str, str]:
    facts = PolicyInput(
        source=msgspec.structs.replace(SOURCE, **changes), policy=PolicySettings(), features=features, labels={},
        annotations=annotations, namespace={},
    )  # fmt: skip
    found = evaluate_policy(facts)
    return found.kind, found.reason, found.mark


# ---- which finalizer


def test_each_collector_has_one_finalizer_and_all_of_them_are_known() -> None:
    assert source_named(CAPA).finalizer == AWS_FINALIZER
    assert {source_named(name).finalizer for name in ("none", "simulated", "anything")} == {FINALIZER}
    assert set(known_finalizers()) == {FINALIZER, *(source.finalizer for source in SOURCES)}
    assert AWS_FINALIZER in known_finalizers()


def test_a_finalizer_that_no_source_of_the_resource_stands_for_is_astray() -> None:
    assert stale_finalizer([AWS_FINALIZER, "x/y"], AWS_CLUSTERS, [PLAIN]) == AWS_FINALIZER
    assert stale_finalizer([AWS_FINALIZER], AWS_CLUSTERS, [PLAIN, SOURCE]) == ""
    assert stale_finalizer([FINALIZER], AWS_CLUSTERS, [SOURCE]) == FINALIZER
    assert stale_finalizer(["x/y"], AWS_CLUSTERS, [SOURCE]) == ""
    elsewhere = msgspec.structs.replace(SOURCE, resource=AWS_MANAGED_CONTROL_PLANES)
    assert stale_finalizer([AWS_FINALIZER], AWS_CLUSTERS, [PLAIN, elsewhere]) == AWS_FINALIZER


# ---- opting in and out


@pytest.mark.parametrize(
    ("annotations", "word"),
    [
        ({}, None),
        ({EXTERNAL_RESOURCE_GC: "true"}, "enabled"),
        ({EXTERNAL_RESOURCE_GC: " True "}, "enabled"),
        ({EXTERNAL_RESOURCE_GC: "false"}, "disabled"),
        ({EXTERNAL_RESOURCE_GC: "false", GC: "disabled"}, "disabled"),
        ({EXTERNAL_RESOURCE_GC: "true", GC: "enabled"}, "enabled"),
        ({GC: "disabled"}, "disabled"),
    ],
)
def test_both_annotations_say_the_same_in_their_own_words(annotations: dict[str, str], word: str | None) -> None:
    found = gc_switch(annotations, SOURCE)
    assert not isinstance(found, AnnotationValue) or found.word == word
    assert (found is None) == (word is None)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({EXTERNAL_RESOURCE_GC: "yes"}, "allowed: true, false"),
        ({EXTERNAL_RESOURCE_GC: ""}, "is empty; allowed: true, false"),
        ({EXTERNAL_RESOURCE_GC: "enabled"}, "allowed: true, false"),
        ({EXTERNAL_RESOURCE_GC: "true", GC: "true"}, "allowed: enabled, disabled"),
        ({EXTERNAL_RESOURCE_GC: "true", GC: "disabled"}, f"(disabled) and {EXTERNAL_RESOURCE_GC} (true)"),
        ({EXTERNAL_RESOURCE_GC: "false", GC: "enabled"}, "disagree; keep one of them"),
    ],
)  # fmt: skip
def test_unknown_values_hold_and_say_why(annotations: dict[str, str], words: str) -> None:
    found = scope_decision(annotations, {}, SOURCE)
    assert found is not None
    assert (found.kind, words in found.reason) == ("hold", True)
    assert judged(annotations)[0] == "hold"


def test_the_annotation_of_aws_means_nothing_to_other_sources() -> None:
    assert scope_decision({EXTERNAL_RESOURCE_GC: "false"}, {}, PLAIN) is None
    assert scope_decision({EXTERNAL_RESOURCE_GC: "nonsense"}, {}, PLAIN) is None


def test_an_opt_out_names_the_annotation_that_decided() -> None:
    kind, reason, mark = judged({EXTERNAL_RESOURCE_GC: "false"})
    assert (kind, mark) == ("out-of-scope", EXTERNAL_RESOURCE_GC)
    assert "says 'false'" in reason


def test_true_outweighs_the_selectors_as_our_own_annotation_does() -> None:
    assert judged({}, opt_in="team=a")[0] == "out-of-scope"
    assert judged({EXTERNAL_RESOURCE_GC: "true"}, opt_in="team=a")[0] == "delete"


# ---- the feature


def test_without_the_feature_everything_waits_whatever_is_said() -> None:
    for annotations in ({}, {EXTERNAL_RESOURCE_GC: "false"}, {DELETE_FOR_MOVE: ""}, {GC: "enabled"}):
        kind, reason, mark = judged(annotations, FeatureSettings())
        assert (kind, mark) == ("paused", "")
        assert FEATURE in reason
    assert judged({}, FeatureSettings(), collector="none")[0] == "delete"


# ---- standing still


@pytest.mark.parametrize("value", ["", "true", "false"])
def test_a_paused_object_waits_and_one_that_moves_is_released_whatever_the_value(value: str) -> None:
    assert judged({CLUSTER_PAUSED: value})[::2] == ("paused", CLUSTER_PAUSED)
    assert judged({DELETE_FOR_MOVE: value})[::2] == ("retain", DELETE_FOR_MOVE)
    assert judged({DELETE_FOR_MOVE: value, CLUSTER_PAUSED: value})[::2] == ("retain", DELETE_FOR_MOVE)
    assert judged({CLUSTER_PAUSED: value, EXTERNAL_RESOURCE_GC: "false"})[0] == "paused"


def test_other_sources_know_nothing_of_clusters_that_stand_still() -> None:
    assert judged({CLUSTER_PAUSED: "true"}, collector="none")[0] == "delete"
    assert judged({DELETE_FOR_MOVE: ""}, collector="none")[0] == "delete"


# ---- Clusters


def text(value: object) -> bytes:
    return msgspec.json.encode(value)


def owner(kind: str = "Cluster", group: str = CORE, name: str = "c1") -> dict[str, str]:
    return {"apiVersion": f"{group}/v1beta1", "kind": kind, "name": name, "uid": "u"}


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({}, ""),
        ({"ownerReferences": [owner()]}, "c1"),
        ({"ownerReferences": [owner("Cluster", "example.com", "x"), owner()]}, "c1"),
        ({"ownerReferences": [owner("ClusterClass")], "labels": {CLUSTER_NAME: "c2"}}, "c2"),
        ({"ownerReferences": [owner()], "labels": {CLUSTER_NAME: "c2"}}, "c1"),
        ({"ownerReferences": None, "labels": None}, ""),
    ],
)
def test_an_object_belongs_to_its_owner_or_to_what_its_label_names(metadata: dict[str, Any], name: str) -> None:
    assert capi.owning_cluster(metadata) == name
    assert capi.read_owning_cluster(text({"metadata": metadata})) == name


def test_the_owner_of_an_object_is_unknown_without_its_text() -> None:
    assert capi.read_owning_cluster(b"") is None


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ({"metadata": {}, "spec": {}}, None),
        ({"metadata": {}}, None),
        ({"metadata": {"annotations": {"a": "b"}}, "spec": {"paused": False}}, None),
        ({"metadata": {}, "spec": {"paused": True}}, "spec.paused"),
        ({"metadata": {"annotations": {CLUSTER_PAUSED: "false"}}, "spec": {}}, f"annotation {CLUSTER_PAUSED}"),
    ],
)
def test_a_cluster_is_paused_by_its_spec_or_by_an_annotation_of_any_value(cluster: object, why: str | None) -> None:
    assert capi.pause_reason(text(cluster)) == why


def test_a_cluster_that_can_not_be_read_may_be_paused() -> None:
    assert capi.pause_reason(b"{") is not None
    assert capi.pause_reason(text({"spec": {"paused": "perhaps"}})) is not None


AWS = {"kind": "AWSCluster", "name": "a"}
EKS = {"kind": "AWSManagedControlPlane", "name": "p"}
INFRA, PLANES = "infrastructure.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io"


@pytest.mark.parametrize("old", [True, False])
def test_a_cluster_leads_to_what_it_has_on_aws(old: bool) -> None:
    def ref(known: dict[str, str], group: str) -> dict[str, str]:
        return {**known, **({"apiVersion": f"{group}/v1beta1"} if old else {"apiGroup": group})}

    kubeadm = ref({"kind": "KubeadmControlPlane", "name": "k"}, PLANES)
    unmanaged = {"spec": {"infrastructureRef": ref(AWS, INFRA), "controlPlaneRef": kubeadm}}
    assert capi.infrastructure_of(text(unmanaged), KINDS) == (AWS_CLUSTERS, "a")
    shell = ref({"kind": "AWSManagedCluster", "name": "m"}, INFRA)
    managed = {"spec": {"infrastructureRef": shell, "controlPlaneRef": ref(EKS, PLANES)}}
    assert capi.infrastructure_of(text(managed), KINDS) == (AWS_MANAGED_CONTROL_PLANES, "p")
    both = {"spec": {"infrastructureRef": ref(EKS, PLANES), "controlPlaneRef": ref(EKS, PLANES)}}
    assert capi.infrastructure_of(text(both), KINDS) == (AWS_MANAGED_CONTROL_PLANES, "p")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "names nothing yet"),
        ({"infrastructureRef": {"kind": "AzureCluster", "name": "z", "apiGroup": INFRA}}, "AzureCluster z"),
        ({"infrastructureRef": {**AWS, "apiGroup": "example.com"}}, "no known source collects"),
        ({"controlPlaneRef": {**EKS, "apiGroup": "example.com"}}, "names nothing yet"),
    ],
)
def test_a_cluster_that_has_nothing_on_aws_says_what_it_has(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(capi.NoInfrastructure, match=words):
        capi.infrastructure_of(text({"spec": spec}), KINDS)
