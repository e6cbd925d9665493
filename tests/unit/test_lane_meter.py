"""Meter of a batch: calls count against what its lane reserved, and the rest is returned once, when it ends."""

from datetime import timedelta

from service.contract import Draw, Feedback, Limit, Pause, Remaining
from workers.handlers.lane_meter import LaneMeter

READS, DELETES = Limit.bucket("reads", 100, 10), Limit.bucket("deletes", 10, 1)
LANE = (Draw(READS, 2.0), Draw(DELETES))


def meter(told: list[Feedback], jobs: int = 2) -> LaneMeter:
    return LaneMeter(LANE, jobs, told.append)


def test_calls_are_counted_until_nothing_is_left_of_what_was_reserved() -> None:
    made = meter([])
    assert [made.spend((Draw(READS),)) for _ in range(5)] == [True, True, True, True, False]
    assert made.close() == {"deletes": 2.0}


def test_a_call_that_draws_on_a_limit_without_tokens_takes_none_of_the_others() -> None:
    made = meter([], jobs=1)
    assert made.spend((Draw(DELETES),))
    assert not made.spend((Draw(READS), Draw(DELETES)))
    assert not made.spend((Draw(Limit.bucket("writes", 1, 1)),))
    assert made.close() == {"reads": 2.0}


def test_a_read_that_goes_on_after_its_batch_spends_nothing_of_what_was_returned() -> None:
    made = meter([])
    assert made.close() == {"reads": 4.0, "deletes": 2.0}
    assert not made.spend((Draw(READS),))
    assert made.close() == {"reads": 4.0, "deletes": 2.0}


def test_what_responses_say_is_reported_for_limits_of_the_lane_alone() -> None:
    told: list[Feedback] = []
    made = meter(told)
    made.answered("reads", 7.0, 1.0)
    made.answered("writes", 7.0, 1.0)
    assert not made.throttled
    made.refused("deletes", timedelta(seconds=3), others=("reads",))
    made.refused("writes", None)
    assert told == [Remaining("reads", 7.0, 1.0), Pause("deletes", timedelta(seconds=3), None, ("reads",))]
    assert made.throttled
