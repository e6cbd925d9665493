"""Simulation of workers in virtual time at a provider whose bucket differs from the declared one and reports refusals
alone. After each step the laws of learning are checked against what the provider saw, not against the budget."""

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from service.contract import Draw, Limit
from service.engine.budgets import Budgets, LimitFeedback, ReservationRequest
from service.engine.script_loading import Scripts
from tests.properties.clock import GIVEN_CLOCK, GivenClock
from tests.properties.laws import require
from tests.properties.rig import Rig

MOST = "no more is believed than the setting allows"
USED = "the rate is raised only where all of it was used"
QUIET = "the rate is not raised during or shortly after a refusal"
ONE_UP = "one step in a stretch, however many workers there are"
ONE_BACK = "a refusal takes one step back, and calls on their way none"
HOURS = "a refused rate is not tried again for hours"

PLACE = "sim/account"
STRETCH, SHORTLY, REMEMBERED = 5_000, 15_000, 6 * 3_600_000
PLENTY = 1000


class Phase(NamedTuple):
    """For `lasts` seconds each worker has so many jobs a second (None: more than it can do). Of the calls it makes none
    for `absent` of its jobs: there is nothing to delete."""

    lasts: float
    jobs: float | None = None
    absent: float = 0.0


class LearningCase(NamedTuple):
    """The provider grants `grants` times the declared rate, and holds `holds` times the declared capacity."""

    limit: Limit
    grants: float
    phases: tuple[Phase, ...]
    workers: int = 3
    most: float = 4.0
    holds: float = 1.0
    slowest: float = 0.5
    """Seconds that a call takes at most, on its way there and back."""
    pause: float = 1.0
    """Seconds that are stayed away after a refusal."""
    turns_known: bool = True
    seed: int = 1


@dataclass(slots=True)
class ProviderBucket:
    """A bucket, written independently of the budgets."""

    capacity: float
    rate: float
    left: float
    since: float

    def spend(self, now: float) -> bool:
        self.left = min(self.capacity, self.left + max(0.0, now - self.since) / 1000 * self.rate)
        self.since = max(self.since, now)
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class Observations:
    """Everything that a run is judged by; times are in ms since its beginning."""

    served: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    drawn: list[tuple[float, float]] = field(default_factory=list)
    """When tokens were drawn, and when they came back unused (below nothing)."""
    learned: list[tuple[float, float]] = field(default_factory=list)

    def share(self, rate: float, begin: float, end: float) -> float:
        """The part of what flowed in at the provider that was used between two times in seconds."""
        return sum(begin <= at / 1000 < end for at in self.served) / (rate * (end - begin))

    @property
    def throttled(self) -> float:
        return len(self.refused) / max(1, len(self.refused) + len(self.served))


class LearningRun:
    """One run of a case."""

    def __init__(self, rig: Rig, case: LearningCase, scripts: Scripts | None = None) -> None:
        self.rig, self.case, self.seen = rig, case, Observations()
        self.clock, self.keys = GivenClock(tick=0), rig.keys()
        given = Scripts(changed={**(scripts.changed if scripts is not None else {}), "_move": GIVEN_CLOCK})
        self.budgets = Budgets(rig.caller(self.clock, given), self.keys, learn_up_to=case.most)
        self._chance = random.Random(case.seed)
        self._begun = self.clock.at
        rate = case.limit.capacity / case.limit.per.total_seconds()
        self.rate = rate
        full = case.limit.capacity * case.holds
        self._provider = ProviderBucket(full, rate * case.grants, full, 0.0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._backlog = [0.0] * case.workers
        self._asked = [0.0] * case.workers
        self._level, self._levels = 1.0, [1.0]
        self._raised = float("-inf")
        self._told: list[float] = []
        self._tried: list[tuple[float, float]] = []
        self._back_turn = 0

    @property
    def now(self) -> float:
        return self.clock.at - self._begun

    def run(self) -> Observations:
        for worker in range(self.case.workers):
            self._at(worker, lambda worker=worker: self._come(worker))  # type: ignore[misc]
        end = sum(phase.lasts for phase in self.case.phases) * 1000
        try:
            while self._events and self._events[0][0] < end:
                at, _, happen = heapq.heappop(self._events)
                self.clock.jump(timedelta(milliseconds=max(0.0, at - self.now)))
                happen()
        finally:
            self.rig.clear(self.keys.budget(PLACE))
        return self.seen

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, happen))

    def _phase(self) -> Phase:
        left = self.now / 1000
        for phase in self.case.phases:
            if left < phase.lasts:
                return phase
            left -= phase.lasts
        return self.case.phases[-1]

    def _come(self, worker: int) -> None:
        """Asks for what is due, sends what was granted, and comes again when told to."""
        phase, now = self._phase(), self.now
        wanted = PLENTY
        if phase.jobs is not None:
            self._backlog[worker] += phase.jobs * (now - self._asked[worker]) / 1000
            wanted = int(self._backlog[worker])
        self._asked[worker] = now
        if wanted == 0:
            self._at(now + 100, lambda: self._come(worker))
            return
        ask = ReservationRequest(f"{PLACE}/{worker}", PLENTY, wanted, 0, (Draw(self.case.limit),))
        answer = self.rig.run(self.budgets.reserve(PLACE, 0.1, [ask]))
        given = answer.grants[0].urgent
        if given:
            self.seen.drawn.append((now, given))
        if phase.jobs is not None:
            self._backlog[worker] -= given
        self._look(refused=None)
        for _ in range(given):
            if self._chance.random() < phase.absent:
                self._at(now + 100, lambda: self._unused(answer.corrections))
            else:
                self._at(now + self._way(), lambda: self._arrive(answer.corrections))
        self._at(now + max(1, answer.grants[0].again), lambda: self._come(worker))

    def _way(self) -> float:
        return self._chance.uniform(0.01, self.case.slowest) * 500

    def _unused(self, turn: int) -> None:
        self.seen.drawn.append((self.now, -1))
        self.rig.run(self.budgets.return_unused(PLACE, turn, [(self.case.limit, 1.0)]))
        self._look(refused=None)

    def _arrive(self, turn: int) -> None:
        if self._provider.spend(self.now):
            self.seen.served.append(self.now)
        else:
            self.seen.refused.append(self.now)
            self._at(self.now + self._way(), lambda: self._tell(turn))

    def _tell(self, turn: int) -> None:
        reserved = turn if self.case.turns_known else 0
        said = LimitFeedback(self.case.limit, 1, pause=int(self.case.pause * 1000), strike=1, reserved=reserved)
        self.rig.run(self.budgets.correct(PLACE, [said]))
        self._look(refused=turn)
        self._told.append(self.now)

    # ---- the laws

    def _look(self, refused: int | None) -> None:
        stored = self.rig.run(self._stored())
        before, level = self._level, float(stored[0] or 1)
        self._level = level
        self.seen.learned.append((self.now, level))
        require(MOST, level <= self.case.most + 1e-9, f"{level} times the declared rate at {self.now}")
        if refused is not None:
            self._check_back(refused, before, level, int(stored[1] or 0))
        elif level > before:
            self._check_raise(before, level)
        else:
            require(ONE_BACK, level == before, f"from {before} to {level} at {self.now}, and nothing was refused")

    async def _stored(self) -> list[bytes | None]:
        fields = [f"{self.case.limit.name}|learned", "turn"]
        found: list[bytes | None] = await self.rig.client.execute_command("HMGET", self.keys.budget(PLACE), *fields)
        return found

    def _check_back(self, reserved: int, before: float, level: float, turn: int) -> None:
        late = reserved <= self._back_turn
        if not self.case.turns_known:
            late = bool(self._tried) and self.now - self._tried[-1][0] < STRETCH
        if late or before == 1:
            require(ONE_BACK, level == before, f"from {before} to {level} at {self.now}, by a call on its way")
            return
        least = max(1.0, before / 1.25)
        require(ONE_BACK, least - 1e-9 <= level < before, f"from {before} to {level} at {self.now}, not one step")
        self._back_turn = turn
        self._tried.append((self.now, before))

    def _check_raise(self, before: float, level: float) -> None:
        now = self.now
        require(ONE_UP, now - self._raised >= STRETCH - 5, f"raised at {self._raised} and at {now}")
        require(ONE_UP, level <= before * 1.25 + 1e-9, f"from {before} to {level}")
        since = max(SHORTLY, self.case.pause * 1000 + STRETCH)
        lately = [at for at in self._told if now - at < since - 5]
        require(QUIET, not lately, f"raised at {now}, refused at {lately}")
        begin = now - STRETCH
        drawn = sum(tokens for at, tokens in self.seen.drawn if at >= begin)
        flow = self.rate * before * STRETCH / 1000
        require(USED, drawn >= 0.85 * flow - 1, f"raised at {now}: {drawn} of {flow} were used")
        require(USED, self._never_idle(begin), f"raised at {now}: for a while nothing was drawn")
        for at, rate in self._tried:
            again = now - at < REMEMBERED and level >= rate - 1e-9
            require(HOURS, not again, f"{level} tried at {now}, {rate} was refused at {at}")
        self._raised = now

    def _never_idle(self, begin: float) -> bool:
        """Tokens were drawn at least every so often, as long as a few tokens take to come."""
        longest = 2_000 + 4_000 / (self.rate * self._level)
        times = [begin, *(at for at, tokens in self.seen.drawn if at >= begin and tokens > 0)]
        return all(other - one <= longest for one, other in zip(times, [*times[1:], self.now], strict=True))


def cases() -> Iterator[LearningCase]:
    """Accounts that grant what is declared, more, and a little more; workers that have plenty to do, too little, or
    nothing to call for."""
    steady = Limit.bucket("steady", 20, rate=5, spare=4, learns=True)
    small = Limit.bucket("small", 5, rate=10, spare=1, learns=True)
    slow = Limit.bucket("slow", 10, rate=0.5, spare=1, learns=True)
    deep = Limit.bucket("deep", 100, rate=5, learns=True)
    busy = (Phase(60),)
    calm = (Phase(30, jobs=0.5), Phase(30, jobs=1.0), Phase(20), Phase(15, jobs=0.2), Phase(25))
    absent = (Phase(30, absent=1.0), Phase(20, absent=0.5), Phase(20))
    lulls = (Phase(25), *(Phase(3), Phase(4, jobs=0.0)) * 5)
    for seed, limit in enumerate((steady, small)):
        for grants, holds in ((1.0, 1.0), (1.2, 1.0), (2.0, 2.0), (3.0, 3.0), (10.0, 1.0)):
            yield LearningCase(limit, grants, busy, holds=holds, seed=seed)
        yield LearningCase(limit, 3.0, calm, seed=seed)
        yield LearningCase(limit, 3.0, absent, seed=seed)
        yield LearningCase(limit, 1.5, busy, workers=12, seed=seed)
        yield LearningCase(limit, 1.5, busy, slowest=4.0, seed=seed)
        yield LearningCase(limit, 1.5, busy, turns_known=False, seed=seed)
        yield LearningCase(limit, 1.5, (Phase(150),), pause=45, seed=seed)
        yield LearningCase(limit, 0.8, (Phase(150),), seed=seed)
        yield LearningCase(limit, 10.0, busy, most=1.6, seed=seed)
        yield LearningCase(limit, 10.0, busy, most=1.0, seed=seed)
    yield LearningCase(deep, 3.0, lulls)
    yield LearningCase(slow, 3.0, (Phase(200), Phase(60, jobs=0.05), Phase(60)))
