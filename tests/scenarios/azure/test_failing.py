"""Deletes that come to nothing, answers that get lost, and calls that find no room: nothing is taken for gone that is
there, and nothing is asked for more often than makes sense."""

import asyncio
from datetime import timedelta

import pytest

from service.contract.azure import resource_name
from service.engine.views.jobs import JobView
from tests.scenarios.azure.stage import NIC, VM, Stage

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("kind", "operation"), [(NIC, "nic.delete"), (VM, "vm.delete")])
async def test_a_delete_that_is_accepted_and_fails_is_tried_again_later_and_later(
    stage: Stage, kind: str, operation: str
) -> None:
    await stage.azure.behave(vm_goes=1.0, nic_goes=1.0)
    await stage.trouble("fails", operation, code="InternalExecutionError", message="not this time")
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await (stage.vm(claim) if kind == VM else stage.nic(claim))
    await stage.unclaimed(claim)
    for times, seconds in ((2, 15), (3, 30)):
        job = await stage.until_told(claim, f"accepted {times} times", kind=kind)
        assert job.state == "waiting"
        assert len(await stage.deletes()) == times
        assert job.due is not None
        assert job.last_at is not None
        # What the attempt itself took is taken off.
        assert timedelta(seconds=seconds / 2) < job.due - job.last_at <= timedelta(seconds=seconds)
        assert resource_name(claim) in await stage.names()
        if times == 3:
            await stage.azure.trouble()
        assert await _retried(stage, job)
    await stage.until_done(uid)
    assert await stage.names() == set()


@pytest.mark.parametrize("kind", [NIC, VM])
async def test_a_delete_that_takes_its_time_is_waited_for_and_not_repeated(stage: Stage, kind: str) -> None:
    """The address at which Azure would tell how far it is is never asked, nor kept."""
    await stage.azure.behave(nic_goes=60.0, vm_goes=60.0)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await (stage.vm(claim) if kind == VM else stage.nic(claim))
    await stage.unclaimed(claim)
    job = await stage.until_told(claim, "it is being deleted", kind=kind)
    assert "http" not in job.resume + job.data + job.detail
    await stage.azure.advance(60)
    await stage.until_done(uid)
    assert len(await stage.deletes()) == 1
    assert await stage.asked("operation.get") == []


@pytest.mark.parametrize("operation", ["vm.get", "nic.get", "nic.delete"])
async def test_an_answer_that_gets_lost_is_asked_for_again_without_harm(stage: Stage, operation: str) -> None:
    await stage.trouble("lost", operation, times=2)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.nic(claim)
    await stage.unclaimed(claim)
    record = await stage.until_done(uid)
    assert (record.abandoned, record.given_up) == (0, 0)
    assert [one.status for one in await stage.asked(operation)][:1] == [0]
    assert await stage.names() == set()


@pytest.mark.parametrize("what", ["html", "close", "error"])
async def test_what_is_no_answer_of_azure_proves_nothing(stage: Stage, what: str) -> None:
    given = {"code": "InternalServerError"} if what == "error" else {"status": 404} if what == "html" else {}
    await stage.trouble(what, "*.get", **given)  # type: ignore[arg-type] # one of those
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.nic(claim)
    await stage.unclaimed(claim)

    async def tried() -> bool:
        job = await stage.job(claim, VM)
        return job is not None and job.attempts >= 3

    await stage.until("it was tried three times", tried)
    assert await stage.deletes() == []
    record = await stage.record(uid)
    assert record is not None
    assert record.left == record.jobs
    await stage.azure.trouble()
    await stage.until_done(uid)
    assert await stage.names() == set()


@pytest.mark.parametrize("what", ["throttle", "locked"])
async def test_a_call_without_room_waits_and_spends_no_attempt(stage: Stage, what: str) -> None:
    """`locked` has the status of a throttle and is none: another operation holds the network's lock."""
    await stage.trouble(what, "nic.delete", times=2)  # type: ignore[arg-type] # one of those
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.nic(claim)
    await stage.unclaimed(claim)
    record = await stage.until_done(uid)
    deletes = await stage.deletes()
    assert [one.status for one in deletes] == [429, 429, 202]
    assert {job.attempts for job in await stage.all_jobs(record)} == {0}
    assert await stage.names() == set()


async def _retried(stage: Stage, job: JobView) -> bool:
    """A person does not wait that long."""
    return (await asyncio.to_thread(stage.knell, "jobs", "retry", job.id)).code == 0
