"""Removal on Azure, attempt by attempt: what is read, which calls are made, and the verdict for each response.
Accepted is not gone, and nothing is deleted but the very resource that was checked."""

from datetime import timedelta

import msgspec
import pytest

from service.contract import Blocked, Gone, Left, Pending, Refused
from service.sources.azure import KEEP_TAG, RETAINED
from service.sources.karpenter_azure import AKS_MACHINE_TAG, CLUSTER_TAG
from standins.azure import AzureFault
from tests.azure_kinds import AZURE_KINDS
from tests.integration.azure_removal import NAME, TAGS, AzureRemovalFixture, azure, own_api, removing
from workers.collectors.karpenter_azure.claim import KarpenterClaim
from workers.collectors.karpenter_azure.judge import KarpenterJudge
from workers.providers.azure.kind_calls import LONGEST_READ_AFTER
from workers.providers.azure.kinds import DISK, KINDS, NIC, VM, AzureKind
from workers.providers.azure.model import AzureResource
from workers.removal import LONGEST_REPEAT, RemovalProgress

__all__ = ["azure", "own_api", "removing"]


def pending(verdict: object, operation: str) -> Pending:
    assert isinstance(verdict, Pending), verdict
    assert verdict.lane is not None
    assert verdict.lane.endswith(f"/{operation}")
    return verdict


# ---- looking


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_what_a_read_says_is_not_there_is_gone_and_costs_one_call(
    removing: AzureRemovalFixture, kind: AzureKind
) -> None:
    assert await removing.one(removing.batch(kind, looks=True)) == Gone(absent=True)
    assert await removing.asked() == [AZURE_KINDS[kind.name].read]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_what_is_there_and_ours_moves_to_the_lane_of_its_removal(
    removing: AzureRemovalFixture, kind: AzureKind
) -> None:
    row = AZURE_KINDS[kind.name]
    guid = await removing.make(row)
    found = pending(await removing.one(removing.batch(kind, looks=True)), kind.removing)
    assert (found.check_after, found.resume) == (timedelta(0), str(RemovalProgress(guid)))
    assert await removing.asked() == [row.read]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_an_accepted_delete_is_no_proof_and_a_later_read_is(
    removing: AzureRemovalFixture, kind: AzureKind
) -> None:
    row = AZURE_KINDS[kind.name]
    guid = await removing.make(row)
    accepted = pending(await removing.one(removing.batch(kind)), kind.reading)
    assert (await removing.asked())[-2:] == [row.read, row.delete]
    assert accepted.resume == str(RemovalProgress(guid, 1))
    # The address at which it could be followed is signed: it is not kept.
    assert "http" not in repr(accepted)
    # As the answer said: an interface sooner than the others.
    assert accepted.check_after == timedelta(seconds=row.check_after)
    looked = pending(await removing.one(removing.batch(kind, looks=True, resume=accepted.resume)), kind.reading)
    assert (looked.detail, looked.resume) == ("it is being deleted", str(RemovalProgress(guid, 1, 1)))
    await removing.azure.advance(20)
    assert await removing.one(removing.batch(kind, looks=True, resume=looked.resume)) == Gone()


@pytest.mark.invariant(2)
async def test_all_jobs_of_a_batch_are_worked_on_and_each_has_its_own_verdict(removing: AzureRemovalFixture) -> None:
    await removing.nic("aks-a")
    await removing.nic("aks-b", tags={**TAGS, CLUSTER_TAG: "staging"})
    await removing.nic("aks-c", vm="somebody")
    found = await removing.attempt(removing.batch(NIC, "aks-a", "aks-b", "aks-c", "aks-d"))
    assert {name: type(verdict) for name, verdict in found.items()} == {
        "aks-a": Pending, "aks-b": Left, "aks-c": Blocked, "aks-d": Gone,
    }  # fmt: skip
    assert [one.name for one in await removing.requests() if one.operation == "nic.delete"] == ["aks-a"]


# ---- whose it is


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("tags", "verdict"),
    [
        ({**TAGS, CLUSTER_TAG: "staging"}, Left),
        ({**TAGS, AKS_MACHINE_TAG: "a"}, Left),
        ({**TAGS, KEEP_TAG: "true"}, Refused),
        ({CLUSTER_TAG: "prod"}, Refused),
        ({}, Refused),
    ],
)
async def test_what_is_not_ours_is_never_deleted(
    removing: AzureRemovalFixture, kind: AzureKind, tags: dict[str, str], verdict: type
) -> None:
    await removing.make(AZURE_KINDS[kind.name], tags=tags)
    for looks in (True, False):
        assert isinstance(await removing.one(removing.batch(kind, looks=looks)), verdict)
    assert await removing.names() == {NAME}


class LenientJudge(KarpenterJudge):
    """The judge of a collector that owns whatever it is asked about."""

    def owns(self, claim: KarpenterClaim, found: AzureResource) -> None:
        del claim, found


@pytest.mark.invariant(10)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("tag", "verdict"), [(KEEP_TAG, Refused), (RETAINED.upper(), Left)])
async def test_what_a_tag_keeps_stays_whatever_its_collector_says(
    removing: AzureRemovalFixture, kind: AzureKind, tag: str, verdict: type
) -> None:
    removing.judge = LenientJudge
    await removing.make(AZURE_KINDS[kind.name], tags={tag: "true"})
    for looks in (True, False):
        found = await removing.one(removing.batch(kind, looks=looks))
        assert isinstance(found, verdict), found
    assert await removing.names() == {NAME}


@pytest.mark.invariant(10)
@pytest.mark.parametrize("tag", [KEEP_TAG, RETAINED])
async def test_a_machine_that_a_tag_keeps_is_not_deleted_before_its_interface(
    removing: AzureRemovalFixture, tag: str
) -> None:
    removing.judge = LenientJudge
    machine = await removing.vm(tags={tag: "true"}, nics=(NAME,))
    await removing.nic(vm=NAME)
    assert isinstance(await removing.one(removing.batch(NIC)), Blocked)
    late = removing.batch(NIC, resume=str(RemovalProgress(state=machine))).moved(removing.where.lane(VM.removing))
    assert isinstance(await removing.one(late), Refused | Left)
    assert await removing.names("vm") == {NAME}


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    "changes",
    [{"client_id": "11111111-0000-4000-8000-000000000001"}, {"region": "uksouth"}],
    ids=["identity", "region"],
)
async def test_a_claim_chooses_neither_the_identity_nor_the_region_to_act_in(
    removing: AzureRemovalFixture, changes: dict[str, str]
) -> None:
    await removing.nic()
    claim = removing.claim_of(where=msgspec.structs.replace(removing.where, **changes))
    for looks in (True, False):
        refused = await removing.one(removing.batch(NIC, claim=claim, looks=looks))
        assert isinstance(refused, Refused)
        assert "another region or identity" in refused.reason
    assert await removing.asked() == []


async def test_tags_of_the_settings_are_asked_for_too(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    removing.named = (removing.group_named(tags={"team": "a"}),)
    refused = await removing.one(removing.batch(NIC))
    assert refused == Refused("aks-a: its tag team is None, not 'a'")


@pytest.mark.parametrize("changes", [{"resource_group": "mc_other"}, {"cluster": "other"}])
async def test_what_was_planned_before_the_settings_were_changed_is_not_removed(
    removing: AzureRemovalFixture, changes: dict[str, str]
) -> None:
    guid = await removing.nic()
    removing.named = (removing.group_named(**changes),)
    for looks in (True, False):
        batch = removing.batch(NIC, claim=removing.claim_of(judged=guid), looks=looks)
        refused = await removing.one(batch)
        assert isinstance(refused, Refused)
        assert "azure.nodes does not name" in refused.reason
    assert await removing.asked() == []
    assert await removing.names("nic") == {NAME}


async def test_a_volume_of_a_csi_driver_stays_whatever_it_is_named_and_tagged(removing: AzureRemovalFixture) -> None:
    await removing.disk(tags={**TAGS, "kubernetes.io-created-for-pvc-name": "data"})
    assert await removing.one(removing.batch(DISK)) == Refused("aks-a: it is a volume of a CSI driver")
    assert await removing.names("disk") == {NAME}


async def test_a_machine_that_would_take_a_data_disk_along_stays(removing: AzureRemovalFixture) -> None:
    await removing.disk("pvc-1")
    await removing.vm(data_disks=("pvc-1",))
    for looks in (True, False):
        refused = await removing.one(removing.batch(VM, looks=looks))
        assert isinstance(refused, Refused)
        assert "its data disk pvc-1 would be deleted with it" in refused.reason
    await removing.vm(data_disks=("pvc-1",), keeps=("pvc-1",))
    assert isinstance(await removing.one(removing.batch(VM)), Pending)
    await removing.azure.advance(20)
    assert await removing.names() == {"pvc-1"}


# ---- which one it is


@pytest.mark.invariant(2)
@pytest.mark.parametrize("which", ["handlers.evidence_age.FRESH", "providers.azure.kind_calls.FRESH_SIGNS"])
@pytest.mark.parametrize("kind", [VM, NIC], ids=lambda kind: kind.name)
async def test_what_was_read_too_long_before_the_call_is_no_reason_to_delete(
    removing: AzureRemovalFixture, monkeypatch: pytest.MonkeyPatch, kind: AzureKind, which: str
) -> None:
    row = AZURE_KINDS[kind.name]
    await removing.make(row)
    monkeypatch.setattr(f"workers.{which}", timedelta(0))
    found = await removing.one(removing.batch(kind))
    assert isinstance(found, Blocked)
    assert "grown old" in found.by
    assert await removing.names() == {NAME}
    assert row.delete not in await removing.asked()


@pytest.mark.invariant(9)
async def test_another_one_of_the_same_name_is_not_the_one_that_was_judged(removing: AzureRemovalFixture) -> None:
    first = await removing.nic()
    await removing.azure.remove("nic", NAME, subscription=removing.subscription)
    second = await removing.nic()
    for looks in (True, False):
        gone = await removing.one(removing.batch(NIC, looks=looks, resume=str(RemovalProgress(first, 1))))
        assert isinstance(gone, Gone)
        assert second in gone.detail
    claim = removing.claim_of(judged=first)
    assert isinstance(await removing.one(removing.batch(NIC, claim=claim)), Gone)
    assert [one.guid for one in await removing.there("nic")] == [second]


async def test_ids_are_compared_without_case(removing: AzureRemovalFixture) -> None:
    await removing.nic(guid="ABCDEF00-0000-4000-8000-000000000001")
    claim = removing.claim_of(judged="abcdef00-0000-4000-8000-000000000001")
    assert isinstance(await removing.one(removing.batch(NIC, claim=claim)), Pending)


async def test_what_is_being_deleted_already_is_waited_for_later_and_later(removing: AzureRemovalFixture) -> None:
    await removing.nic(state="Deleting")
    waits = []
    resume = ""
    for _ in range(8):
        found = pending(await removing.one(removing.batch(NIC, resume=resume)), NIC.reading)
        waits.append(found.check_after)
        resume = found.resume
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (timedelta(seconds=4), LONGEST_READ_AFTER)
    assert "nic.delete" not in await removing.asked()


async def test_a_wait_that_has_grown_for_days_is_still_a_wait(removing: AzureRemovalFixture) -> None:
    guid = await removing.nic(state="Deleting")
    found = await removing.one(removing.batch(NIC, looks=True, resume=str(RemovalProgress(guid, 1, 5000))))
    assert pending(found, NIC.reading).check_after == LONGEST_READ_AFTER
    await removing.azure.remove("nic", NAME, subscription=removing.subscription)
    guid = await removing.nic()
    found = await removing.one(removing.batch(NIC, looks=True, resume=str(RemovalProgress(guid, 5000))))
    assert pending(found, NIC.removing).check_after == LONGEST_REPEAT


async def test_deletes_that_are_accepted_and_fail_are_made_again_later_and_later(removing: AzureRemovalFixture) -> None:
    guid = await removing.nic()
    await removing.azure.set_faults(AzureFault(what="fails", operation="nic.delete", code="InternalServerError"))
    resume, waits = "", []
    for number in range(1, 6):
        accepted = pending(await removing.one(removing.batch(NIC, resume=resume)), NIC.reading)
        assert accepted.resume == str(RemovalProgress(guid, number))
        await removing.azure.advance(10)
        seen = pending(await removing.one(removing.batch(NIC, looks=True, resume=accepted.resume)), NIC.removing)
        assert f"its deletion was accepted {number} times" in seen.detail
        assert "Failed" in seen.detail
        resume = seen.resume
        waits.append(seen.check_after.total_seconds())
    assert waits == [0, 15, 30, 60, 120]


@pytest.mark.parametrize(("status", "code"), [(204, ""), (404, "ResourceNotFound")])
async def test_a_delete_that_finds_nothing_is_looked_after_at_once_and_is_no_proof(
    removing: AzureRemovalFixture, status: int, code: str
) -> None:
    """What one part of Azure still shows and another knows nothing of is not asked for as fast as calls go."""
    guid = await removing.nic()
    await removing.azure.set_faults(
        AzureFault(what="error", operation="nic.delete", status=status, code=code, message="no")
    )
    resume, waits = "", []
    for number in range(1, 5):
        said = pending(await removing.one(removing.batch(NIC, resume=resume)), NIC.reading)
        assert (said.detail, said.check_after) == ("said to be gone", timedelta(0))
        assert said.resume == str(RemovalProgress(guid, number))
        seen = pending(await removing.one(removing.batch(NIC, looks=True, resume=said.resume)), NIC.removing)
        resume = seen.resume
        waits.append(seen.check_after.total_seconds())
    assert waits == [0, 15, 30, 60]
