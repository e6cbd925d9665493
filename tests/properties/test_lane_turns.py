"""Lanes that draw on the same limits take turns: none starves another, however many tokens each draws for a job."""

import random
from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from typing import NamedTuple

import pytest

from service.contract import Draw, Limit
from service.engine.budgets import Budgets, ReservationRequest
from service.engine.script_loading import Scripts
from tests.properties.clock import JumpingClock
from tests.properties.faults import Fault
from tests.properties.laws import broken, require
from tests.properties.rig import Rig

TURNS = "each lane gets its turn"
PLACE = "sim/account"
PLENTY = 1000
SHARE = 0.25


class TurnLane(NamedTuple):
    """It always wants more than there is; at most `most` jobs are taken at a time."""

    cost: float
    urgent: bool = True
    together: float = 0.0
    most: int = PLENTY


class LaneShare(NamedTuple):
    jobs: int
    tokens: float


LIMITS = (
    Limit.bucket("steady", 10, rate=1),
    Limit.bucket("quick", 20, rate=4),
    Limit.bucket("slow", 5, rate=0.1),
    Limit.window("window", 30, timedelta(seconds=20)),
)
BEHIND = TurnLane(1, urgent=False)
CROWDS: tuple[tuple[TurnLane, ...], ...] = (
    (TurnLane(1), TurnLane(2)),
    (TurnLane(1, most=1), TurnLane(2, most=1)),
    (TurnLane(1), TurnLane(5)),
    (TurnLane(1), TurnLane(1), TurnLane(1), TurnLane(2)),
    (TurnLane(1), TurnLane(2, together=2)),
    (BEHIND, BEHIND._replace(cost=2)),
    (BEHIND, BEHIND._replace(cost=5)),
    (TurnLane(1), BEHIND, BEHIND._replace(cost=2)),
)
FAULTS = (
    Fault("nothing is kept for who waits longer", "reserve", "if one.lane == want[1] then break end", "do break end",
          (TURNS,)),
    Fault("only urgent work is waited for", "reserve", "if not urgent or earned then", "if false then", (TURNS,)),
    Fault("nobody waits in the line", "_budget", "if tonumber(ends) > now then", "if false then", (TURNS,)),
)  # fmt: skip


def share_out(
    rig: Rig, limit: Limit, lanes: Sequence[TurnLane], visits: int, scripts: Scripts | None
) -> list[LaneShare]:
    """Each lane comes again exactly when it was told to."""
    clock, keys = JumpingClock(tick=0), rig.keys()
    budgets = Budgets(rig.caller(clock, scripts), keys)
    due, jobs = [clock.at] * len(lanes), [0] * len(lanes)
    for _ in range(visits):
        number = min(range(len(lanes)), key=due.__getitem__)
        lane = lanes[number]
        clock.jump(timedelta(milliseconds=max(0.0, due[number] - clock.at)))
        wanted = (PLENTY, 0) if lane.urgent else (0, PLENTY)
        ask = ReservationRequest(f"{PLACE}/{number}", lane.most, *wanted, (Draw(limit, lane.cost, lane.together),))
        (grant,) = rig.run(budgets.reserve(PLACE, SHARE, [ask])).grants
        jobs[number] += grant.urgent + grant.background
        due[number] = clock.at + max(1, grant.again)
    rig.clear(keys.budget(PLACE))
    return [LaneShare(count, count * lane.cost) for count, lane in zip(jobs, lanes, strict=True)]


def check(rig: Rig, limit: Limit, lanes: Sequence[TurnLane], scripts: Scripts | None = None) -> None:
    """Beside the best served of its kind each gets at least a third, in jobs or in tokens."""
    got = share_out(rig, limit, lanes, 150 * len(lanes), scripts)
    for urgent in (True, False):
        alike = [one for one, lane in zip(got, lanes, strict=True) if lane.urgent is urgent]
        for one in alike:
            fair = 3 * one.jobs >= max(other.jobs for other in alike)
            fair = fair or 3 * one.tokens >= max(other.tokens for other in alike)
            require(TURNS, fair and one.jobs > 0, f"{limit.name}: of {lanes} they got {got}")


def check_all(rig: Rig, scripts: Scripts | None = None) -> None:
    for limit, lanes in product(LIMITS, CROWDS):
        check(rig, limit, lanes, scripts)


@pytest.mark.parametrize("limit", LIMITS[1::2], ids=lambda limit: limit.name)
def test_no_lane_starves_another(rig: Rig, limit: Limit) -> None:
    for lanes in CROWDS[::3]:
        check(rig, limit, lanes)


@pytest.mark.long
def test_no_lane_starves_another_at_any_limit(rig: Rig) -> None:
    check_all(rig)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_that_is_noticed(rig: Rig, fault: Fault) -> None:
    assert broken(lambda: check_all(rig, fault.scripts())) in fault.breaks


def test_nothing_is_kept_for_a_lane_that_waits_long_for_another_limit(rig: Rig) -> None:
    """It waits for both, and then for one of them for an hour."""
    clock, keys = JumpingClock(tick=0), rig.keys()
    budgets = Budgets(rig.caller(clock), keys)
    fast, slow = Limit.bucket("fast", 10, rate=1), Limit.window("slow", 1, timedelta(hours=1))

    def ask(lane: str, *draws: Draw) -> int:
        one = ReservationRequest(f"{PLACE}/{lane}", PLENTY, PLENTY, 0, draws)
        return rig.run(budgets.reserve(PLACE, SHARE, [one])).grants[0].urgent

    assert ask("other", Draw(fast)) == 10
    assert ask("both", Draw(fast), Draw(slow)) == 0
    clock.jump(timedelta(seconds=1.5))
    assert ask("both", Draw(fast), Draw(slow)) == 1
    assert ask("both", Draw(fast), Draw(slow)) == 0
    clock.jump(timedelta(seconds=3))
    assert ask("other", Draw(fast)) == 3
    rig.clear(keys.budget(PLACE))


# ---- several limits, several shards


def served_late(rig: Rig, seed: int, scripts: Scripts | None = None) -> list[int]:
    """Some lanes on some of a few limits, each of which comes a little later than it was told to: what each of them got
    in the second half of the time."""
    chance = random.Random(seed)
    limits = [
        Limit.bucket(f"l{number}", chance.choice((2, 4, 5, 10, 20)), rate=chance.choice((1, 2, 5, 10)))
        for number in range(chance.randint(2, 3))
    ]
    lanes = [
        tuple(
            Draw(limit, chance.choice((1, 1, 2)), chance.choice((0, 0, 4, 10)))
            for limit in chance.sample(limits, chance.randint(1, len(limits)))
        )
        for _ in range(chance.randint(2, 8))
    ]
    clock, keys = JumpingClock(tick=0), rig.keys()
    budgets = Budgets(rig.caller(clock, scripts), keys)
    due, late, visits = [clock.at + 3000 * chance.random() for _ in lanes], [0] * len(lanes), 200 * len(lanes)
    for visit in range(visits):
        number = min(range(len(lanes)), key=due.__getitem__)
        clock.jump(timedelta(milliseconds=max(0.0, due[number] - clock.at)))
        wanted = chance.choice((1, 3, PLENTY))
        # Every other lane is one and the same in two shards.
        ask = ReservationRequest(f"{PLACE}/{number // 2}", min(50, wanted), wanted, 0, lanes[number], number % 2)
        (grant,) = rig.run(budgets.reserve(PLACE, SHARE, [ask])).grants
        late[number] += (visit > visits // 2) * grant.urgent
        due[number] = clock.at + max(1, grant.again) + 60 * chance.random()
    rig.clear(keys.budget(PLACE))
    return late


def check_late(rig: Rig, seeds: range, scripts: Scripts | None = None) -> None:
    for seed in seeds:
        got = served_late(rig, seed, scripts)
        require(TURNS, min(got) > 0, f"with seed {seed} they got {got}")


def test_lanes_that_draw_on_several_limits_never_lock_each_other(rig: Rig) -> None:
    check_late(rig, range(35, 38))


@pytest.mark.long
def test_lanes_that_draw_on_several_limits_never_lock_each_other_in_many_cases(rig: Rig) -> None:
    check_late(rig, range(60))


def test_a_lane_does_not_starve_itself_across_shards(rig: Rig) -> None:
    """One shard waits for four jobs at once, in the other there is always just one."""
    clock, keys = JumpingClock(tick=0), rig.keys()
    budgets = Budgets(rig.caller(clock), keys)
    draws = (Draw(Limit.bucket("calls", 10, rate=1), together=4),)
    due, got = [clock.at, clock.at], [0, 0]
    for _ in range(200):
        shard = min((0, 1), key=due.__getitem__)
        clock.jump(timedelta(milliseconds=max(0.0, due[shard] - clock.at)))
        wanted = (PLENTY, 1)[shard]
        (grant,) = rig.run(
            budgets.reserve(PLACE, SHARE, [ReservationRequest(f"{PLACE}/one", 50, wanted, 0, draws, shard)])
        ).grants
        got[shard] += grant.urgent
        due[shard] = clock.at + max(1, grant.again)
    rig.clear(keys.budget(PLACE))
    assert min(got) > 40, got
