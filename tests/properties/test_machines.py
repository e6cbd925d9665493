"""Any order of moves, crashes, repeats and clock jumps keeps the laws, with the real scripts on a real server."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.properties.budget_machine import BudgetMachine
from tests.properties.engine_machine import EngineMachine
from tests.properties.rig import Rig
from tests.servers import TestServer


def run(machine: type[RuleBasedStateMachine], server: TestServer, examples: int) -> int:
    rig = Rig(server.settings(shards=1))
    begun = 0

    class Counted(machine):  # type: ignore[misc,valid-type]  # the machine is given
        def __init__(self) -> None:
            nonlocal begun
            begun += 1
            super().__init__()

    Counted.rig = rig
    try:
        run_state_machine_as_test(
            Counted,
            settings=settings(
                max_examples=examples, stateful_step_count=50, deadline=None, database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
    finally:
        rig.close()
    return begun


def test_the_engine_keeps_its_laws(embedded_server: TestServer) -> None:
    assert run(EngineMachine, embedded_server, 60) >= 60


def test_budgets_keep_their_laws(embedded_server: TestServer) -> None:
    assert run(BudgetMachine, embedded_server, 80) >= 80


@pytest.mark.long
def test_the_engine_keeps_its_laws_on_every_server(server: TestServer) -> None:
    assert run(EngineMachine, server, 300) >= 300


@pytest.mark.long
def test_budgets_keep_their_laws_on_every_server(server: TestServer) -> None:
    assert run(BudgetMachine, server, 300) >= 300
