"""For each law a fault is planted in a script, and the machines must find that very law broken.

A fault whose text no longer stands in the script fails here, so that none of them turns into a blank.
"""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from service.stream.scripts import Scripts, lua_text
from tests.properties import engine_laws as laws
from tests.properties.budget_machine import BudgetMachine
from tests.properties.engine_machine import EngineMachine
from tests.properties.laws import broken_law
from tests.properties.rig import Rig
from tests.servers import TestServer

HUNT = settings(
    max_examples=400, stateful_step_count=50, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate], report_multiple_bugs=False,
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """In `script` the text `old` becomes `new`; one of `broken` must be found, by any name that begins so."""

    name: str
    script: str
    old: str
    new: str
    broken: tuple[str, ...]

    def scripts(self) -> Scripts:
        text = lua_text(self.script)
        assert text.count(self.old) >= 1, f"{self.script}.lua has no {self.old!r} any more: plant the fault elsewhere"
        return Scripts(changed={self.script: text.replace(self.old, self.new)})


ENGINE = (
    Fault("a job whose worker died is not put back", "reclaim", "redis.call('ZADD', stem .. 'alone', now, job)", "",
          (laws.LOST,)),
    Fault("a taken job stays in its lane", "take", "spread('ZREM', queue, jobs)", "", (laws.TWICE,)),
    Fault("an abandoned job still counts as left", "abandon", "job_ended(id, record.stage)", "", (laws.COUNTS,)),
    Fault("the release does not wait for every chain", "_shard", "'chains_left', -1) == 0", "'chains_left', -1) >= 0",
          (laws.ORDER, laws.TWICE, laws.COUNTS)),
    Fault("what is done can be planned again", "plan", "if state ~= 'published' and state ~= 'held' then",
          "if false then", (laws.FINAL, laws.ANSWER)),
    Fault("an old token settles", "settle", "holders[i] == fence", "holders[i]", (laws.ZOMBIE,)),
    Fault("a repeated settle acts again", "settle", "if repeated then return repeated end", "", (laws.REPEAT,)),
    Fault("a lane is scored too late", "_shard", "redis.call('ZADD', lanes, score, lane)",
          "redis.call('ZADD', lanes, score + 60000, lane)", (laws.SERVED,)),
    Fault("a wait is forgotten", "settle", "local due = now + item[8]", "local due = now", (laws.WAITS,)),
    Fault("an entry is acked before its plan is whole", "plan", "answers[i] = {'writing', number}",
          "answers[i] = {'writing', number}; ack(plan[2])", (laws.EVENTS, laws.ANSWER, laws.DONE)),
    Fault("a lane's cap is not looked at", "take",
          "math.max(0, want[4] - redis.call('ZCARD', stem .. 'leases:' .. lane))", "want[4]", (laws.CAP,)),
)  # fmt: skip

BUDGET = (
    Fault("tokens are taken at half price", "reserve", "d.tokens = d.tokens - given * draw[2]",
          "d.tokens = d.tokens - given * draw[2] / 2", ()),
    Fault("a window begins anew at half its length", "_budget", "if elapsed >= l.per then",
          "if elapsed >= l.per / 2 then", ()),
    Fault("a clock that goes back refills again", "_budget", "l.at = math.max(l.at, now)", "l.at = now", ()),
    Fault("a return counts every time it is sent", "give_back", "if repeated then return repeated end", "", ()),
    Fault("a pause leaves the tokens", "correct", "l.tokens, l.at, l.from, l.ramp = 0,",
          "l.tokens, l.at, l.from, l.ramp = l.tokens,", ()),
)  # fmt: skip


def hunt(machine: type[RuleBasedStateMachine], server: TestServer, scripts: Scripts) -> str | None:
    """The law that was found broken, if any."""
    rig = Rig(server.settings(shards=1))
    planted = type("Planted", (machine,), {"rig": rig, "scripts": scripts})
    try:
        run_state_machine_as_test(planted, settings=HUNT)
    except BaseException as error:
        law = broken_law(error)
        if law is None:
            raise
        return law
    finally:
        rig.close()
    return None


@pytest.mark.parametrize("fault", ENGINE, ids=lambda fault: fault.name)
def test_the_engines_machine_finds_that(fault: Fault, embedded_server: TestServer) -> None:
    law = hunt(EngineMachine, embedded_server, fault.scripts())
    assert law in fault.broken


@pytest.mark.parametrize("fault", BUDGET, ids=lambda fault: fault.name)
def test_the_budgets_machine_finds_that(fault: Fault, embedded_server: TestServer) -> None:
    assert hunt(BudgetMachine, embedded_server, fault.scripts()) is not None
