"""Laws of the engine and the budgets under random calls, crashes, repeats and clock jumps, with the real scripts on a
real server.

The short run tries a few examples, the long one many more, on every kind of server. They are the same each time, so
that an unrelated change is not stopped by a new one; with KNELL_TEST_EXPLORE=1 the long run tries new ones."""

import os

import pytest

from tests.properties.budget_machine import BudgetMachine
from tests.properties.engine_machine import EngineMachine
from tests.properties.running import run
from tests.redis_servers import TestServer

SAME = not os.environ.get("KNELL_TEST_EXPLORE")


def test_the_engine_keeps_its_laws(embedded_server: TestServer) -> None:
    assert run(EngineMachine, embedded_server, 25, same_each_time=True) >= 25


def test_budgets_keep_their_laws(embedded_server: TestServer) -> None:
    assert run(BudgetMachine, embedded_server, 25, same_each_time=True) >= 25


@pytest.mark.long
def test_the_engine_keeps_its_laws_on_every_server(server: TestServer) -> None:
    assert run(EngineMachine, server, 600, same_each_time=SAME) >= 600


@pytest.mark.long
def test_budgets_keep_their_laws_on_every_server(server: TestServer) -> None:
    assert run(BudgetMachine, server, 400, same_each_time=SAME) >= 400
