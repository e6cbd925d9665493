"""Deletion policy and protection: complete tables over level, prefix and value, and each message."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.policy.decisions import PolicyDecision
from service.policy.deletion_policy import decide_deletion_policy
from service.policy.protection import decide_protection
from service.policy.services import service_of
from service.settings import PolicySettings, SourceSettings

SOURCE = SourceSettings(resource="buckets.s3.services.k8s.aws", collector="s3")
DELETES = PolicySettings()
PREFIXES = ("s3.services.k8s.aws", "s3.knell.dev", "services.k8s.aws", "knell.dev")
RANK = {prefix: rank for rank, pair in enumerate((PREFIXES[:2], PREFIXES[2:])) for prefix in pair}
PLACES = tuple(product((0, 1), PREFIXES))
"""Every place where something can be said: 0 is the object, 1 its Namespace."""


def marks(word: str, said: dict[tuple[int, str], str], level: int) -> dict[str, str]:
    return {f"{prefix}/{word}": value for (at, prefix), value in said.items() if at == level}


def expected(said: dict[tuple[int, str], str], answers: dict[str, str], nothing: str) -> str:
    """Worked out from the ranks alone: what stands at the lowest number decides, if it is of one mind."""
    if not said:
        return nothing
    deciding = min((level, RANK[prefix]) for level, prefix in said)
    words = {value for (level, prefix), value in said.items() if (level, RANK[prefix]) == deciding}
    return answers.get(words.pop(), "hold") if len(words) == 1 else "hold"


def every(values: tuple[str, ...]) -> "list[dict[tuple[int, str], str]]":
    combinations = product(("", *values), repeat=len(PLACES))
    return [{place: value for place, value in zip(PLACES, row, strict=True) if value} for row in combinations]


def test_the_table_of_deletion_policies_over_all_levels_prefixes_and_values() -> None:
    answers = {"delete": "delete", "retain": "retain"}
    rows = every(("delete", "retain", "orphan"))
    assert len(rows) == 4**8
    seen = set()
    for said in rows:
        own, namespace = marks("deletion-policy", said, 0), marks("deletion-policy", said, 1)
        found = decide_deletion_policy(own, namespace, DELETES, "s3", SOURCE)
        assert found.kind == expected(said, answers, "delete"), (said, found)
        assert bool(found.mark) == bool(said)
        assert not found.mark or found.mark in found.reason
        seen.add(found.kind)
    assert seen == {"delete", "retain", "hold"}


def test_the_table_of_protection_over_all_levels_prefixes_and_values() -> None:
    answers = {"true": "protected", "false": "free"}
    seen = set()
    for said in every(("true", "false", "yes")):
        found = decide_protection(marks("prevent-delete", said, 0), marks("prevent-delete", said, 1), "s3")
        assert found.kind == expected(said, answers, "free"), (said, found)
        seen.add(found.kind)
    assert seen == {"free", "protected", "hold"}


@pytest.mark.parametrize("for_service", [None, "delete", "retain"])
@pytest.mark.parametrize("for_source", [None, "delete", "retain"])
@pytest.mark.parametrize("for_all", ["delete", "retain"])
def test_without_annotations_the_nearest_setting_decides(
    for_service: str | None, for_source: str | None, for_all: str
) -> None:
    policy = PolicySettings(deletion_policy=for_all, services={"s3": for_service} if for_service else {})  # type: ignore[arg-type, dict-item]
    source = SourceSettings(resource="x.example.com", collector="c", deletion_policy=for_source)  # type: ignore[arg-type]
    found = decide_deletion_policy({}, {}, policy, "s3", source)
    assert found.kind == next(word for word in (for_service, for_source, for_all) if word)
    setting = "policy.services.s3" if for_service else "deletion_policy"
    assert setting in found.reason
    # A setting is outweighed by the weakest annotation.
    for word in ("delete", "retain"):
        assert decide_deletion_policy({}, {"knell.dev/deletion-policy": word}, policy, "s3", source).kind == word


def test_a_setting_for_a_service_counts_for_no_other_and_for_none() -> None:
    policy = PolicySettings(services={"s3": "retain"})
    assert decide_deletion_policy({}, {}, policy, "rds", SOURCE).kind == "delete"
    assert decide_deletion_policy({}, {}, policy, "", SOURCE).kind == "delete"
    assert decide_deletion_policy({}, {}, PolicySettings(services={" S3": "retain"}), "s3", SOURCE).kind == "retain"
    both = decide_deletion_policy({}, {}, PolicySettings(services={"S3": "retain", "s3": "delete"}), "s3", SOURCE)
    assert (both.kind, "policy.services.S3 (retain) and policy.services.s3 (delete)" in both.reason) == ("hold", True)


def test_the_default_is_delete() -> None:
    found = decide_deletion_policy({}, {}, PolicySettings(), "", SOURCE)
    assert found == PolicyDecision("delete", "the setting policy.deletion_policy says delete")


@pytest.mark.parametrize(
    ("value", "kind"),
    [("Delete", "delete"), ("Retain", "retain"), ("RETAIN", "retain"), (" retain\n", "retain"), ("", "hold"),
     ("  ", "hold"), ("retained", "hold"), ("true", "hold"), ("delete retain", "hold"), ("dеlete", "hold")],
)  # fmt: skip
def test_values_are_read_whatever_their_case_and_anything_else_holds(value: str, kind: str) -> None:
    assert decide_deletion_policy({"services.k8s.aws/deletion-policy": value}, {}, DELETES, "s3", SOURCE).kind == kind
    assert decide_deletion_policy({}, {"services.k8s.aws/deletion-policy": value}, DELETES, "s3", SOURCE).kind == kind


@given(st.text())
def test_whatever_stands_there_only_the_two_words_decide(value: str) -> None:
    found = decide_deletion_policy({"knell.dev/deletion-policy": value}, {}, PolicySettings(), "", SOURCE)
    word = value.strip().lower()
    assert found.kind == (word if word in ("delete", "retain") else "hold")
    assert found.reason.isprintable()
    shielded = decide_protection({"knell.dev/prevent-delete": value}, {}, "")
    assert shielded.kind == {"true": "protected", "false": "free"}.get(word, "hold")


def test_a_wrong_value_is_reported_with_its_level_its_annotation_and_what_is_allowed() -> None:
    found = decide_deletion_policy({}, {"s3.knell.dev/deletion-policy": "Orphan"}, DELETES, "s3", SOURCE)
    assert found == PolicyDecision(
        "hold",
        "annotation s3.knell.dev/deletion-policy of its Namespace has the value 'Orphan'; allowed: delete, retain",
        "s3.knell.dev/deletion-policy",
    )
    empty = decide_protection({"knell.dev/prevent-delete": " "}, {}, "s3")
    assert empty.reason == "annotation knell.dev/prevent-delete of the object is empty; allowed: true, false"


def test_a_very_long_value_is_cut_in_the_reason() -> None:
    found = decide_deletion_policy({"knell.dev/deletion-policy": "x" * 100_000}, {}, DELETES, "", SOURCE)
    assert (found.kind, len(found.reason) < 250) == ("hold", True)


def test_a_decision_names_level_annotation_and_value() -> None:
    found = decide_deletion_policy({"s3.services.k8s.aws/deletion-policy": "Retain"}, {}, DELETES, "s3", SOURCE)
    assert found.reason == "annotation s3.services.k8s.aws/deletion-policy of the object says 'Retain'"


def test_two_of_equal_rank_that_disagree_hold_and_name_both() -> None:
    said = {"services.k8s.aws/deletion-policy": "retain", "knell.dev/deletion-policy": "delete"}
    found = decide_deletion_policy(said, {}, DELETES, "s3", SOURCE)
    assert found.kind == "hold"
    assert (
        "services.k8s.aws/deletion-policy (retain) and knell.dev/deletion-policy (delete) of the object" in found.reason
    )
    agreed = {"services.k8s.aws/deletion-policy": "Retain", "knell.dev/deletion-policy": "retain"}
    assert decide_deletion_policy(agreed, {}, DELETES, "s3", SOURCE).kind == "retain"


def test_what_has_been_decided_higher_up_is_not_spoilt_by_a_wrong_value_below() -> None:
    own = {"s3.services.k8s.aws/deletion-policy": "retain", "services.k8s.aws/deletion-policy": "nonsense"}
    assert decide_deletion_policy(own, {}, DELETES, "s3", SOURCE).kind == "retain"
    plain, wrong = {"knell.dev/deletion-policy": "delete"}, {"s3.knell.dev/deletion-policy": "nonsense"}
    assert decide_deletion_policy(plain, wrong, DELETES, "s3", SOURCE).kind == "delete"
    # The other way round the wrong one decides, and nobody can tell what was meant.
    assert decide_deletion_policy(wrong, plain, DELETES, "s3", SOURCE).kind == "hold"


def test_of_two_of_equal_rank_a_wrong_one_holds_though_the_other_is_right() -> None:
    for right, wrong in (("services.k8s.aws", "knell.dev"), ("knell.dev", "services.k8s.aws")):
        said = {f"{right}/deletion-policy": "retain", f"{wrong}/deletion-policy": "keep"}
        found = decide_deletion_policy(said, {}, DELETES, "s3", SOURCE)
        assert (found.kind, found.mark) == ("hold", f"{wrong}/deletion-policy")


def test_annotations_for_another_service_say_nothing() -> None:
    said = {"rds.services.k8s.aws/deletion-policy": "retain", "rds.knell.dev/deletion-policy": "nonsense"}
    assert decide_deletion_policy(said, said, DELETES, "s3", SOURCE).kind == "delete"
    assert decide_protection({"rds.services.k8s.aws/prevent-delete": "true"}, {}, "s3").kind == "free"


def test_without_a_service_only_the_plain_ones_count() -> None:
    said = {".services.k8s.aws/deletion-policy": "retain", "s3.knell.dev/deletion-policy": "nonsense"}
    assert decide_deletion_policy(said, {}, DELETES, "", SOURCE).kind == "delete"
    assert (
        decide_deletion_policy(said | {"knell.dev/deletion-policy": "retain"}, {}, DELETES, "", SOURCE).kind == "retain"
    )


@pytest.mark.parametrize("service", ["my db", "a/b", "ä", "-a", "a..b", "a" * 300, "a\n", "*"])
def test_a_service_that_no_annotation_can_name_holds_everything(service: str) -> None:
    said = {f"{service}.knell.dev/deletion-policy": "retain", "knell.dev/deletion-policy": "delete"}
    for found in (
        decide_deletion_policy(said, {}, DELETES, service, SOURCE),
        decide_deletion_policy({}, {}, DELETES, service, SOURCE),
    ):
        assert (found.kind, "can't be the prefix of an annotation" in found.reason) == ("hold", True)
    assert decide_protection({}, {}, service).kind == "hold"


@pytest.mark.parametrize(
    ("group", "setting", "service"),
    [
        ("s3.services.k8s.aws", "", "s3"),
        ("s3.services.k8s.aws", "other", "s3"),
        ("services.k8s.aws", "adopted", "adopted"),
        ("cluster.x-k8s.io", "", ""),
        ("cluster.x-k8s.io", " CAPA ", "capa"),
        ("evilservices.k8s.aws", "", ""),
        ("", "core", "core"),
    ],
)
def test_the_service_is_the_first_label_of_an_ack_group_or_the_setting(group: str, setting: str, service: str) -> None:
    assert service_of(group, setting) == service


def test_protection_of_the_object_outweighs_that_of_its_namespace_both_ways() -> None:
    on, off = {"services.k8s.aws/prevent-delete": "true"}, {"services.k8s.aws/prevent-delete": "false"}
    assert decide_protection(off, on, "s3").kind == "free"
    assert decide_protection(on, off, "s3").kind == "protected"
    assert decide_protection({}, on, "s3").kind == "protected"
    assert decide_protection({}, {}, "s3").kind == "free"
    assert decide_protection({"s3.services.k8s.aws/prevent-delete": "False"} | on, {}, "s3").kind == "free"


@pytest.mark.parametrize("value", ["\x1cfalse", "false\x1f"])
def test_a_control_character_beside_a_value_makes_it_invalid_as_at_the_admission_policies(value: str) -> None:
    assert decide_protection({"knell.dev/prevent-delete": value}, {}, "").kind == "hold"
