"""Lanes that are served with several jobs at once where tokens are scarce: fewer rounds, as many jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from service.contract import Draw, Limit
from service.engine.budgets import ReservationRequest, TokenGrant
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing

PLACE = "sim/acct"
DELETES = Limit.bucket("deletes", 20, rate=3)
PLENTY = 1000


@dataclass(slots=True)
class HungryLane:
    """A lane that always wants more, and comes again exactly when it was told to."""

    name: str
    draws: Sequence[Draw]
    wants: int = PLENTY
    due: float = 0.0
    given: list[int] = field(default_factory=list)

    @property
    def served(self) -> list[int]:
        return [count for count in self.given if count]


async def ask(engine: EngineUnderTest, draws: Sequence[Draw], wants: int = PLENTY, lane: str = "delete") -> TokenGrant:
    one = ReservationRequest(f"{PLACE}/{lane}", wants, wants, 0, tuple(draws))
    return (await engine.installation.budgets.reserve(PLACE, 0.1, [one])).grants[0]


async def serve(engine: EngineUnderTest, lasts: timedelta, *comers: HungryLane) -> float:
    """So long a time passes, all of it at once; the answer is how many seconds it really was."""
    engine.stop_clock()
    begun = await engine.now()
    now = begun
    while now - begun < lasts / timedelta(milliseconds=1):
        comer = min(comers, key=lambda one: one.due)
        engine.offset += timedelta(milliseconds=max(0.0, comer.due - now))
        grant = await ask(engine, comer.draws, comer.wants, comer.name)
        now = await engine.now()
        comer.given.append(grant.urgent)
        comer.due = now + max(1, grant.again)
    return (now - begun) / 1000


async def test_visits_become_fewer_and_no_token_is_lost(engine: EngineUnderTest) -> None:
    visits = dict[float, int]()
    for together in (0.0, 3.0, 6.0):
        comer = HungryLane(f"by-{together:.0f}", (Draw(Limit.bucket(f"by-{together}", 20, rate=3), together=together),))
        lasted = await serve(engine, timedelta(minutes=2), comer)
        assert sum(comer.given) >= 20 + 3 * lasted - max(1, together) - 2
        visits[together] = len(comer.given)
        assert all(count >= together for count in comer.served)
    assert visits[3.0] < visits[0.0] / 2.5
    assert visits[6.0] < visits[0.0] / 5


async def test_who_is_short_gets_nothing_and_comes_again_when_there_is_enough(engine: EngineUnderTest) -> None:
    draws = (Draw(DELETES, together=6),)
    begun = await engine.now()
    assert (await ask(engine, draws, 19)).urgent == 19
    refused = await ask(engine, draws)
    assert refused.urgent == 0
    # Five more at three a second.
    assert 1600 - (await engine.now() - begun) < refused.again <= 1700
    assert float((await engine.budget())["deletes|tokens"]) >= 1
    engine.offset += timedelta(milliseconds=refused.again)
    assert (await ask(engine, draws)).urgent >= 6


async def test_no_lane_waits_for_more_tokens_than_it_has_jobs(engine: EngineUnderTest) -> None:
    draws = (Draw(DELETES, together=6),)
    assert (await ask(engine, draws, 18)).urgent == 18
    assert (await ask(engine, draws, 2)).urgent == 2
    refused = await ask(engine, draws, 1)
    assert refused.urgent == 0
    assert refused.again <= 340


async def test_what_is_left_for_the_next_visit_is_waited_for_and_no_more(engine: EngineUnderTest) -> None:
    draws = (Draw(DELETES, together=6),)
    begun = await engine.now()
    grant = await ask(engine, draws, 22)
    assert grant.urgent == 20
    assert 650 - (await engine.now() - begun) < grant.again <= 680


async def test_a_small_bucket_is_never_waited_for_to_be_full(engine: EngineUnderTest) -> None:
    small = HungryLane("small", (Draw(Limit.bucket("small", 4, rate=2), together=50),))
    lasted = await serve(engine, timedelta(minutes=1), small)
    assert sum(small.given) >= 4 + 2 * lasted - 4
    assert max(small.served[1:]) <= 3


async def test_what_is_left_of_a_window_is_not_left_lying(engine: EngineUnderTest) -> None:
    draws = (Draw(Limit.window("window", 10, timedelta(minutes=1)), together=4),)
    assert (await ask(engine, draws, 8)).urgent == 8
    assert (await ask(engine, draws)).urgent == 2


async def test_the_cost_of_a_job_counts_and_of_several_limits_nothing_is_taken_in_vain(engine: EngineUnderTest) -> None:
    reads = Limit.bucket("reads", 40, rate=0.001)
    draws = (Draw(DELETES, 2.0, together=3), Draw(reads))
    begun = await engine.now()
    assert (await ask(engine, draws, 8)).urgent == 8
    before = await engine.budget()
    refused = await ask(engine, draws)
    assert refused.urgent == 0
    assert 650 - (await engine.now() - begun) < refused.again <= 680
    assert float((await engine.budget())["reads|tokens"]) == pytest.approx(float(before["reads|tokens"]), abs=0.1)
    engine.offset += timedelta(milliseconds=refused.again)
    assert (await ask(engine, draws)).urgent == 3


async def test_lanes_that_wait_for_the_same_tokens_take_turns(engine: EngineUnderTest) -> None:
    lanes = [HungryLane(name, (Draw(DELETES, together=3),)) for name in ("one", "three", "two")]
    await serve(engine, timedelta(minutes=2), *lanes)
    sums = [sum(lane.given) for lane in lanes]
    assert min(sums) > 0.15 * sum(sums)
    served = [count for lane in lanes for count in lane.served]
    assert sum(served) / len(served) > 2.5


async def test_a_lane_that_waits_for_many_is_not_starved_by_one_that_takes_any(engine: EngineUnderTest) -> None:
    many, any_ = HungryLane("many", (Draw(DELETES, together=6),)), HungryLane("any", (Draw(DELETES),))
    await serve(engine, timedelta(minutes=2), any_, many)
    assert sum(many.given) > 0.6 * sum(any_.given)
    assert all(count >= 6 for count in many.served)
    # Nor does it starve the other: so many at once are never long in coming.
    assert sum(any_.given) > 0.6 * sum(many.given)


async def test_handlers_get_larger_batches(engine: EngineUnderTest) -> None:
    limit = Limit.bucket("calls", 12, rate=40)
    provider = ScriptedProvider(draws_on=lambda lane: (Draw(limit, together=6),))
    one = event("a")
    await engine.lay(one, [thing(f"t{number}") for number in range(72)])
    for _ in range(2):
        await engine.start(provider)
    await engine.until_done(one)
    assert len(provider.calls) == 72
    sizes = [len(targets) for _, targets in provider.batches]
    assert len(sizes) <= 13
    assert sum(size >= 6 for size in sizes) >= len(sizes) - 3
