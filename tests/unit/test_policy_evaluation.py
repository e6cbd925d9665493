"""Evaluation of all policies: pauses, scope, protection, dry runs and deletion policy, in their order."""

from typing import Any

import msgspec
import pytest

from service.policy.evaluation import PolicyInput, evaluate_policy
from service.policy.selectors import InvalidSelector
from service.settings import PolicySettings, SourceSettings

FACTS = PolicyInput(
    source=SourceSettings(resource="buckets.s3.services.k8s.aws", collector="s3"),
    policy=PolicySettings(),
    labels={},
    annotations={},
    namespace={},
)


def judged(
    *,
    labels: dict[str, str] | None = None,
    own: dict[str, str] | None = None,
    namespace: dict[str, str] | None = None,
    policy: dict[str, Any] | None = None,
    **source: Any,
) -> tuple[str, str]:
    facts = msgspec.structs.replace(
        FACTS,
        source=msgspec.structs.replace(FACTS.source, **source),
        policy=PolicySettings(**(policy or {})),
        labels=labels or {},
        annotations=own or {},
        namespace=namespace or {},
    )
    found = evaluate_policy(facts)
    return found.kind, found.reason


PROTECTED = {"knell.dev/prevent-delete": "true"}
RETAINED = {"knell.dev/deletion-policy": "retain"}
DRY = {"knell.dev/dry-run": "true"}
OUT = {"knell.dev/gc": "disabled"}


def test_nothing_said_means_delete() -> None:
    assert judged() == ("delete", "the setting policy.deletion_policy says delete")
    assert judged(own=RETAINED)[0] == "retain"


def test_a_pause_of_everything_or_of_the_source_comes_before_all_else() -> None:
    everything = PROTECTED | RETAINED | DRY | OUT
    assert judged(own=everything, policy={"paused": True}) == ("paused", "the setting policy.paused is on")
    assert judged(own=everything, paused=True) == ("paused", "its source is paused")


def test_the_service_is_taken_from_the_group_of_the_source() -> None:
    assert judged(own={"s3.knell.dev/deletion-policy": "retain"})[0] == "retain"
    other: dict[str, Any] = {"resource": "clusters.cluster.x-k8s.io", "service": "CAPA"}
    assert judged(own={"s3.knell.dev/deletion-policy": "retain"}, **other)[0] == "delete"
    assert judged(own={"capa.knell.dev/deletion-policy": "retain"}, **other)[0] == "retain"


@pytest.mark.parametrize(
    ("labels", "source", "kind"),
    [
        ({}, {}, "delete"),
        ({"tier": "prod"}, {"opt_in": "tier=prod"}, "delete"),
        ({"tier": "dev"}, {"opt_in": "tier=prod"}, "out-of-scope"),
        ({}, {"opt_in": "tier=prod"}, "out-of-scope"),
        ({"keep": ""}, {"opt_out": "keep"}, "out-of-scope"),
        ({}, {"opt_out": "keep"}, "delete"),
        ({}, {"opt_out": "  "}, "delete"),
        ({"tier": "prod", "keep": "x"}, {"opt_in": "tier=prod", "opt_out": "keep"}, "out-of-scope"),
    ],
)
def test_labels_decide_about_the_scope(labels: dict[str, str], source: dict[str, Any], kind: str) -> None:
    found, reason = judged(labels=labels, **source)
    assert found == kind
    if kind == "out-of-scope":
        assert "opt_out, 'keep'" in reason or "opt_in, 'tier=prod'" in reason


def test_an_objects_own_mark_outweighs_the_selectors() -> None:
    selectors: dict[str, Any] = {"opt_in": "tier=prod", "opt_out": "keep"}
    assert judged(labels={"keep": "x"}, own={"knell.dev/gc": "Enabled"}, **selectors)[0] == "delete"
    kind, reason = judged(labels={"tier": "prod"}, own=OUT, **selectors)
    assert (kind, reason) == ("out-of-scope", "annotation knell.dev/gc of the object says 'disabled'")
    kind, reason = judged(own={"knell.dev/gc": "on"})
    assert kind == "hold"
    assert reason == "annotation knell.dev/gc of the object has the value 'on'; allowed: enabled, disabled"
    # It is a mark of one object: on a Namespace it says nothing.
    assert judged(namespace=OUT)[0] == "delete"


def test_an_invalid_selector_is_reported_with_its_setting() -> None:
    with pytest.raises(InvalidSelector, match=r"^opt_in: 'a in' is no label selector"):
        judged(opt_in="a in")


def test_protection_holds_whatever_the_policy_says() -> None:
    assert judged(own=PROTECTED)[0] == "protected"
    assert judged(namespace=PROTECTED, own=RETAINED)[0] == "protected"
    assert judged(own=PROTECTED | DRY)[0] == "protected"
    assert judged(own={"knell.dev/prevent-delete": "maybe"} | RETAINED)[0] == "hold"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"own": DRY}, "annotation knell.dev/dry-run of the object says 'true'"),
        ({"namespace": DRY}, "annotation knell.dev/dry-run of its Namespace says 'true'"),
        ({"dry_run": True}, "its source's dry_run is on"),
        ({"policy": {"dry_run": True}}, "the setting policy.dry_run is on"),
    ],
)
def test_a_dry_run_at_any_level_is_one_and_tells_what_would_be_done(where: dict[str, Any], words: str) -> None:
    kind, reason = judged(**where)
    assert kind == "dry-run"
    assert reason == f"{words}; without it: delete, for the setting policy.deletion_policy says delete"
    retained = where | {"own": where.get("own", {}) | RETAINED}
    assert judged(**retained)[0] == "dry-run"
    assert "without it: retain, for annotation knell.dev/deletion-policy" in judged(**retained)[1]


def test_no_level_switches_off_the_dry_run_of_another() -> None:
    off = {"knell.dev/dry-run": "false"}
    assert judged(own=off, namespace=DRY)[0] == "dry-run"
    assert judged(own=DRY, namespace=off)[0] == "dry-run"
    assert judged(own=off, namespace=off, dry_run=True)[0] == "dry-run"
    assert judged(own=off, namespace=off)[0] == "delete"


def test_a_wrong_word_about_a_dry_run_holds_at_any_level() -> None:
    wrong = {"knell.dev/dry-run": "on"}
    assert judged(own=wrong)[0] == "hold"
    assert judged(own=DRY, namespace=wrong) == (
        "hold",
        "annotation knell.dev/dry-run of its Namespace has the value 'on'; allowed: true, false",
    )


def test_what_is_unclear_about_the_policy_is_unclear_in_a_dry_run_too() -> None:
    assert judged(own=DRY | {"knell.dev/deletion-policy": "orphan"})[0] == "hold"
