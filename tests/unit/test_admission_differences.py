"""Comparison of a manifest with the live object: what the API server adds is no difference, what a person adds is."""

from typing import Any

import pytest

from service.admission.installed_objects import first_difference

WANTED: dict[str, Any] = {
    "failurePolicy": "Fail",
    "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "operations": ["DELETE"]}]},
    "validations": [{"expression": "a" * 100}],
}


def test_defaults_of_the_api_server_are_no_difference() -> None:
    live = {
        **WANTED,
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [{"apiGroups": ["*"], "operations": ["DELETE"], "scope": "*"}],
        },
    }
    assert first_difference(WANTED, live) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"failurePolicy": "Ignore"}, "spec.failurePolicy is 'Ignore' instead of 'Fail'"),
        ({"failurePolicy": None}, "spec.failurePolicy differs"),
        ({"validations": []}, "spec.validations has 0 entries instead of 1"),
        ({"validations": [{"expression": "true"}]}, "spec.validations[0].expression differs"),
        ({"matchConditions": [{"expression": "false"}]}, "spec.matchConditions was added"),
        (
            {"matchConstraints": {**WANTED["matchConstraints"], "matchPolicy": "Exact"}},
            "spec.matchConstraints.matchPolicy was added",
        ),
        (
            {"matchConstraints": {**WANTED["matchConstraints"], "excludeResourceRules": [{"apiGroups": ["*"]}]}},
            "spec.matchConstraints.excludeResourceRules was added",
        ),
    ],
)
def test_every_other_difference_is_named(changes: dict[str, Any], said: str) -> None:
    assert first_difference(WANTED, {**WANTED, **changes}) == said


def test_what_is_filled_in_later_is_not_compared() -> None:
    wanted = [{"clientConfig": {"url": "https://here"}}]
    live = [{"clientConfig": {"url": "https://here", "caBundle": "abc"}}]
    assert first_difference(wanted, live, "webhooks") == "webhooks[0].clientConfig.caBundle was added"
    assert first_difference(wanted, live, "webhooks", frozenset({"caBundle"})) == ""
