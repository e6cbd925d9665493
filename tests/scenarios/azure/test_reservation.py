"""Interface that is reserved for another machine for a while: the wait is neither lost nor restarted, whatever dies
meanwhile. Times are those at which requests reached Azure, and those in the job's record."""

import re
from datetime import timedelta
from itertools import pairwise

import pytest

from service.engine.views.jobs import JobView
from standins.azure import AzureJournalEntry
from standins.redis_servers import LocalRedis
from tests.scenarios.azure.azure_scenario import AzureScenario

SECONDS = 12
"""What is reserved. The refusal names what is left of it then; the stand-in's clock is ours here."""


@pytest.mark.long
async def test_a_killed_worker_and_a_restarted_server_neither_lose_nor_restart_the_wait(
    durable_scenario: AzureScenario, valkey: LocalRedis
) -> None:
    first = durable_scenario.launch("work")
    watcher = durable_scenario.launch("watch")
    await watcher.until_ready()
    claim = durable_scenario.name("a")
    uid = await _reserved(durable_scenario, claim)
    waiting = await durable_scenario.until_told(claim, "NicReservedForAnotherVm", "retry after")
    first.kill()
    await valkey.revive()
    # Read while no worker runs, however long all this took.
    found = await durable_scenario.job(claim)
    assert found is not None
    assert (found.due, found.waits) == (waiting.due, waiting.waits)
    durable_scenario.launch("work")
    await _goes_when_it_is_due(durable_scenario, waiting)
    record = await durable_scenario.record(uid)
    assert record is not None
    assert record.state in ("running", "releasing", "done")


@pytest.mark.long
async def test_a_wait_that_one_worker_began_is_ended_by_another(scenario: AzureScenario) -> None:
    first = scenario.launch("work")
    await scenario.start(works=False)
    claim = scenario.name("a")
    await _reserved(scenario, claim)
    waiting = await scenario.until_told(claim, "NicReservedForAnotherVm", "retry after")
    second = scenario.launch("work")
    await second.until_ready()
    await first.stop()
    await _goes_when_it_is_due(scenario, waiting)


@pytest.mark.long
async def test_a_reservation_that_is_renewed_is_waited_for_again_and_not_hurried(scenario: AzureScenario) -> None:
    """The stand-in's clock is quicker here: 20 of its seconds are two of ours, and so it says."""
    await scenario.azure.behave(refusal_renews=True)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    guid = await scenario.nic(claim)
    await scenario.trouble("gate", "nic.delete")
    await scenario.unclaimed(claim)
    await scenario.until_reserved(claim, guid, 20)

    async def refused() -> bool:
        return len(await scenario.deletes()) >= 2

    await scenario.until_told(claim, "retry after 2 seconds")
    await scenario.until("it was refused twice", refused)
    await scenario.azure.behave(refusal_renews=False)
    await scenario.until_done(uid)
    deletes = await scenario.deletes()
    for one, following in pairwise(deletes):
        assert following.real - one.real >= 2.0, "it came while the interface was reserved"
    assert [one.status for one in deletes] == [400] * (len(deletes) - 1) + [202]


async def _reserved(scenario: AzureScenario, claim: str) -> str:
    """A claim that is gone, and whose interface is reserved; its uid."""
    await scenario.azure.behave(nic_goes=0.2)
    await scenario.azure.set_rate(1)
    uid = await scenario.claimed(claim, launched=False)
    guid = await scenario.nic(claim)
    await scenario.trouble("gate", "nic.delete")
    await scenario.unclaimed(claim)
    await scenario.until_reserved(claim, guid, SECONDS)
    return uid


async def _goes_when_it_is_due(scenario: AzureScenario, waiting: JobView) -> None:
    async def twice() -> list[AzureJournalEntry]:
        deletes = [one for one in await scenario.deletes() if one.operation == "nic.delete"]
        return deletes if len(deletes) > 1 else []

    refusal, *later = await scenario.until("it is asked for again", twice)
    assert (refusal.status, refusal.code) == (400, "NicReservedForAnotherVm")
    assert waiting.due is not None
    assert waiting.last_at is not None
    named = re.search(r"retry after (\d+) seconds", str(waiting))
    assert named is not None
    seconds = int(named[1])
    assert waiting.due - waiting.last_at <= timedelta(seconds=seconds), "it waits for longer than was named"
    # A second call and no third: what died meanwhile did not begin the wait anew.
    (allowed,) = later
    assert allowed.status == 202
    assert allowed.real >= waiting.due.timestamp() >= refusal.real + seconds, "it came while it was reserved"
    await scenario.until_gone(waiting.target.removeprefix("aks-"))
