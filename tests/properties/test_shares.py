"""Background share: while urgent work never ends, background work keeps its share of scarce tokens."""

from datetime import timedelta
from itertools import product

import pytest

from service.contract import Limit
from service.engine.script_loading import Scripts
from tests.properties.competing_lanes import Demand, share_out
from tests.properties.faults import Fault
from tests.properties.laws import broken, require
from tests.properties.rig import Rig

BACKGROUND = "background work keeps its share"
URGENT = "urgent work gets the rest"
VISITS = 200

LIMITS = (
    Limit.bucket("steady", 10, rate=1),
    Limit.bucket("quick", 20, rate=4),
    Limit.bucket("slow", 5, rate=0.1),
    Limit.bucket("single", 1, rate=0.5),
    Limit.window("window", 30, timedelta(seconds=20)),
)
DEMANDS = [
    *(Demand(*each) for each in product(LIMITS, (0.1, 0.25, 0.5), (False, True), (False, True))),
    *(Demand(*each) for each in product(LIMITS[:2], (0.1, 0.5), (False, True), (False, True), (3.0,))),
]

FAULTS = (
    Fault("background work earns nothing", "reserve", "l.credit + given_urgent * share / (1 - share)", "l.credit",
          (BACKGROUND,)),
    Fault("nothing is left for background work of other lanes", "reserve",
          "waits and left_of(places - spent, l.credit, most_credit) or 0", "0", (BACKGROUND,)),
    Fault("background work does not look whether urgent work waits", "reserve", "elseif marked then",
          "elseif false then", (URGENT,)),
    Fault("it is forgotten who waits before he can come again", "reserve", "now + again + MARK", "now + MARK",
          (URGENT, BACKGROUND)),
)  # fmt: skip


def check(rig: Rig, demand: Demand, scripts: Scripts | None = None) -> None:
    got = share_out(rig, demand, VISITS, scripts)
    total = got.urgent + got.background
    # The first lane finds the limit full and no other waiting; after that a unit may be under way on either side.
    # The clock of the server runs on while a call is made: a few in a hundred may fall to the other side.
    slack = demand.limit.capacity + 2 + 0.06 * total
    require(BACKGROUND, got.background >= demand.share * (total - slack) - 2, f"{demand}: {got}")
    require(URGENT, got.urgent >= (1 - demand.share) * (total - slack) - 2, f"{demand}: {got}")


def check_all(rig: Rig, scripts: Scripts | None = None) -> None:
    for demand in DEMANDS:
        check(rig, demand, scripts)


def test_each_side_gets_its_share(rig: Rig) -> None:
    for demand in DEMANDS[::5]:
        check(rig, demand)


@pytest.mark.long
def test_each_side_gets_its_share_of_every_limit(rig: Rig) -> None:
    check_all(rig)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_that_is_noticed(rig: Rig, fault: Fault) -> None:
    assert broken(lambda: check_all(rig, fault.scripts())) in fault.breaks
