"""When a worker waits a moment for more, and when it does not."""

from collections.abc import Coroutine
from typing import Any

import pytest

from workers.runtime.crew import Crew
from workers.runtime.pace import FEW, LONGEST, MUCH, PART, Pace


def paced(*, busy: int, flights: float = 10.0) -> tuple[Pace, Crew]:
    crew = Crew(1000)
    crew.enter(busy)
    pace = Pace(crew)
    for _ in range(100):
        pace.flew(flights)
    return pace, crew


def waits(step: Coroutine[Any, Any, None]) -> bool:
    """Whether it does not come back at once."""
    try:
        step.send(None)
    except StopIteration:
        return False
    step.close()
    return True


async def test_small_steps_wait_for_more_while_much_is_in_the_air() -> None:
    pace, _ = paced(busy=MUCH)
    assert waits(pace.more(FEW - 1))
    assert not waits(pace.next())
    pace.stepped(FEW - 1)
    assert waits(pace.next())


async def test_a_large_step_does_not_wait_and_makes_nobody_wait() -> None:
    pace, _ = paced(busy=MUCH)
    pace.stepped(FEW)
    assert not waits(pace.more(FEW))
    assert not waits(pace.next())


async def test_a_worker_with_little_in_the_air_never_waits() -> None:
    pace, crew = paced(busy=MUCH)
    pace.stepped(1)
    crew.leave(1)
    assert not waits(pace.more(1))
    assert not waits(pace.next())


async def test_a_stopping_worker_does_not_wait() -> None:
    pace, crew = paced(busy=MUCH)
    pace.stepped(1)
    crew.stop()
    assert not waits(pace.more(1))
    assert not waits(pace.next())


@pytest.mark.parametrize(("flights", "moment"), [(0.01, 0.01 * PART), (10.0, LONGEST)])
async def test_a_moment_is_short_beside_what_the_jobs_take(flights: float, moment: float) -> None:
    pace, _ = paced(busy=MUCH, flights=flights)
    assert pace.moment == pytest.approx(moment, rel=0.01)
