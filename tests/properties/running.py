"""Runner of a state machine on a server, with the scripts as they are or with a fault in one of them."""

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.properties.actions import Action, actions_of
from tests.properties.budget_machine import BudgetMachine
from tests.properties.engine_machine import EngineMachine
from tests.properties.faults import Fault
from tests.properties.laws import BrokenLaw
from tests.properties.rig import Rig
from tests.redis_servers import TestServer

Machine = type[EngineMachine] | type[BudgetMachine]
STEPS = 50


def run(machine: Machine, server: TestServer, examples: int, *, same_each_time: bool) -> int:
    """Raises what broke a law. On a Cluster the shards take turns, so that every master has its part."""
    rig, begun = Rig(server.settings()), 0

    class Counted(machine):  # type: ignore[misc,valid-type]  # which one is given
        def __init__(self) -> None:
            nonlocal begun
            type(self).shard = begun % rig.settings.shards
            begun += 1
            super().__init__()

    Counted.rig = rig
    try:
        run_state_machine_as_test(Counted, settings=_settings(examples, derandomize=same_each_time))
    finally:
        rig.close()
    return begun


def hunt(machine: Machine, server: TestServer, fault: Fault, examples: int = 400) -> str | None:
    """The law that is found broken with the fault, if any is; the same examples each time."""
    rig = Rig(server.settings(shards=1))

    class Planted(machine):  # type: ignore[misc,valid-type]  # which one is given
        @rule(action=actions_of(machine.kinds, fault.focus))
        def step(self, action: Action) -> None:
            machine.step(self, action)

    Planted.rig, Planted.scripts = rig, fault.scripts()
    found = _settings(examples, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
    BrokenLaw.first = None
    try:
        run_state_machine_as_test(Planted, settings=found)
    except BaseException:
        # Whatever hypothesis makes of it: an example that does not fail again counts, too.
        if BrokenLaw.first is None:
            raise
    finally:
        rig.close()
    return BrokenLaw.first


def _settings(examples: int, **others: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        **others,
    )
