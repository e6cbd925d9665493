"""Looks that outlast who asks: each is made once, answered to who comes back for it, and to nobody else."""

import asyncio
from datetime import timedelta

import pytest

from tests.engine.waiting import until
from workers.handlers.aws.lasting import Lasting, Unfinished

SHORT = timedelta(milliseconds=20)
LONG = timedelta(seconds=20)


class Work:
    """What is begun waits until it is let go, and then answers how often it was begun, or fails."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.free = asyncio.Event()
        self.failure: Exception | None = None

    async def do(self) -> int:
        self.begun += 1
        number = self.begun
        try:
            await self.free.wait()
            if self.failure is not None:
                raise self.failure
            return number
        finally:
            self.ended += 1

    async def until_ended(self, number: int = 1) -> None:
        async def ended() -> bool:
            return self.ended >= number

        await until(f"{number} have ended", ended)


async def test_what_is_quick_is_answered_at_once() -> None:
    work, looks = Work(), Lasting[int](LONG)
    work.free.set()
    assert await looks.ask(looks.name(), "q", work.do) == 1


async def test_who_leaves_comes_back_for_the_same_look() -> None:
    work, looks = Work(), Lasting[int](SHORT)
    name = looks.name()
    for _ in range(3):
        with pytest.raises(Unfinished):
            await looks.ask(name, "q", work.do)
    work.free.set()
    await work.until_ended()
    assert looks.name(["another-1", name]) == name
    assert await looks.ask(name, "q", work.do) == 1
    assert work.begun == 1


async def test_it_goes_on_when_who_asked_is_called_off() -> None:
    work, looks = Work(), Lasting[int](LONG)
    asking = asyncio.create_task(looks.ask("plan a", "q", work.do))

    async def begun() -> bool:
        return work.begun == 1

    await until("it has begun", begun)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    work.free.set()
    assert await looks.ask("plan a", "q", work.do) == 1


async def test_an_answer_is_given_once_and_who_asks_again_gets_a_new_one() -> None:
    work, looks = Work(), Lasting[int](LONG)
    work.free.set()
    name = looks.name()
    assert await looks.ask(name, "q", work.do) == 1
    assert looks.name([name]) != name
    assert await looks.ask(name, "q", work.do) == 2


async def test_nobody_gets_what_was_asked_under_another_name() -> None:
    work, looks = Work(), Lasting[int](SHORT)
    first, second = looks.name(), looks.name()
    assert first != second
    for name in (first, second):
        with pytest.raises(Unfinished):
            await looks.ask(name, "q", work.do)
    work.free.set()
    await work.until_ended(2)
    assert await looks.ask(second, "q", work.do) == 2
    assert await looks.ask(first, "q", work.do) == 1


async def test_a_changed_question_begins_anew_and_the_old_look_is_called_off() -> None:
    work, looks = Work(), Lasting[int](SHORT)
    for question in ("before", "after"):
        with pytest.raises(Unfinished):
            await looks.ask("plan a", question, work.do)
    await work.until_ended(1)
    work.free.set()
    await work.until_ended(2)
    assert await looks.ask("plan a", "after", work.do) == 2


async def test_another_process_does_not_know_the_name() -> None:
    work, looks, restarted = Work(), Lasting[int](SHORT), Lasting[int](SHORT)
    name = looks.name()
    with pytest.raises(Unfinished):
        await looks.ask(name, "q", work.do)
    assert restarted.name([name]) != name
    work.free.set()
    assert await restarted.ask(restarted.name([name]), "q", work.do) == 2


async def test_a_failure_is_heard_by_who_comes_back_and_then_it_begins_anew() -> None:
    work, looks = Work(), Lasting[int](SHORT)
    with pytest.raises(Unfinished):
        await looks.ask("plan a", "q", work.do)
    work.failure = ConnectionError("away")
    work.free.set()
    await work.until_ended()
    with pytest.raises(ConnectionError, match="away"):
        await looks.ask("plan a", "q", work.do)
    work.failure = None
    assert await looks.ask("plan a", "q", work.do) == 2


async def test_what_nobody_comes_back_for_is_dropped() -> None:
    work, looks = Work(), Lasting[int](SHORT, kept=SHORT)
    name = looks.name()
    with pytest.raises(Unfinished):
        await looks.ask(name, "q", work.do)
    work.free.set()

    async def dropped() -> bool:
        return looks.name([name]) != name

    await until("the answer is dropped", dropped)


async def test_the_oldest_is_called_off_when_there_are_too_many() -> None:
    work, looks = Work(), Lasting[int](SHORT, most=2)
    names = [looks.name() for _ in range(3)]
    for name in names:
        with pytest.raises(Unfinished):
            await looks.ask(name, "q", work.do)
    await work.until_ended(1)
    assert [looks.name([name]) == name for name in names] == [False, True, True]


async def test_nothing_goes_on_after_the_end() -> None:
    work, looks = Work(), Lasting[int](SHORT)
    with pytest.raises(Unfinished):
        await looks.ask("plan a", "q", work.do)
    await looks.aclose()
    assert work.ended == 1


async def test_who_waits_for_a_look_that_makes_room_for_others_is_told_to_come_again() -> None:
    work, looks = Work(), Lasting[int](LONG, most=1)
    first = asyncio.ensure_future(looks.ask("one", "q", work.do))

    async def begun() -> bool:
        return work.begun == 1

    await until("the first has begun", begun)
    second = asyncio.ensure_future(looks.ask("two", "q", work.do))
    with pytest.raises(Unfinished):
        await first
    work.free.set()
    assert await second == 2
