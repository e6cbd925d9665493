"""Label selectors: the semantics of the API server, and the messages for invalid ones."""

import pytest

from service.policy.selectors import InvalidSelector, parse_selector
from service.settings.sources import ClusterSettings, SourceSettings, find_contradictions

LABELS = {"app": "web", "tier": "front", "example.com/team": "a-1", "empty": "", "in": "x"}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("  ", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app=api", False),
        ("app!=api", True),
        ("app!=web", False),
        ("absent!=web", True),
        ("absent=", False),
        ("empty=", True),
        ("empty", True),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("! absent", True),
        ("!app", False),
        ("app in (web)", True),
        ("app in (api, web)", True),
        ("app in(api,web)", True),
        ("app in (api)", False),
        ("absent in (api)", False),
        ("empty in (,a)", True),
        ("app notin (api, db)", True),
        ("app notin (web)", False),
        ("absent notin (web)", True),
        ("in in (x)", True),
        ("in", True),
        ("example.com/team=a-1", True),
        ("app=web,tier=front", True),
        ("app=web, tier!=front", False),
        ("tier in (front, back), !absent ,app", True),
        ("APP=web", False),
        ("app=Web", False),
    ],
)
def test_a_selector_fits_or_does_not(text: str, fits: bool) -> None:
    assert parse_selector(text).matches(LABELS) is fits


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=b,", "nothing before or after a comma"),
        (",a=b", "nothing before or after a comma"),
        ("a=b,,c", "nothing before or after a comma"),
        ("a in (b", "parentheses don't match"),
        ("a in b)", "parentheses don't match"),
        ("a in ((b))", "parentheses don't match"),
        ("a in ()", "names no value"),
        ("a in b", "is none of"),
        ("a b", "is none of"),
        ("a=b=c", "is none of"),
        ("a>1", "can't be the name of a label"),
        ("=b", "is none of"),
        ("!a=b", "is none of"),
        ("!", "is none of"),
        ("a!", "is none of"),
        ("-a=b", "'-a' can't be the name"),
        ("a/b/c=d", "'a/b/c' can't be the name"),
        ("Example.com/a", "can't be the name"),
        ("/a", "can't be the name"),
        ("a=-b", "'-b' can't be the value"),
        ("a=" + "b" * 64, "can't be the value"),
        ("a" * 64, "can't be the name"),
        ("a=ä", "can't be the value"),
        ("a=b\n,", "nothing before or after"),
    ],
)
def test_invalid_text_for_a_selector_is_reported_with_its_setting(text: str, complaint: str) -> None:
    with pytest.raises(InvalidSelector) as raised:
        parse_selector(text, "sources.x.opt_in")
    assert str(raised.value).startswith("sources.x.opt_in: ")
    assert complaint in str(raised.value)


def test_the_settings_of_a_source_are_refused_with_a_selector_or_service_that_is_none() -> None:
    source = SourceSettings(
        resource="things.example.com", collector="c", selector="a b", opt_in="a in (", opt_out="a,,b", service="my db"
    )
    found = dict(find_contradictions({"here": ClusterSettings()}, {"x": source}))
    assert sorted(found) == ["sources.x.opt_in", "sources.x.opt_out", "sources.x.selector", "sources.x.service"]
    assert found["sources.x.opt_in"] == "'a in (' is no label selector: its parentheses don't match"
    assert "'my db' can't be the prefix of an annotation" in found["sources.x.service"]
