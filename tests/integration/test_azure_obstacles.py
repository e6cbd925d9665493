"""Obstacles to a deletion on Azure: resources in use, reservations, locks, denials and malformed responses.
Each is retried in its own way or held for an operator, and the other resources are deleted."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import Blocked, Gone, Left, Pending, Refused, Throttled, Verdict
from service.contract.kept import Abandoned
from service.sources.karpenter_azure import CLUSTER_TAG
from standins.azure import GROUP, AzureFault, id_of
from tests.azure_kinds import ATTACHABLE_KINDS, AzureKindRow
from tests.integration.azure_removal import (
    NAME,
    TAGS,
    AzureRecordingBatch,
    AzureRemovalFixture,
    azure,
    own_api,
    removing,
)
from workers.handlers.kept_resources import NoKeptRecords
from workers.handlers.protocol import NotCleared
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kind_calls import HostProgress
from workers.providers.azure.kinds import KINDS, NIC, VM
from workers.removal import RemovalProgress

__all__ = ["azure", "own_api", "removing"]


async def test_an_interface_that_a_sweep_found_waits_for_its_machine_which_is_read_fresh(
    removing: AzureRemovalFixture,
) -> None:
    """Attached to it or not: what a sweep finds of the one it finds of the other."""
    await removing.vm(nics=(NAME,))
    guid = await removing.nic(vm=NAME)
    for _ in range(2):
        blocked = await removing.one(removing.batch(NIC, claim=removing.claim_of(judged=guid)))
        assert isinstance(blocked, Blocked)
        assert f"virtual machine {NAME}" in blocked.by
        assert await removing.asked() == ["vm.get"]
        guid = await removing.nic()


@pytest.mark.parametrize("given", [{"tags": {}}, {"tags": {**TAGS, CLUSTER_TAG: "staging"}}, {"state": "Deleting"}])
async def test_an_interface_waits_for_a_machine_of_its_name_that_is_not_ours_to_remove(
    removing: AzureRemovalFixture, given: dict[str, Any]
) -> None:
    await removing.vm(**given)
    await removing.nic()
    assert isinstance(await removing.one(removing.batch(NIC)), Blocked)
    assert NAME in await removing.names("nic")


# ---- a machine that came after the stage of machines was over


def pending(found: Verdict | Exception, operation: str) -> Pending:
    assert isinstance(found, Pending), found
    assert str(found.lane).endswith(f"/{operation}"), found
    return found


def late(removing: AzureRemovalFixture, machine: str, name: str = NAME, **how: Any) -> AzureRecordingBatch:
    """The job of an interface in the lane in which machines are removed."""
    batch = removing.batch(NIC, name, resume=str(RemovalProgress("", state=machine)), **how)
    return batch.moved(removing.where.lane(VM.removing))


async def test_a_machine_that_came_late_goes_before_its_interface_and_not_before_the_grace(
    removing: AzureRemovalFixture,
) -> None:
    machine = await removing.vm(nics=(NAME,))
    await removing.nic(vm=NAME)
    found = await removing.one(removing.batch(NIC))
    assert isinstance(found, Pending)
    assert (found.check_after, found.lane) == (timedelta(seconds=60), removing.where.lane(VM.removing))
    assert (found.resume, await removing.asked()) == (str(RemovalProgress("", state=machine)), ["vm.get"])
    found = await removing.one(late(removing, machine))
    assert isinstance(found, Pending)
    counted = str(HostProgress(machine, 1))
    assert (found.lane, found.resume) == (removing.where.lane(NIC.reading), str(RemovalProgress("", state=counted)))
    assert await removing.asked() == ["vm.get", "vm.delete"]
    await removing.azure.advance(30)
    assert isinstance(await removing.one(removing.batch(NIC, looks=True, resume=found.resume)), Gone)
    assert await removing.names() == set()


async def test_a_late_machine_whose_delete_has_no_effect_is_deleted_again_later_and_later(
    removing: AzureRemovalFixture,
) -> None:
    machine = await removing.vm(nics=(NAME,))
    interface = await removing.nic(vm=NAME)
    await removing.azure.set_faults(AzureFault(what="fails", operation="vm.delete", code="InternalServerError"))
    resume, waits = str(RemovalProgress(interface)), []
    for number in range(1, 6):
        blocked = pending(await removing.one(removing.batch(NIC, resume=resume)), VM.removing)
        assert (f"accepted {number - 1} times" in blocked.detail) == (number > 1)
        waits.append(blocked.check_after.total_seconds())
        taken = removing.batch(NIC, resume=blocked.resume).moved(removing.where.lane(VM.removing))
        accepted = pending(await removing.one(taken), NIC.reading)
        assert await removing.asked() == ["vm.get", "vm.delete"]
        await removing.azure.advance(10)
        seen = pending(await removing.one(removing.batch(NIC, looks=True, resume=accepted.resume)), NIC.removing)
        assert seen.resume == str(RemovalProgress(interface, state=str(HostProgress(machine, number))))
        resume = seen.resume
    assert waits == [60, 60, 75, 90, 120]
    # Another machine of the name begins anew.
    await removing.azure.remove("vm", NAME, subscription=removing.subscription)
    await removing.vm()
    again = pending(await removing.one(removing.batch(NIC, resume=resume)), VM.removing)
    assert again.check_after == timedelta(seconds=60)


@pytest.mark.invariant(2)
async def test_a_late_machine_is_not_deleted_upon_a_read_that_is_older_than_five_seconds(
    removing: AzureRemovalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis, which is asked after the read, may be slow; its time counts."""
    now = 1000.0

    class SlowRecords(NoKeptRecords):
        async def abandoned(self, deletion: str) -> Abandoned:
            nonlocal now
            now += takes
            return await super().abandoned(deletion)

    monkeypatch.setattr("workers.handlers.evidence_age.FRESH", timedelta(seconds=5))
    monkeypatch.setattr("workers.handlers.evidence_age.now", lambda: now)
    removing.memory = SlowRecords()
    machine = await removing.vm(nics=(NAME,))
    takes = 6.0
    found = await removing.one(late(removing, machine))
    assert isinstance(found, Blocked)
    assert "grown old" in found.by
    assert await removing.asked() == ["vm.get"]
    takes = 4.0
    pending(await removing.one(late(removing, machine)), NIC.reading)
    assert await removing.asked() == ["vm.get", "vm.delete"]


async def test_a_late_machine_that_is_going_already_is_looked_after_and_not_deleted_again(
    removing: AzureRemovalFixture,
) -> None:
    machine = await removing.vm(state="Deleting")
    going = pending(await removing.one(late(removing, machine)), NIC.reading)
    assert "being deleted" in going.detail
    assert await removing.asked() == ["vm.get"]


async def test_a_machine_that_came_later_still_is_another_one_and_gets_a_grace_of_its_own(
    removing: AzureRemovalFixture,
) -> None:
    await removing.vm()
    found = await removing.one(late(removing, "0aaaaaaa-0000-4000-8000-00000000dead"))
    assert isinstance(found, Pending)
    assert (found.lane, found.detail) == (removing.where.lane(NIC.removing), "its machine is gone")
    assert await removing.asked() == ["vm.get"]


async def test_a_late_machine_stays_while_its_node_lives_or_its_owner_objects(removing: AzureRemovalFixture) -> None:
    claim = removing.name("a")
    machine = await removing.vm(f"aks-{claim}")
    objects = NotCleared("its owner objects")
    assert await removing.one(late(removing, machine, f"aks-{claim}", clear=objects)) is objects
    assert await removing.asked() == ["vm.get"]
    removing.node(claim)
    found = await removing.one(late(removing, machine, f"aks-{claim}"))
    assert isinstance(found, NotCleared)
    assert "runs on it and is Ready" in str(found)
    assert await removing.asked() == []
    assert await removing.names("vm") == {f"aks-{claim}"}


@pytest.mark.invariant(2)
@pytest.mark.parametrize("tags", [{}, {**TAGS, CLUSTER_TAG: "staging"}])
async def test_a_late_machine_that_is_not_ours_when_its_grace_is_over_stays(
    removing: AzureRemovalFixture, tags: dict[str, str]
) -> None:
    machine = await removing.vm(tags=tags, nics=(NAME,))
    await removing.nic(vm=NAME)
    assert isinstance(await removing.one(late(removing, machine)), Refused | Left)
    assert await removing.asked() == ["vm.get"]
    assert await removing.names("vm") == {NAME}


# ---- others that use it


async def test_an_interface_of_another_owners_machine_is_blocked_by_it(removing: AzureRemovalFixture) -> None:
    await removing.nic(vm="another")
    blocked = await removing.one(removing.batch(NIC))
    assert isinstance(blocked, Blocked)
    assert blocked.by.endswith("/virtualmachines/another")
    assert "nic.delete" not in await removing.asked()


@pytest.mark.parametrize("row", ATTACHABLE_KINDS, ids=lambda row: row.name)
async def test_what_is_attached_is_blocked_by_what_it_is_attached_to(
    removing: AzureRemovalFixture, row: AzureKindRow
) -> None:
    assert row.attached_to is not None
    await removing.make(row, **{row.attached_to: "another"})
    (kind,) = [kind for kind in KINDS if kind.name == row.name]
    blocked = await removing.one(removing.batch(kind))
    assert isinstance(blocked, Blocked)
    assert id_of(removing.subscription, GROUP, row.attached_to, "another").lower() in blocked.by
    assert row.delete not in await removing.asked()
    assert await removing.names() == {NAME}


@pytest.mark.parametrize(("seconds", "rate"), [(180.0, 0.0), (18.0, 0.0), (30.0, 16.0)])
async def test_a_reservation_is_waited_for_as_long_as_the_answer_says(
    removing: AzureRemovalFixture, seconds: float, rate: float
) -> None:
    await removing.nic()
    await removing.azure.set_rate(rate)
    await removing.azure.reserve(NAME, seconds=seconds, subscription=removing.subscription)
    blocked = await removing.one(removing.batch(NIC))
    assert isinstance(blocked, Blocked)
    # A clock that is faster than ours says so in fractions.
    assert blocked.until == timedelta(seconds=seconds / (rate or 1))
    assert "is reserved for another Virtual Machine" in blocked.by
    await removing.azure.advance(seconds)
    assert isinstance(await removing.one(removing.batch(NIC)), Pending)


async def test_what_is_busy_is_tried_again_soon_and_no_limit_is_paused(removing: AzureRemovalFixture) -> None:
    await removing.nic(state="Updating")
    batch = removing.batch(NIC)
    blocked = await removing.one(batch)
    assert isinstance(blocked, Blocked)
    assert (blocked.until, batch.pauses) == (timedelta(seconds=10), {})
    assert "AnotherOperationInProgress" in blocked.by
    await removing.nic("aks-b")
    await removing.azure.set_faults(AzureFault(what="locked", operation="nic.delete"))
    batch = removing.batch(NIC, "aks-b")
    blocked = await removing.one(batch)
    assert isinstance(blocked, Blocked)
    assert (blocked.until, batch.pauses) == (timedelta(seconds=11), {})


async def test_what_gets_a_user_between_read_and_delete_is_blocked(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    words = "Network Interface aks-a is used by existing resource /subscriptions/s/virtualMachines/v."
    await removing.azure.set_faults(
        AzureFault(what="error", operation="nic.delete", code="NicInUse", status=400, message=words)
    )
    blocked = await removing.one(removing.batch(NIC))
    assert isinstance(blocked, Blocked)
    assert (blocked.until, "is used by existing resource" in blocked.by) == (None, True)


async def test_a_lock_is_a_persons_to_lift(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    await removing.azure.behave(locks=[NAME])
    refused = await removing.one(removing.batch(NIC))
    assert isinstance(refused, Refused)
    assert "it is locked, and goes once the lock is lifted" in refused.reason
    await removing.azure.behave(locks=[])
    assert isinstance(await removing.one(removing.batch(NIC)), Pending)


async def test_what_has_something_nested_is_blocked(removing: AzureRemovalFixture) -> None:
    await removing.vm()
    await removing.azure.behave(nested=[NAME])
    assert isinstance(await removing.one(removing.batch(VM)), Blocked)


@pytest.mark.parametrize("what", ["deny", "deny-assignment"])
@pytest.mark.parametrize("operation", ["nic.get", "nic.delete", "vm.get"])
async def test_a_denial_is_refused_with_the_permission_and_where_it_stands(
    removing: AzureRemovalFixture, what: str, operation: str
) -> None:
    await removing.nic()
    await removing.azure.set_faults(AzureFault(what=what, operation=operation))  # type: ignore[arg-type]
    refused = await removing.one(removing.batch(NIC))
    assert isinstance(refused, Refused)
    assert "Microsoft." in refused.reason
    assert "deploy/azure/role-definition.json" in refused.reason
    assert await removing.names("nic") == {NAME}


async def test_a_group_or_a_subscription_that_is_not_there_says_nothing_about_the_resource(
    removing: AzureRemovalFixture,
) -> None:
    dead = "0aaaaaaa-0000-4000-8000-00000000dead"
    places = (
        msgspec.structs.replace(removing.where, group="mc_other"),
        msgspec.structs.replace(removing.where, subscription=dead),
    )
    for where in places:
        removing.named = (removing.group_named(subscription=where.subscription, resource_group=where.group),)
        for looks in (True, False):
            batch = removing.batch(NIC, claim=removing.claim_of(where=where), looks=looks)
            refused = await removing.one(batch, balances=False)
            assert isinstance(refused, Refused)
            assert "that says nothing about the resource" in refused.reason
            assert "azure.nodes" in refused.reason


async def test_a_job_in_a_lane_of_another_place_is_a_fault_and_nothing_is_asked(removing: AzureRemovalFixture) -> None:
    batch = removing.batch(NIC)
    batch.lane = batch.lane.replace(removing.subscription, "0aaaaaaa-0000-4000-8000-00000000dead")
    assert isinstance(await removing.one(batch), ValueError)
    assert await removing.asked() == []


# ---- what is no answer


@pytest.mark.parametrize("status", [200, 401, 404, 429, 502])
async def test_a_page_of_a_proxy_says_nothing_and_its_text_is_not_shown(
    removing: AzureRemovalFixture, status: int
) -> None:
    await removing.nic()
    await removing.azure.set_faults(AzureFault(what="html", operation="nic.get", status=status))
    for looks in (True, False):
        found = await removing.one(removing.batch(NIC, looks=looks))
        # A 429 says the same whoever wrote it, and without a token nothing can be asked yet.
        expected = {401: Blocked, 429: Throttled}.get(status, AzureError)
        assert isinstance(found, expected), found
        assert "internet" not in str(found)
    assert await removing.names("nic") == {NAME}


async def test_an_answer_without_anything_in_it_is_no_resource_and_no_absence(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    for operation in ("nic.get", "vm.get"):
        await removing.azure.set_faults(AzureFault(what="error", operation=operation, status=200, message="{}"))
        error = await removing.one(removing.batch(NIC))
        assert isinstance(error, AzureError), error
        assert error.what == "unreadable"
    assert await removing.names("nic") == {NAME}


@pytest.mark.parametrize("operation", ["nic.get", "nic.delete", "vm.get"])
async def test_a_connection_that_ends_before_the_deed_is_a_failed_attempt(
    removing: AzureRemovalFixture, operation: str
) -> None:
    await removing.nic()
    await removing.azure.set_faults(AzureFault(what="close", operation=operation))
    # The transport itself asks once more where a connection that had served before ends: that is not counted.
    error = await removing.one(removing.batch(NIC), balances=False)
    assert isinstance(error, AzureError)
    assert error.what == "unreachable"
    assert (await removing.asked()).count(operation) <= 2
    await removing.azure.set_faults()
    assert isinstance(await removing.one(removing.batch(NIC)), Pending)


async def test_a_delete_whose_answer_is_lost_is_found_by_the_next_read(removing: AzureRemovalFixture) -> None:
    guid = await removing.nic()
    await removing.azure.set_faults(AzureFault(what="lost", operation="nic.delete"))
    assert isinstance(await removing.one(removing.batch(NIC), balances=False), AzureError)
    await removing.azure.set_faults()
    found = await removing.one(removing.batch(NIC, resume=f"{guid} 0 0"))
    assert isinstance(found, Pending)
    assert found.detail == "it is being deleted"
    assert [one.operation for one in await removing.requests()] == ["vm.get", "nic.get"]


async def test_a_fault_of_azures_own_spends_an_attempt_and_destroys_nothing(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    for status, what in ((500, "unreachable"), (400, "other")):
        fault = AzureFault(what="error", operation="nic.delete", code="Unheard", status=status, message="no")
        await removing.azure.set_faults(fault)
        error = await removing.one(removing.batch(NIC))
        assert isinstance(error, AzureError)
        assert error.what == what
    assert await removing.names("nic") == {NAME}
