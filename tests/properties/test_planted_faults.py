"""Planted faults: for each law a fault is planted in a script, and the state machine must find that very law broken."""

import pytest

from tests.properties import budget_machine as budget
from tests.properties import engine_laws as laws
from tests.properties import faults, spending_log
from tests.properties.budget_machine import BudgetMachine
from tests.properties.engine_machine import EngineMachine
from tests.properties.faults import Fault
from tests.properties.running import hunt
from tests.redis_servers import TestServer


@pytest.mark.long
@pytest.mark.parametrize("fault", faults.ENGINE, ids=lambda fault: fault.name)
def test_the_engines_machine_finds_that(fault: Fault, embedded_server: TestServer) -> None:
    assert hunt(EngineMachine, embedded_server, fault) in fault.breaks


@pytest.mark.long
@pytest.mark.parametrize("fault", faults.BUDGET, ids=lambda fault: fault.name)
def test_the_budgets_machine_finds_that(fault: Fault, embedded_server: TestServer) -> None:
    assert hunt(BudgetMachine, embedded_server, fault) in fault.breaks


def test_every_law_has_a_fault_that_breaks_it() -> None:
    names = {
        value
        for module in (laws, spending_log, budget)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and " " in value
    }
    meant = {fault.breaks[0] for fault in (*faults.ENGINE, *faults.BUDGET)}
    assert names <= meant, f"no fault is meant for {sorted(names - meant)}"
