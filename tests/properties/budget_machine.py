"""State machine of one budget: reservations, returns, corrections, repeats and clock jumps, and the laws of limits."""

import time
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from service.contract import Draw, Limit
from service.engine.budgets import Budgets, LimitFeedback, ReservationRequest, TokenGrant
from service.engine.script_loading import Scripts
from tests.properties.actions import Action, action, actions_of
from tests.properties.clock import JumpingClock
from tests.properties.laws import require
from tests.properties.rig import Rig
from tests.properties.spending_log import SpendingLog, Spent

ASKED = "nobody gets more than was asked for"
TOLD = "a told remainder is believed"
REPEAT = "a repeated call changes nothing and gets the same answer"
AGAIN = "who comes again when told gets something"
TOGETHER = "who waits for many gets them together"
KEPT = "what a lane waits for is kept for it"

T = TypeVar("T")
PLACE = "sim/account"
BUCKET = Limit.bucket("bucket", 10, rate=1)
WINDOW = Limit.window("window", 6, timedelta(seconds=20))
SPARED = Limit.bucket("spared", 8, rate=2, spare=3)
LIMITS = (BUCKET, WINDOW, SPARED)
MANY, MANY_LANE = 4, f"{PLACE}/many"
LANES = {
    f"{PLACE}/one": (Draw(BUCKET),),
    f"{PLACE}/two": (Draw(BUCKET, 2.0), Draw(WINDOW)),
    f"{PLACE}/three": (Draw(WINDOW, 2.0),),
    f"{PLACE}/four": (Draw(SPARED), Draw(BUCKET, 0.5)),
    MANY_LANE: (Draw(BUCKET, together=MANY),),
}
JUMPS = (100, 1_000, 3_000, 10_000, 21_000, 3_600_000, -500, -5_000, -3_600_000)
SLACK = 100
"""Milliseconds within which it is open which of two words is the newer one."""

FEW = st.integers(0, 12)
LANE = st.sampled_from(sorted(LANES))


@dataclass(slots=True)
class Reservation:
    """Jobs that were granted together, and the entries in the books that their tokens have."""

    lane: str
    count: int
    corrections: int
    entries: dict[str, Spent]


class BudgetActions:
    """A client that spends tokens of one place's limits, in every possible way."""

    def __init__(self, rig: Rig, scripts: Scripts | None) -> None:
        self.rig, self.clock, self.keys = rig, JumpingClock(), rig.keys()
        self.caller = rig.caller(self.clock, scripts)
        self.budgets = Budgets(self.caller, self.keys)
        self.books = {limit.name: SpendingLog(limit) for limit in LIMITS}
        self.open: list[Reservation] = []
        self.told: dict[str, float] = {}

    # ---- what can happen

    @action(
        wants=st.lists(st.tuples(LANE, st.integers(1, 12), FEW, FEW), min_size=1, max_size=3),
        share=st.sampled_from((0.0, 0.1, 0.5, 1.0)),
    )
    def reserve(self, wants: list[tuple[str, int, int, int]], share: float) -> None:
        for grant, (lane, most, urgent, background) in zip(self._reserve(wants, share), wants, strict=True):
            require(
                ASKED,
                0 <= grant.urgent <= urgent
                and 0 <= grant.background <= background
                and grant.urgent + grant.background <= most,
                f"{grant} for {lane}, {most} of {urgent} and {background}",
            )

    @action(which=st.integers(0, 20), part=st.integers(1, 12))
    def give_back(self, which: int, part: int) -> None:
        """Some of the calls were not made."""
        if not self.open:
            return
        reservation = self.open[which % len(self.open)]
        count = min(part, reservation.count)
        if count == 0:
            return
        reservation.count -= count
        draws = LANES[reservation.lane]
        self._timed([draw.limit for draw in draws], self.budgets.return_unused(
            PLACE, reservation.corrections, [(draw.limit, draw.cost * count) for draw in draws]
        ))  # fmt: skip
        for draw in draws:
            reservation.entries[draw.limit.name].tokens -= draw.cost * count

    @action(
        limit=st.sampled_from(LIMITS),
        wait=st.sampled_from((0, 500, 4_000, 30_000)),
        age=st.sampled_from((0, 700)),
        strike=st.integers(0, 1),
    )
    def pause(self, limit: Limit, wait: int, age: int, strike: int) -> None:
        self._timed([limit], self.budgets.correct(PLACE, [LimitFeedback(limit, 1, age=age, pause=wait, strike=strike)]))
        # The call's own tick is in the clock by now; offset and server time are cut to whole milliseconds.
        self.books[limit.name].paused(self.clock.at - 2 + wait)

    @action(
        limit=st.sampled_from(LIMITS),
        left=st.integers(0, 12),
        age=st.sampled_from((0, 2_000)),
        answered=st.integers(1, 4),
    )
    def hear_what_is_left(self, limit: Limit, left: int, age: int, answered: int) -> None:
        book, at = self.books[limit.name], self.clock.at - age
        self._timed([limit], self.budgets.correct(PLACE, [LimitFeedback(limit, answered, remaining=left, age=age)]))
        newest = at > self.told.get(limit.name, 0.0) + SLACK
        self.told[limit.name] = max(at, self.told.get(limit.name, 0.0))
        if self.clock.at <= max(book.pauses, default=0.0) + SLACK:
            return  # nothing is to be had before the pause is over, whatever is left
        tokens = self._field(limit, "tokens", limit.capacity)
        if newest:
            require(TOLD, tokens <= left, f"{limit.name}: {tokens} tokens, told were {left}")
        book.corrected()

    @action(by=st.sampled_from(JUMPS))
    def jump(self, by: int) -> None:
        self.clock.jump(timedelta(milliseconds=by))

    @action(back=st.integers(0, 6))
    def say_it_again(self, back: int) -> None:
        """An answer got lost and the call is sent once more."""
        if back >= len(self.caller.calls):
            return
        call, before = self.caller.calls[-1 - back], self._stored()
        answer = self.rig.run(self.caller.again(call))
        require(REPEAT, answer == call.answer, f"{call.name}: {answer!r}")
        require(REPEAT, self._stored() == before, call.name)

    @action(lane=LANE)
    def come_again_when_told(self, lane: str) -> None:
        """A lane that returns at the given time gets tokens then, if no other came in between."""
        for _ in range(25):
            (grant,) = self._reserve([(lane, 1, 1, 0)], 0.1)
            if grant.urgent:
                return
            require(AGAIN, grant.again > 0, lane)
            self.clock.jump(timedelta(milliseconds=grant.again + 1))
            if len(LANES[lane]) == 1 and LANES[lane][0].limit.kind == "bucket":
                (grant,) = self._reserve([(lane, 1, 1, 0)], 0.1)
                require(AGAIN, grant.urgent == 1, f"{lane}: {grant}, {self._stored()}")
                return
        require(AGAIN, False, f"{lane}: nothing after 25 visits, {self._stored()}")

    @action(background=st.booleans())
    def come_for_many(self, background: bool) -> None:
        """None at all or so many, and then so many, unless another lane waits."""
        if self._crowded():
            return
        wants = [(MANY_LANE, 12, 0 if background else 12, 12 if background else 0)]
        for visit in range(2):
            (grant,) = self._reserve(wants, 0.1)
            if (given := grant.urgent + grant.background) >= MANY:
                return
            require(TOGETHER, given == 0 and visit == 0, f"{grant}, {self._stored()}")
            self.clock.jump(timedelta(milliseconds=grant.again + 1))

    @action(visits=st.lists(st.integers(1, 12), min_size=1, max_size=5))
    def come_between(self, visits: list[int]) -> None:
        """Others who want less come while a lane waits for many: it gets them all the same."""
        if self._crowded():
            return
        wants = [(MANY_LANE, 12, 12, 0)]
        (grant,) = self._reserve(wants, 0.1)
        if grant.urgent:
            return
        end = self.clock.at + grant.again + 1
        for most in visits:
            self.clock.jump(timedelta(milliseconds=grant.again / (len(visits) + 1)))
            self._reserve([(f"{PLACE}/one", most, most, 0)], 0.1)
        self.clock.jump(timedelta(milliseconds=max(0.0, end - self.clock.at)))
        (grant,) = self._reserve(wants, 0.1)
        require(KEPT, grant.urgent >= MANY, f"{grant}, {self._stored()}")

    def _crowded(self) -> bool:
        """Whether another lane may wait for tokens of the bucket."""
        return any(self._field(BUCKET, side, 0.0) > self.clock.at - SLACK for side in ("urgent", "background"))

    def _reserve(self, wants: list[tuple[str, int, int, int]], share: float) -> list[TokenGrant]:
        limits = [draw.limit for lane, *_ in wants for draw in LANES[lane]]
        answer = self._timed(
            limits, self.budgets.reserve(PLACE, share, [ReservationRequest(*want, LANES[want[0]]) for want in wants])
        )
        for grant, (lane, *_) in zip(answer.grants, wants, strict=True):
            count = grant.urgent + grant.background
            entries = {
                draw.limit.name: self.books[draw.limit.name].spend(
                    draw.cost * count, self._field(draw.limit, "at", 0.0)
                )
                for draw in LANES[lane]
            }
            if count:
                self.open.append(Reservation(lane, count, answer.corrections, entries))
        return answer.grants

    def _timed(self, limits: list[Limit], call: Coroutine[Any, Any, T]) -> T:
        begun = time.monotonic()
        answer = self.rig.run(call)
        took = (time.monotonic() - begun) * 1000 + 1
        for limit in limits:
            self.books[limit.name].see(self.clock.at - 1, self.clock.at + took)
        return answer

    def _stored(self) -> dict[bytes, bytes]:
        flat = self.rig.run(self.rig.client.execute_command("HGETALL", self.keys.budget(PLACE)))
        return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))

    def _field(self, limit: Limit, name: str, otherwise: float) -> float:
        value = self.rig.run(self.rig.client.execute_command("HGET", self.keys.budget(PLACE), f"{limit.name}|{name}"))
        return otherwise if value is None else float(value)


class BudgetMachine(RuleBasedStateMachine):
    """`rig` and `scripts` are set by whoever runs it."""

    kinds = BudgetActions
    rig: ClassVar[Rig]
    scripts: ClassVar[Scripts | None] = None
    shard: ClassVar[int] = 0  # a budget belongs to no shard

    def __init__(self) -> None:
        super().__init__()
        self.actions = BudgetActions(self.rig, self.scripts)

    @rule(action=actions_of(BudgetActions))
    def step(self, action: Action) -> None:
        action.do(self.actions)

    @invariant()
    def laws_hold(self) -> None:
        for book in self.actions.books.values():
            book.check()

    def teardown(self) -> None:
        self.rig.clear(self.actions.keys.budget(PLACE))
