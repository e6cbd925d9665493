"""`knell protect` and `knell unprotect`: which annotations they change, and what they say of the state afterwards."""

import pytest

from tests.integration.protected_buckets import ACK, PLAIN, ProtectedBuckets, buckets
from tests.kube import Crd

__all__ = ["buckets"]

OTHER = "example.com/other"


def test_protect_sets_the_annotation_and_keeps_what_others_put_there(buckets: ProtectedBuckets) -> None:
    buckets.create("prod", annotations={"note": "mine"}, finalizers=[OTHER])
    answer = buckets.knell("protect", f"{buckets.crd.resource}/prod", "-n", buckets.namespace)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        f"{buckets.kind}/prod in Namespace {buckets.namespace} is protected: annotation {PLAIN} of the object says "
        f"'true'.\n"
    )
    assert buckets.annotations("prod") == {"note": "mine", PLAIN: "true"}
    assert buckets.get("prod")["metadata"]["finalizers"] == [OTHER]


@pytest.mark.parametrize("said", ["false", "perhaps"])
def test_protect_removes_only_what_would_contradict_at_that_rank(buckets: ProtectedBuckets, said: str) -> None:
    buckets.create("prod", annotations={ACK: said, f"rds.{ACK}": "false"})
    answer = buckets.knell("protect", f"{buckets.kind}/prod", "-n", buckets.namespace, "-o", "json")
    assert answer.code == 0, answer.err
    assert (answer.json["protected"], answer.json["set"], answer.json["removed"]) == (True, [PLAIN], [ACK])
    assert buckets.annotations("prod") == {PLAIN: "true", f"rds.{ACK}": "false"}


def test_protect_leaves_an_annotation_of_ack_that_agrees(buckets: ProtectedBuckets) -> None:
    buckets.create("prod", annotations={ACK: " True "})
    assert buckets.knell("protect", f"{buckets.kind}/prod", "-n", buckets.namespace).code == 0
    assert buckets.annotations("prod") == {PLAIN: "true", ACK: " True "}


def test_protect_says_if_another_annotation_counts_first(buckets: ProtectedBuckets) -> None:
    buckets.create("prod", annotations={f"s3.{ACK}": "false"})
    words = (f"{buckets.kind}/prod", "-n", buckets.namespace)
    answer = buckets.knell("protect", *words)
    assert answer.code == 1
    assert f"is not protected: annotation s3.{ACK} of the object says 'false' and counts first" in answer.out
    assert answer.out.endswith("use --service s3\n")
    assert buckets.knell("protect", *words, "--service", "S3").code == 0
    assert buckets.annotations("prod") == {PLAIN: "true", f"s3.{PLAIN}": "true"}


def test_a_service_that_does_not_count_for_the_kind_is_refused(buckets: ProtectedBuckets) -> None:
    buckets.create("prod")
    answer = buckets.knell("protect", f"{buckets.kind}/prod", "-n", buckets.namespace, "--service", "rds")
    assert answer.code == 2
    assert f"annotations for rds do not count for {buckets.crd.resource}; its service is s3" in answer.err
    wrong = buckets.knell("protect", f"{buckets.kind}/prod", "-n", buckets.namespace, "--service", "s_3")
    assert (wrong.code, "can't be the prefix of an annotation" in wrong.err) == (2, True)
    assert buckets.annotations("prod") == {}


def test_unprotect_removes_both_families_of_one_rank(buckets: ProtectedBuckets) -> None:
    buckets.create("prod", annotations={PLAIN: "true", ACK: "no", f"s3.{ACK}": "true", "note": "mine"})
    words = (f"{buckets.kind}/prod", "-n", buckets.namespace)
    answer = buckets.knell("unprotect", *words)
    assert answer.code == 1
    assert "is still protected: annotation s3.services.k8s.aws/prevent-delete of the object says 'true'" in answer.out
    # What it says can be typed.
    _, _, typed = answer.out.strip().partition("; to lift that: knell ")
    lifted = buckets.knell(*typed.split())
    assert lifted.code == 0, lifted.out
    assert "is not protected: nothing protects it." in lifted.out
    assert buckets.annotations("prod") == {"note": "mine"}
    again = buckets.knell("unprotect", *words)
    assert (again.code, "is not protected" in again.out) == (0, True)


def test_unprotect_names_the_namespace_that_still_protects_it(buckets: ProtectedBuckets) -> None:
    buckets.create("prod", annotations={PLAIN: "true"})
    buckets.annotate(**{PLAIN: "true"})
    answer = buckets.knell("unprotect", f"{buckets.kind}/prod", "-n", buckets.namespace)
    assert answer.code == 1
    assert f"is still protected: annotation {PLAIN} of its Namespace says 'true'" in answer.out
    assert answer.out.endswith(f"to lift that: knell unprotect namespace/{buckets.namespace}\n")
    assert buckets.annotations("prod") == {}
    assert buckets.namespace_annotations()[PLAIN] == "true"


def test_an_invalid_value_that_remains_is_said_to_protect(buckets: ProtectedBuckets) -> None:
    buckets.create("prod", annotations={f"s3.{PLAIN}": "yes"})
    answer = buckets.knell("unprotect", f"{buckets.kind}/prod", "-n", buckets.namespace, "-o", "json")
    assert (answer.code, answer.json["protected"]) == (1, True)
    assert "has the value 'yes'; allowed: true, false" in answer.json["said"]


def test_a_namespace_is_protected_and_lifted_by_its_name(buckets: ProtectedBuckets) -> None:
    named = f"namespace/{buckets.namespace}"
    answer = buckets.knell("protect", named)
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"Objects in Namespace {buckets.namespace} are protected: annotation {PLAIN} of the ")
    assert buckets.namespace_annotations()[PLAIN] == "true"
    service = buckets.knell("unprotect", f"ns/{buckets.namespace}", "--service", "s3")
    assert (service.code, "are still protected" in service.out) == (1, True)
    lifted = buckets.knell("unprotect", named)
    assert lifted.code == 0, lifted.out
    assert "are not protected: it has no annotation for that" in lifted.out
    assert PLAIN not in buckets.namespace_annotations()


def test_what_a_namespace_says_of_single_services_is_added(buckets: ProtectedBuckets) -> None:
    buckets.annotate(**{f"s3.{ACK}": "false"})
    answer = buckets.knell("protect", f"namespace/{buckets.namespace}")
    assert answer.code == 0
    assert f"those of service s3 are not protected: annotation s3.{ACK} of the Namespace says 'false'" in answer.out


def test_an_object_that_is_being_deleted_is_protected_and_that_is_said(buckets: ProtectedBuckets) -> None:
    buckets.create("late", finalizers=[OTHER])
    buckets.widgets.api.kube.delete(buckets.crd.path(buckets.namespace, "late"))
    answer = buckets.knell("protect", f"{buckets.kind}/late", "-n", buckets.namespace)
    assert answer.code == 0, answer.err
    assert "It is already being deleted" in answer.out
    assert buckets.annotations("late") == {PLAIN: "true"}
    assert buckets.get("late")["metadata"]["finalizers"] == [OTHER]


def test_objects_of_sources_and_of_configured_groups_can_be_protected(buckets: ProtectedBuckets) -> None:
    widgets = buckets.widgets
    widgets.create("one")
    of_source = buckets.knell("protect", f"{widgets.crd.plural}/one", "-n", buckets.namespace)
    assert of_source.code == 0, of_source.err
    other = widgets.api.crd()
    widgets.api.kube.create(other.path(buckets.namespace), other.body("two"))
    words = ("protect", f"{other.resource}/two", "-n", buckets.namespace)
    refused = buckets.knell(*words)
    assert refused.code == 2
    assert f"'{other.resource}' is no protected resource that cluster here serves" in refused.err
    configured = widgets.config("configured", protection={"groups": [other.group]})
    accepted = buckets.knell(*words, config=configured)
    assert accepted.code == 0, accepted.err


def test_an_ambiguous_kind_lists_the_choices(buckets: ProtectedBuckets) -> None:
    twin = Crd(group="s3control.services.k8s.aws", plural=buckets.crd.plural)
    buckets.widgets.api.kube.install(twin)
    try:
        buckets.create("prod")
        answer = buckets.knell("protect", f"{buckets.kind}/prod", "-n", buckets.namespace)
        assert answer.code == 2
        assert f"{buckets.crd.resource}, {twin.resource}; write plural.group" in answer.err
        chosen = buckets.knell("protect", f"{buckets.crd.resource}/prod", "-n", buckets.namespace)
        assert chosen.code == 0, chosen.err
    finally:
        buckets.widgets.api.kube.delete(twin.own_path)


def test_what_is_not_there_is_reported_in_one_sentence(buckets: ProtectedBuckets) -> None:
    gone = buckets.knell("protect", f"{buckets.kind}/nothing", "-n", buckets.namespace)
    assert (gone.code, "say which namespace by -n" in gone.err) == (1, True)
    nowhere = buckets.knell("protect", "namespace/nowhere-at-all")
    assert (nowhere.code, "there is no Namespace nowhere-at-all of cluster here" in nowhere.err) == (1, True)
    unknown = buckets.knell("unprotect", "pod/one")
    assert (unknown.code, "is no protected resource" in unknown.err) == (2, True)
    nothing = buckets.knell("protect", "buckets")
    assert (nothing.code, "is no KIND/NAME" in nothing.err) == (2, True)


def test_with_several_clusters_the_one_of_the_settings_is_meant(buckets: ProtectedBuckets) -> None:
    buckets.create("prod")
    widgets = buckets.widgets
    here = {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "twin")), "context": "local"}
    sources = {"widgets": {"resource": widgets.crd.resource, "collector": "none", "cluster": "here"}}
    words = ("protect", f"{buckets.kind}/prod", "-n", buckets.namespace)
    open_ = widgets.config("open", clusters={"here": here, "there": here}, sources=sources)
    asked = buckets.knell(*words, config=open_)
    assert (asked.code, "say which cluster by --cluster" in asked.err) == (2, True)
    assert buckets.knell(*words, "--cluster", "there", config=open_).code == 0
    settled = widgets.config(
        "settled", clusters={"here": here, "there": here}, sources=sources, protection={"cluster": "here"}
    )
    answer = buckets.knell(*words, "-o", "json", config=settled)
    assert (answer.code, answer.json["cluster"]) == (0, "here")
