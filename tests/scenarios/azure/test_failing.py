"""Failing deletes, lost responses and exhausted limits on Azure: no existing resource counts as gone, and no request is
sent more often than it should be."""

import asyncio
from datetime import timedelta

import pytest

from service.engine.views.jobs import JobView
from service.sources.karpenter_azure import resource_name
from tests.azure_kinds import AZURE_KINDS
from tests.scenarios.azure.azure_scenario import NIC, VM, AzureScenario

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", [NIC, VM])
async def test_a_delete_that_is_accepted_and_fails_is_tried_again_later_and_later(
    scenario: AzureScenario, kind: str
) -> None:
    await scenario.azure.behave(vm_goes=1.0, nic_goes=1.0)
    await scenario.trouble("fails", AZURE_KINDS[kind].delete, code="InternalExecutionError", message="not this time")
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await (scenario.vm(claim) if kind == VM else scenario.nic(claim))
    await scenario.unclaimed(claim)
    for times, seconds in ((2, 15), (3, 30)):
        job = await scenario.until_told(claim, f"accepted {times} times", kind=kind)
        assert job.state == "waiting"
        assert len(await scenario.deletes()) == times
        assert job.due is not None
        assert job.last_at is not None
        # What the attempt itself took is taken off.
        assert timedelta(seconds=seconds / 2) < job.due - job.last_at <= timedelta(seconds=seconds)
        assert resource_name(claim) in await scenario.names()
        if times == 3:
            await scenario.azure.set_faults()
        assert await _retried(scenario, job)
    await scenario.until_done(uid)
    assert await scenario.names() == set()


@pytest.mark.parametrize("kind", [NIC, VM])
async def test_a_delete_that_takes_its_time_is_waited_for_and_not_repeated(scenario: AzureScenario, kind: str) -> None:
    """The address at which Azure would tell how far it is is never asked, nor kept."""
    await scenario.azure.behave(nic_goes=60.0, vm_goes=60.0)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await (scenario.vm(claim) if kind == VM else scenario.nic(claim))
    await scenario.unclaimed(claim)
    job = await scenario.until_told(claim, "it is being deleted", kind=kind)
    assert "http" not in job.resume + job.data + job.detail
    await scenario.azure.advance(60)
    await scenario.until_done(uid)
    assert len(await scenario.deletes()) == 1
    assert await scenario.asked("operation.get") == []


@pytest.mark.parametrize("operation", ["vm.get", "nic.get", "nic.delete"])
async def test_an_answer_that_gets_lost_is_asked_for_again_without_harm(
    scenario: AzureScenario, operation: str
) -> None:
    await scenario.trouble("lost", operation, times=2)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.nic(claim)
    await scenario.unclaimed(claim)
    record = await scenario.until_done(uid)
    assert (record.abandoned, record.given_up) == (0, 0)
    assert [one.status for one in await scenario.asked(operation)][:1] == [0]
    assert await scenario.names() == set()


@pytest.mark.parametrize("what", ["html", "close", "error"])
async def test_what_is_no_answer_of_azure_proves_nothing(scenario: AzureScenario, what: str) -> None:
    given = {"code": "InternalServerError"} if what == "error" else {"status": 404} if what == "html" else {}
    await scenario.trouble(what, "*.get", **given)  # type: ignore[arg-type] # one of those
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.nic(claim)
    await scenario.unclaimed(claim)

    async def tried() -> bool:
        job = await scenario.job(claim, VM)
        return job is not None and job.attempts >= 3

    await scenario.until("it was tried three times", tried)
    assert await scenario.deletes() == []
    record = await scenario.record(uid)
    assert record is not None
    assert record.left == record.jobs
    await scenario.azure.set_faults()
    await scenario.until_done(uid)
    assert await scenario.names() == set()


@pytest.mark.parametrize("what", ["throttle", "locked"])
async def test_a_call_without_room_waits_and_spends_no_attempt(scenario: AzureScenario, what: str) -> None:
    """`locked` has the status of a throttle and is none: another operation holds the network's lock."""
    await scenario.trouble(what, "nic.delete", times=2)  # type: ignore[arg-type] # one of those
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.nic(claim)
    await scenario.unclaimed(claim)
    record = await scenario.until_done(uid)
    deletes = await scenario.deletes()
    assert [one.status for one in deletes] == [429, 429, 202]
    assert {job.attempts for job in await scenario.all_jobs(record)} == {0}
    assert await scenario.names() == set()


async def _retried(scenario: AzureScenario, job: JobView) -> bool:
    """A person does not wait that long."""
    return (await asyncio.to_thread(scenario.knell, "jobs", "retry", job.id)).code == 0
