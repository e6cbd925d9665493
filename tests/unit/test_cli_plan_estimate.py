"""Minimum duration of a plan: tokens that its targets draw against the state of the limits."""

from datetime import UTC, datetime, timedelta

import pytest

from service.cli.plan_estimate import LimitState, estimate_waits
from service.contract import Draw, Limit

NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("limit", "count", "standing", "seconds"),
    [
        (Limit.bucket("deletes", 10, 2), 10, None, 0),
        (Limit.bucket("deletes", 10, 2), 16, None, 3),
        (Limit.bucket("deletes", 10, 2, spare=4), 16, None, 5),
        (Limit.bucket("deletes", 10, 2), 16, LimitState(0), 8),
        (Limit.bucket("deletes", 10, 2), 16, LimitState(0, 0.5), 16),
        (Limit.bucket("deletes", 10, 2), 2, LimitState(5, 1.0, NOW + timedelta(seconds=30)), 30),
        (Limit.window("deletes", 10, timedelta(minutes=1)), 10, None, 0),
        (Limit.window("deletes", 10, timedelta(minutes=1)), 11, None, 60),
        (Limit.window("deletes", 10, timedelta(minutes=1)), 31, LimitState(1), 180),
    ],
)
def test_a_plan_takes_as_long_as_its_scarcest_limit_requires(
    limit: Limit, count: int, standing: LimitState | None, seconds: float
) -> None:
    known = {} if standing is None else {("aws/1", "deletes"): standing}
    (need,) = estimate_waits([("aws/1", Draw(limit))] * count, known, NOW)
    assert need.wait == timedelta(seconds=seconds)
    assert need.wanted == count


def test_the_slowest_limit_comes_first() -> None:
    slow, fast = Limit.bucket("slow", 1, 1), Limit.bucket("fast", 100, 100)
    found = estimate_waits([("a/1", Draw(fast)), ("a/1", Draw(slow, 3.0)), ("b/2", Draw(slow))], {}, NOW)
    assert [(need.place, need.limit, need.wait.total_seconds()) for need in found] == [
        ("a/1", "slow", 2), ("a/1", "fast", 0), ("b/2", "slow", 0),
    ]  # fmt: skip
