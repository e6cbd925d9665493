"""An interface is reserved for another machine for a while: the wait is neither lost nor begun anew, whatever dies
meanwhile, and then it goes at once. All times are those at which requests reached Azure."""

from datetime import timedelta
from itertools import pairwise

import pytest

from service.local.azure import Entry
from service.local.servers import Server
from service.stream.views.jobs import JobView
from tests.scenarios.azure.stage import Stage

SECONDS = 12
"""What the refusal names; the stand-in's clock is ours here. Long enough for two processes to start."""
NAMED = f"retry after {SECONDS} seconds"


async def test_a_killed_worker_and_a_restarted_server_neither_lose_nor_restart_the_wait(
    lasting: Stage, valkey: Server
) -> None:
    first = lasting.launch("work")
    watcher = lasting.launch("watch")
    await watcher.until_ready()
    claim = lasting.name("a")
    uid = await _reserved(lasting, claim)
    waiting = await lasting.until_told(claim, "NicReservedForAnotherVm", NAMED)
    first.kill()
    await valkey.revive()
    lasting.launch("work")
    found = await lasting.job(claim)
    assert found is not None
    assert (found.due, found.waits) == (waiting.due, waiting.waits)
    await _goes_in_time(lasting, waiting)
    record = await lasting.record(uid)
    assert record is not None
    assert record.state in ("running", "releasing", "done")


@pytest.mark.long
async def test_a_wait_that_one_worker_began_is_ended_in_time_by_another(stage: Stage) -> None:
    first = stage.launch("work")
    await stage.start(works=False)
    claim = stage.name("a")
    await _reserved(stage, claim)
    waiting = await stage.until_told(claim, "NicReservedForAnotherVm", NAMED)
    second = stage.launch("work")
    await second.until_ready()
    await first.stop()
    await _goes_in_time(stage, waiting)


async def test_a_reservation_that_is_renewed_is_waited_for_again_and_not_hurried(stage: Stage) -> None:
    """The stand-in's clock is quicker here: 20 of its seconds are two of ours, and so it says."""
    await stage.azure.behave(refusal_renews=True)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    await stage.nic(claim, reserved=20)
    await stage.unclaimed(claim)

    async def refused() -> bool:
        return len(await stage.deletes()) >= 2

    await stage.until_told(claim, "retry after 2 seconds")
    await stage.until("it was refused twice", refused)
    await stage.azure.behave(refusal_renews=False)
    await stage.until_done(uid)
    deletes = await stage.deletes()
    for one, following in pairwise(deletes):
        assert following.real - one.real >= 2.0, "it came while the interface was reserved"
    assert [one.status for one in deletes] == [400] * (len(deletes) - 1) + [202]


async def _reserved(stage: Stage, claim: str) -> str:
    """A claim that is gone, and whose interface is reserved; its uid."""
    await stage.azure.behave(nic_goes=0.2)
    await stage.azure.set_rate(1)
    uid = await stage.claimed(claim, launched=False)
    await stage.nic(claim, reserved=SECONDS)
    await stage.unclaimed(claim)
    return uid


async def _goes_in_time(stage: Stage, waiting: JobView) -> None:
    async def twice() -> list[Entry]:
        deletes = [one for one in await stage.deletes() if one.operation == "nic.delete"]
        return deletes if len(deletes) > 1 else []

    refusal, *later = await stage.until("it is asked for again", twice)
    assert (refusal.status, refusal.code) == (400, "NicReservedForAnotherVm")
    over = refusal.real + SECONDS
    assert waiting.due is not None
    assert abs(waiting.due.timestamp() - over) < 0.5, "it waits for another time"
    (allowed,) = later
    assert allowed.status == 202
    assert over <= allowed.real < over + timedelta(seconds=1).total_seconds(), allowed.real - over
    await stage.until_gone(waiting.target.removeprefix("aks-"))
