"""Lanes that want to be served with several jobs at once where tokens are scarce: fewer visits, as many jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from service.contract import Draw, Limit
from service.engine.budgets import Ask, Grant
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World

PLACE = "sim/acct"
DELETES = Limit.bucket("deletes", 20, rate=3)
PLENTY = 1000


@dataclass(slots=True)
class Comer:
    """A lane that always wants more, and comes again exactly when it was told to."""

    name: str
    draws: Sequence[Draw]
    wants: int = PLENTY
    due: float = 0.0
    given: list[int] = field(default_factory=list)

    @property
    def served(self) -> list[int]:
        return [count for count in self.given if count]


async def ask(world: World, draws: Sequence[Draw], wants: int = PLENTY, lane: str = "delete") -> Grant:
    one = Ask(f"{PLACE}/{lane}", wants, wants, 0, tuple(draws))
    return (await world.installation.budgets.reserve(PLACE, 0.1, [one])).grants[0]


async def serve(world: World, lasts: timedelta, *comers: Comer) -> float:
    """So long a time passes, all of it at once; the answer is how many seconds it really was."""
    world.stop_clock()
    begun = await world.now()
    now = begun
    while now - begun < lasts / timedelta(milliseconds=1):
        comer = min(comers, key=lambda one: one.due)
        world.offset += timedelta(milliseconds=max(0.0, comer.due - now))
        grant = await ask(world, comer.draws, comer.wants, comer.name)
        now = await world.now()
        comer.given.append(grant.urgent)
        comer.due = now + max(1, grant.again)
    return (now - begun) / 1000


async def test_visits_become_fewer_and_no_token_is_lost(world: World) -> None:
    visits = dict[float, int]()
    for together in (0.0, 3.0, 6.0):
        comer = Comer(f"by-{together:.0f}", (Draw(Limit.bucket(f"by-{together}", 20, rate=3), together=together),))
        lasted = await serve(world, timedelta(minutes=2), comer)
        assert sum(comer.given) >= 20 + 3 * lasted - max(1, together) - 2
        visits[together] = len(comer.given)
        assert all(count >= together for count in comer.served)
    assert visits[3.0] < visits[0.0] / 2.5
    assert visits[6.0] < visits[0.0] / 5


async def test_who_is_short_gets_nothing_and_comes_again_when_there_is_enough(world: World) -> None:
    draws = (Draw(DELETES, together=6),)
    begun = await world.now()
    assert (await ask(world, draws, 19)).urgent == 19
    refused = await ask(world, draws)
    assert refused.urgent == 0
    # Five more at three a second.
    assert 1600 - (await world.now() - begun) < refused.again <= 1700
    assert float((await world.budget())["deletes|tokens"]) >= 1
    world.offset += timedelta(milliseconds=refused.again)
    assert (await ask(world, draws)).urgent >= 6


async def test_nobody_waits_for_more_than_he_wants(world: World) -> None:
    draws = (Draw(DELETES, together=6),)
    assert (await ask(world, draws, 18)).urgent == 18
    assert (await ask(world, draws, 2)).urgent == 2
    refused = await ask(world, draws, 1)
    assert refused.urgent == 0
    assert refused.again <= 340


async def test_what_is_left_for_the_next_visit_is_waited_for_and_no_more(world: World) -> None:
    draws = (Draw(DELETES, together=6),)
    begun = await world.now()
    grant = await ask(world, draws, 22)
    assert grant.urgent == 20
    assert 650 - (await world.now() - begun) < grant.again <= 680


async def test_a_small_bucket_is_never_waited_for_to_be_full(world: World) -> None:
    small = Comer("small", (Draw(Limit.bucket("small", 4, rate=2), together=50),))
    lasted = await serve(world, timedelta(minutes=1), small)
    assert sum(small.given) >= 4 + 2 * lasted - 4
    assert max(small.served[1:]) <= 3


async def test_what_is_left_of_a_window_is_not_left_lying(world: World) -> None:
    draws = (Draw(Limit.window("window", 10, timedelta(minutes=1)), together=4),)
    assert (await ask(world, draws, 8)).urgent == 8
    assert (await ask(world, draws)).urgent == 2


async def test_the_cost_of_a_job_counts_and_of_several_limits_nothing_is_taken_in_vain(world: World) -> None:
    reads = Limit.bucket("reads", 40, rate=0.001)
    draws = (Draw(DELETES, 2.0, together=3), Draw(reads))
    begun = await world.now()
    assert (await ask(world, draws, 8)).urgent == 8
    before = await world.budget()
    refused = await ask(world, draws)
    assert refused.urgent == 0
    assert 650 - (await world.now() - begun) < refused.again <= 680
    assert float((await world.budget())["reads|tokens"]) == pytest.approx(float(before["reads|tokens"]), abs=0.1)
    world.offset += timedelta(milliseconds=refused.again)
    assert (await ask(world, draws)).urgent == 3


async def test_lanes_that_wait_for_the_same_tokens_take_turns(world: World) -> None:
    lanes = [Comer(name, (Draw(DELETES, together=3),)) for name in ("one", "three", "two")]
    await serve(world, timedelta(minutes=2), *lanes)
    sums = [sum(lane.given) for lane in lanes]
    assert min(sums) > 0.15 * sum(sums)
    served = [count for lane in lanes for count in lane.served]
    assert sum(served) / len(served) > 2.5


async def test_a_lane_that_waits_for_many_is_not_starved_by_one_that_takes_any(world: World) -> None:
    many, any_ = Comer("many", (Draw(DELETES, together=6),)), Comer("any", (Draw(DELETES),))
    await serve(world, timedelta(minutes=2), any_, many)
    assert sum(many.given) > 0.6 * sum(any_.given)
    assert all(count >= 6 for count in many.served)
    # Nor does it starve the other: so many at once are never long in coming.
    assert sum(any_.given) > 0.6 * sum(many.given)


async def test_handlers_get_larger_batches(world: World) -> None:
    limit = Limit.bucket("calls", 12, rate=40)
    outside = Outside(draws_on=lambda lane: (Draw(limit, together=6),))
    one = event("a")
    await world.lay(one, [thing(f"t{number}") for number in range(72)])
    for _ in range(2):
        await world.start(outside)
    await world.until_done(one)
    assert len(outside.calls) == 72
    sizes = [len(targets) for _, targets in outside.batches]
    assert len(sizes) <= 13
    assert sum(size >= 6 for size in sizes) >= len(sizes) - 3
