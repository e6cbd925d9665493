"""Learned rates: limits without reports of what is left rise step by step, for all workers together, never too far."""

import pytest

from service.contract import Limit
from service.engine.script_loading import Scripts
from tests.properties import learning
from tests.properties.faults import Fault
from tests.properties.laws import broken
from tests.properties.learning import LearningCase, LearningRun, Phase
from tests.properties.rig import Rig

pytestmark = pytest.mark.long

CASES = list(learning.cases())
FAULTS = (
    Fault("no bound is kept to", "reserve", "math.min(l.learned * STEP, l.most)", "l.learned * STEP", (learning.MOST,)),
    Fault("it does not matter whether a bucket flowed over", "_budget",
          "if l.tokens >= l.capacity then l.waited_from = 0 end", "", (learning.USED,)),
    Fault("it does not matter whether somebody waits all the time", "reserve", " or l.waited_until < now then", " then",
          (learning.USED,)),
    Fault("a step may follow a refusal at once", "reserve", "if math.abs(now - l.back_at) < QUIET then return end", "",
          (learning.QUIET,)),
    Fault("a limit that was slowed down may be raised", "reserve", "l.pause > now or l.factor < 1", "l.pause > now",
          (learning.QUIET,)),
    Fault("a pause counts as waiting", "reserve", "l.pause > now or l.factor < 1", "l.factor < 1", (learning.QUIET,)),
    Fault("every worker raises", "reserve", "l.below, l.learned, l.waited_from = l.learned, up, now",
          "l.below, l.learned = l.learned, up", (learning.ONE_UP,)),
    Fault("calls on their way take steps back, too", "correct", "return reserved <= l.back_turn",
          "return false", (learning.ONE_BACK,)),
    Fault("so do those of which nobody knows when they were reserved", "correct",
          "return math.abs(now - l.back_at) < STRETCH", "return false", (learning.ONE_BACK,)),
    Fault("a refusal takes no step back", "correct", "l.learned = l.below", "", (learning.ONE_BACK,)),
    Fault("a refusal takes everything back", "correct", "l.learned = l.below", "l.learned = 1", (learning.ONE_BACK,)),
    Fault("a refused step is tried again", "reserve", "l.refused_until > now and up >= l.refused", "false",
          (learning.HOURS,)),
)  # fmt: skip


def check_all(rig: Rig, scripts: Scripts | None = None) -> None:
    for case in CASES:
        LearningRun(rig, case, scripts).run()


@pytest.mark.long
def test_the_laws_of_learning_hold(rig: Rig) -> None:
    for case in CASES[::7]:
        LearningRun(rig, case).run()


@pytest.mark.long
def test_the_laws_of_learning_hold_in_every_case(rig: Rig) -> None:
    check_all(rig)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_that_is_noticed(rig: Rig, fault: Fault) -> None:
    assert broken(lambda: check_all(rig, fault.scripts())) in fault.breaks


CALLS = Limit.bucket("calls", 40, rate=10, spare=7.5, learns=True)


def test_an_account_that_grants_three_times_as_much_is_used_after_a_minute(rig: Rig) -> None:
    run = LearningRun(rig, LearningCase(CALLS, 3.0, (Phase(120),), holds=3.0, workers=4, slowest=0.2))
    seen = run.run()
    assert seen.share(3 * run.rate, 60, 120) >= 0.9
    assert seen.throttled < 0.005


def test_an_account_that_grants_what_is_declared_is_used_as_before(rig: Rig) -> None:
    """One step is tried; what it costs is less than what flows in within two seconds."""
    shares = []
    for most in (1.0, 4.0):
        run = LearningRun(rig, LearningCase(CALLS, 1.0, (Phase(90),), workers=4, slowest=0.2, most=most))
        seen = run.run()
        shares.append(seen.share(run.rate, 0, 90))
        assert seen.throttled < 0.005
    assert shares[1] >= shares[0] - 2 / 90
