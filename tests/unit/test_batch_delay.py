"""Batch delay: when a worker waits so that a batch grows, and when it does not."""

from collections.abc import Coroutine
from typing import Any

import pytest

from workers.runtime.batch_delay import BUSY_FROM, LONGEST, SHARE, SMALL_STEP, BatchDelay
from workers.runtime.slots import WorkerSlots


def busy_worker(*, busy: int, batch_seconds: float = 10.0) -> tuple[BatchDelay, WorkerSlots]:
    slots = WorkerSlots(1000)
    slots.acquire(busy)
    delay = BatchDelay(slots)
    for _ in range(100):
        delay.finished(batch_seconds)
    return delay, slots


def waits(step: Coroutine[Any, Any, None]) -> bool:
    """Whether it does not come back at once."""
    try:
        step.send(None)
    except StopIteration:
        return False
    step.close()
    return True


async def test_small_steps_wait_for_more_jobs_while_many_jobs_run() -> None:
    delay, _ = busy_worker(busy=BUSY_FROM)
    assert waits(delay.before_batch(SMALL_STEP - 1))
    assert not waits(delay.before_step())
    delay.step_done(SMALL_STEP - 1)
    assert waits(delay.before_step())


async def test_a_large_step_neither_waits_nor_delays_others() -> None:
    delay, _ = busy_worker(busy=BUSY_FROM)
    delay.step_done(SMALL_STEP)
    assert not waits(delay.before_batch(SMALL_STEP))
    assert not waits(delay.before_step())


async def test_a_worker_with_few_running_jobs_never_waits() -> None:
    delay, slots = busy_worker(busy=BUSY_FROM)
    delay.step_done(1)
    slots.release(1)
    assert not waits(delay.before_batch(1))
    assert not waits(delay.before_step())


async def test_a_stopping_worker_does_not_wait() -> None:
    delay, slots = busy_worker(busy=BUSY_FROM)
    delay.step_done(1)
    slots.stop()
    assert not waits(delay.before_batch(1))
    assert not waits(delay.before_step())


@pytest.mark.parametrize(("batch_seconds", "pause"), [(0.01, 0.01 * SHARE), (10.0, LONGEST)])
async def test_a_moment_is_short_beside_what_the_jobs_take(batch_seconds: float, pause: float) -> None:
    delay, _ = busy_worker(busy=BUSY_FROM, batch_seconds=batch_seconds)
    assert delay.pause == pytest.approx(pause, rel=0.01)
