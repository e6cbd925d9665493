"""The guard's limit for sources of every size."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.policy.guard import FLOOR, PREFIX, Peak, guard_limit, held_reason, next_peak
from service.settings import GuardSettings


@pytest.mark.parametrize(
    ("owned", "limit"),
    [(0, 20), (25, 20), (100, 20), (104, 20), (105, 21), (1000, 200), (2500, 500), (5000, 500), (100_000, 500)],
)
def test_with_the_defaults_a_fifth_may_go_but_never_more_than_five_hundred(owned: int, limit: int) -> None:
    assert guard_limit(GuardSettings(), owned) == limit


def test_a_small_fleet_lets_twenty_an_hour_through() -> None:
    assert GuardSettings().window == timedelta(hours=1)
    assert min(guard_limit(GuardSettings(), owned) for owned in range(1000)) == 20


def test_the_formula_in_the_docs_is_the_one_that_counts() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guard.md").read_text()
    assert f"limit = min(most, max({FLOOR}, percent % of owned))" in text
    rows = [(int(owned), int(limit)) for owned, limit in re.findall(r"^\| (\d+) \| (\d+) \|$", text, re.MULTILINE)]
    assert len(rows) > 5
    assert [(owned, guard_limit(GuardSettings(), owned)) for owned, _ in rows] == rows


def test_twenty_are_let_through_by_the_percentage_but_not_by_the_plain_number() -> None:
    assert guard_limit(GuardSettings(percent=0), 1000) == FLOOR
    assert guard_limit(GuardSettings(most=1), 1000) == 1
    assert guard_limit(GuardSettings(most=2, percent=0), 0) == 2


def test_what_a_source_owns_need_not_be_known() -> None:
    assert guard_limit(GuardSettings(most=70), None) == 70


def test_all_of_it_may_go_where_the_settings_say_so() -> None:
    assert guard_limit(GuardSettings(most=100_000, percent=100), 5000) == 5000


@given(
    st.integers(1, 10_000), st.floats(0, 100), st.integers(0, 1_000_000), st.integers(0, 1000),
)  # fmt: skip
def test_owning_more_never_lets_less_through(most: int, percent: float, owned: int, more: int) -> None:
    guard = GuardSettings(most=most, percent=percent)
    assert 1 <= guard_limit(guard, owned) <= guard_limit(guard, owned + more) <= most


def test_what_has_gone_counts_as_owned_for_this_window_and_the_next() -> None:
    peak = next_peak(None, 1000, 5_000, 3_600)
    assert peak.owned == 1000
    peak = next_peak(peak, 400, 5_000 + 3_599, 3_600)
    assert peak.owned == 1000
    peak = next_peak(peak, 300, 5_000 + 3_600, 3_600)
    assert peak == Peak(300, 1000, 8_600)
    assert next_peak(peak, 310, 8_600 + 3_599, 3_600).owned == 1000
    assert next_peak(peak, 310, 8_600 + 3_600, 3_600).owned == 310
    assert next_peak(peak, 310, 8_600 + 999_999, 3_600) == Peak(310, 0, 8_600 + 999_999)


def test_the_reason_says_how_the_limit_came_about_and_what_ends_it() -> None:
    guard = GuardSettings(most=50, percent=20, window=timedelta(minutes=90))
    assert held_reason("clusters", guard, 140) == (
        f"{PREFIX}more than 28 deletions of source clusters within 1h30m (most 50, 20% of 140 owned); "
        f"new ones wait for `knell guard release clusters`"
    )
    assert "(most 50)" in held_reason("clusters", guard, None)
