"""Durations in settings."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("180s", 180),
        ("5m", 300),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("7d", 604800),
        ("1.5s", 1.5),
        (" 2H ", 7200),
        ("-10s", -10),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_a_duration_is_read_in_any_usual_spelling(text: object, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "given_value",
    ["", "5x", "m5", "5 m", "5m2m", "1s2h", True, None, [], float("nan"), float("inf"), 1e300, "9e9"],
)
def test_what_is_no_duration_is_refused(given_value: object) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        parse_duration(given_value)


@given(st.integers(min_value=-(10**13), max_value=10**13))
def test_what_was_written_is_read_back_unchanged(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration
