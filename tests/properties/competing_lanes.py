"""Lanes that draw on one limit and always want more than there is; each returns exactly when the budget says.

The result is how much of the limit each side gets."""

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from service.contract import Draw, Limit
from service.engine.budgets import Budgets, ReservationRequest
from service.engine.script_loading import Scripts
from tests.properties.clock import JumpingClock
from tests.properties.rig import Rig

PLACE = "sim/account"
PLENTY = 1000


class Demand(NamedTuple):
    """Both kinds in one lane or in a lane each, who comes first where both come at the same time, and how many jobs a
    lane wants at once."""

    limit: Limit
    share: float
    together: bool
    background_first: bool
    many: float = 0.0


class Shares(NamedTuple):
    urgent: int
    background: int


@dataclass(slots=True)
class CompetingLane:
    """A lane with so much of each; `due` is when it comes next."""

    name: str
    urgent: int
    background: int
    due: float


def share_out(rig: Rig, demand: Demand, visits: int, scripts: Scripts | None = None) -> Shares:
    clock, keys = JumpingClock(tick=0), rig.keys()
    budgets = Budgets(rig.caller(clock, scripts), keys)
    comers = [CompetingLane("urgent", PLENTY, 0, clock.at), CompetingLane("background", 0, PLENTY, clock.at)]
    if demand.together:
        comers = [CompetingLane("both", PLENTY, PLENTY, clock.at)]
    if demand.background_first:
        comers.reverse()
    urgent = background = 0
    for _ in range(visits):
        comer = min(comers, key=lambda one: one.due)
        clock.jump(timedelta(milliseconds=max(0.0, comer.due - clock.at)))
        draws = (Draw(demand.limit, together=demand.many),)
        ask = ReservationRequest(f"{PLACE}/{comer.name}", PLENTY, comer.urgent, comer.background, draws)
        (grant,) = rig.run(budgets.reserve(PLACE, demand.share, [ask])).grants
        urgent, background = urgent + grant.urgent, background + grant.background
        comer.due = clock.at + max(1, grant.again)
    rig.clear(keys.budget(PLACE))
    return Shares(urgent, background)
