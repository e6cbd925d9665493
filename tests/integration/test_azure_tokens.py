"""What calls to Azure draw, and what comes back: each layer's refusal pauses its own limit, and nothing is lost of what
was reserved for calls that were not made. (That the tokens balance is checked after every attempt of every test.)"""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from service.contract import Blocked, Job, Pending, Remaining, Throttled
from standins.azure import REGION, AzureFault, BucketSize
from tests.engine.waiting import until
from tests.integration.azure_removal import NAME, AzureRecordingBatch, AzureRemovalFixture, azure, own_api, removing
from workers.handlers.lane_meter import LaneMeter
from workers.handlers.protocol import NotCleared
from workers.providers.azure.call_meters import BatchCallMeter
from workers.providers.azure.errors import NO_ROOM, AzureError, verdict_for
from workers.providers.azure.kinds import DISK, NIC, VM, AzureKind
from workers.providers.azure.limits import call_draws

__all__ = ["azure", "own_api", "removing"]

ARM_READS = f"{REGION}/own/arm.reads"
ARM_DELETES = f"{REGION}/own/arm.deletes"
NETWORK_WRITES = f"{REGION}/network.writes"
NETWORK_READS = f"{REGION}/network.reads"
VM_DELETES = f"{REGION}/compute.vm-deletes"
COMPUTE_READS = f"{REGION}/compute.reads"
COMPUTE_DISKS = f"{REGION}/compute.disks"


def throttled(verdict: object) -> Throttled:
    assert isinstance(verdict, Throttled), verdict
    return verdict


# ---- refused for want of quota


async def test_resource_manager_pauses_its_own_bucket_of_deletes(removing: AzureRemovalFixture) -> None:
    await removing.nic("aks-a")
    await removing.nic("aks-b")
    await removing.azure.behave(arm_deletes=BucketSize(1, 0.001), arm_retry_after=6.0)
    assert isinstance(await removing.one(removing.batch(NIC, "aks-a")), Pending)
    batch = removing.batch(NIC, "aks-b")
    found = throttled(await removing.one(batch))
    assert (found.retry_after, found.unasked) == (timedelta(seconds=6), False)
    assert "SubscriptionRequestsThrottled" in found.detail
    assert batch.pauses == {ARM_DELETES: timedelta(seconds=6)}
    assert await removing.names("nic") >= {"aks-b"}


async def test_resource_manager_pauses_its_own_bucket_of_reads(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    await removing.azure.set_faults(AzureFault(what="throttle", operation="nic.get"))
    for looks in (True, False):
        batch = removing.batch(NIC, looks=looks)
        throttled(await removing.one(batch))
        assert batch.pauses == {ARM_READS: timedelta(seconds=1)}


@pytest.mark.parametrize("wait", [None, 9.0])
async def test_the_network_pauses_its_own_bucket_with_a_time_or_without(
    removing: AzureRemovalFixture, wait: float | None
) -> None:
    await removing.nic()
    await removing.azure.behave(network_retry_after=wait)
    await removing.azure.set_faults(AzureFault(what="throttle", operation="nic.delete"))
    batch = removing.batch(NIC)
    span = None if wait is None else timedelta(seconds=wait)
    assert throttled(await removing.one(batch)).retry_after == span
    assert batch.pauses == {NETWORK_WRITES: span}


async def test_compute_pauses_the_deletes_of_machines(removing: AzureRemovalFixture) -> None:
    await removing.vm()
    await removing.azure.set_faults(AzureFault(what="throttle", operation="vm.delete"))
    batch = removing.batch(VM)
    assert throttled(await removing.one(batch)).retry_after == timedelta(seconds=60)
    assert batch.pauses == {VM_DELETES: timedelta(seconds=60)}
    assert await removing.names("vm") == {NAME}


@pytest.mark.parametrize(("kind", "looks"), [(VM, True), (VM, False), (NIC, False), (DISK, False), (DISK, True)])
async def test_compute_pauses_its_own_reads_and_no_others(
    removing: AzureRemovalFixture, kind: AzureKind, looks: bool
) -> None:
    """Whoever asks Resource Manager for interfaces and addresses goes on."""
    await removing.vm()
    await removing.disk()
    await removing.nic("aks-b")
    said = AzureFault(what="error", code="OperationNotAllowed", message="too many", status=429, seconds=40)
    await removing.azure.set_faults(*(replace(said, operation=one) for one in ("vm.get", "disk.get")))
    batch = removing.batch(kind, looks=looks)
    assert throttled(await removing.one(batch)).retry_after == timedelta(seconds=40)
    assert batch.pauses == {COMPUTE_READS: timedelta(seconds=40)}
    batch = removing.batch(NIC, "aks-b", looks=True)
    assert isinstance(await removing.one(batch), Pending)


async def test_compute_pauses_the_deletes_of_disks_apart_from_all_others(removing: AzureRemovalFixture) -> None:
    await removing.disk()
    await removing.azure.set_faults(AzureFault(what="throttle", operation="disk.delete"))
    batch = removing.batch(DISK)
    assert throttled(await removing.one(batch)).retry_after == timedelta(seconds=60)
    assert batch.pauses == {COMPUTE_DISKS: timedelta(seconds=60)}
    assert await removing.names("disk") == {NAME}


async def test_a_429_of_a_proxy_pauses_the_requested_operation(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    await removing.azure.set_faults(AzureFault(what="html", operation="nic.get", status=429))
    batch = removing.batch(NIC, looks=True)
    throttled(await removing.one(batch))
    assert batch.pauses == {NETWORK_READS: None}


async def test_every_answer_tells_what_is_left_also_a_refusal(removing: AzureRemovalFixture) -> None:
    await removing.vm()
    batch = removing.batch(VM)
    assert isinstance(await removing.one(batch), Pending)
    assert batch.told == [
        Remaining(ARM_READS, 249.0, 1.0), Remaining(COMPUTE_READS, None, 1.0),
        Remaining(ARM_DELETES, 199.0, 1.0), Remaining(VM_DELETES, 1499.0, 1.0),
    ]  # fmt: skip
    await removing.azure.behave(locks=[NAME])
    batch = removing.batch(DISK)
    await removing.disk()
    await removing.attempt(batch)
    assert batch.told == [
        Remaining(ARM_READS, 248.0, 1.0), Remaining(COMPUTE_READS, None, 1.0),
        Remaining(ARM_DELETES, 198.0, 1.0), Remaining(COMPUTE_DISKS, None, 1.0),
    ]  # fmt: skip


async def test_a_call_that_nothing_was_reserved_for_is_not_made_and_azure_is_not_blamed(
    removing: AzureRemovalFixture,
) -> None:
    batch = removing.batch(NIC)
    meter = BatchCallMeter(LaneMeter(call_draws(removing.where, "compute.read", 0.2), 1, batch.report_quota))
    calls = removing.calls(meter)
    assert await calls.read(VM, NAME) is None
    with pytest.raises(AzureError) as caught:
        await calls.read(VM, NAME)
    assert (caught.value.what, caught.value.code) == ("throttled", NO_ROOM)
    assert await removing.asked() == ["vm.get"]
    verdict = verdict_for(caught.value, removing.where, "azure.nodes")
    assert isinstance(verdict, Throttled)
    assert verdict.unasked
    assert batch.pauses == {}


# ---- not cleared


async def test_reads_that_were_made_for_a_job_that_is_not_cleared_stay_drawn(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    batch = removing.batch(NIC, clear=NotCleared("paused"))
    assert isinstance(await removing.one(batch), NotCleared)
    assert batch.spent == {ARM_READS: 2.0, NETWORK_READS: 1.0, COMPUTE_READS: 1.0}
    assert await removing.asked() == ["vm.get", "nic.get"]
    assert await removing.names("nic") == {NAME}


async def test_some_are_cleared_and_some_are_not_in_one_batch(removing: AzureRemovalFixture) -> None:
    class PartlyRefusedBatch(AzureRecordingBatch):
        async def clear(self, *jobs: Job) -> None:
            if any(job.target == "aks-b" for job in jobs):
                raise NotCleared("its owner objects", refused=True, deletion="deletion")
            await super().clear(*jobs)

    for name in ("aks-a", "aks-b", "aks-c"):
        await removing.nic(name)
    found = await removing.attempt(removing.batch(NIC, "aks-a", "aks-b", "aks-c", of=PartlyRefusedBatch))
    assert isinstance(found["aks-b"], NotCleared)
    deleted = {one.name for one in await removing.requests() if one.operation == "nic.delete"}
    assert deleted == {"aks-a", "aks-c"}


async def test_an_unreadable_consent_is_a_failed_attempt(
    removing: AzureRemovalFixture,
) -> None:
    await removing.nic()
    batch = removing.batch(NIC, clear=RuntimeError("its cluster can't be asked"))
    assert isinstance(await removing.one(batch), RuntimeError)
    assert await removing.names("nic") == {NAME}


async def test_a_node_that_lives_protects_its_machine_before_anything_is_drawn(removing: AzureRemovalFixture) -> None:
    claim = removing.name("a")
    removing.node(claim)
    await removing.vm(f"aks-{claim}")
    batch = removing.batch(VM, f"aks-{claim}")
    found = await removing.one(batch)
    assert isinstance(found, NotCleared)
    assert (found.refused, found.deletion, found.wait_ms) == (True, "deletion", 60_000)
    assert "runs on it and is Ready" in str(found)
    assert (await removing.asked(), batch.spent, set(batch.cleared)) == ([], {}, set())


@pytest.mark.parametrize("what", ["handlers.evidence_age.FRESH", "providers.azure.kind_calls.FRESH_SIGNS"])
async def test_nothing_goes_on_the_strength_of_what_was_read_too_long_ago(
    removing: AzureRemovalFixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Consent may have been long in coming: then all is read again, later and later, and the call that was not made
    costs nothing."""
    await removing.nic()
    monkeypatch.setattr(f"workers.{what}", timedelta(0))
    batch = removing.batch(NIC)
    found = await removing.one(batch)
    assert isinstance(found, Blocked)
    assert "has grown old" in found.by
    assert (await removing.asked(), set(batch.cleared)) == (["vm.get", "nic.get"], {"deletion#1.0"})
    assert await removing.names("nic") == {NAME}


async def test_what_is_gone_needs_no_clearance(removing: AzureRemovalFixture) -> None:
    found = await removing.one(removing.batch(NIC, clear=NotCleared("paused")))
    assert not isinstance(found, NotCleared)


# ---- called off


async def called_off(
    removing: AzureRemovalFixture, batch: AzureRecordingBatch, waits: list[str], judged: tuple[str, ...] = ()
) -> None:
    """A batch is cancelled while its requests wait at gates and the targets in `judged` have their verdicts. No request
    may be on its way then: it would be drawn, but Azure might never see it. The tokens balance afterwards."""
    removing.since = len(await removing.azure.journal())
    landed: set[str] = set()

    async def attempt() -> None:
        async for job, verdict in removing.removal(NIC).attempt(batch):
            assert isinstance(verdict, NotCleared)
            landed.add(job.target)

    task = asyncio.create_task(attempt())

    async def there() -> bool:
        return sorted(await removing.azure.delayed()) == sorted(waits) and landed == set(judged)

    await until(f"{waits} wait, {judged} have verdicts", there)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await removing.azure.set_faults()
    await removing.azure.open()

    async def over() -> bool:
        return await removing.azure.delayed() == []

    await until("those that waited have been answered", over)

    # What waited at a gate is in the journal as soon as it was answered.
    assert batch.spent == await removing.drawn(), await removing.asked()


async def test_a_batch_that_is_called_off_keeps_what_it_asked_for_and_gives_back_the_rest(
    removing: AzureRemovalFixture,
) -> None:
    """One is in the middle of its delete, the other has not read its interface yet."""
    await removing.nic("aks-a")
    await removing.nic("aks-b")
    await removing.azure.set_faults(
        AzureFault(what="gate", operation="nic.delete", about="aks-a"),
        AzureFault(what="gate", operation="nic.get", about="aks-b"),
    )
    batch = removing.batch(NIC, "aks-a", "aks-b")
    await called_off(removing, batch, ["nic.delete", "nic.get"])
    assert batch.spent == {
        ARM_READS: 4.0, ARM_DELETES: 1.0, NETWORK_READS: 2.0, NETWORK_WRITES: 1.0, COMPUTE_READS: 2.0,
    }  # fmt: skip


async def test_a_verdict_before_the_batch_is_cancelled_counts_once(removing: AzureRemovalFixture) -> None:
    class CalledOffBatch(AzureRecordingBatch):
        async def clear(self, *jobs: Job) -> None:
            raise NotCleared("paused")

    await removing.nic("aks-a")
    await removing.nic("aks-b")
    await removing.azure.set_faults(AzureFault(what="gate", operation="nic.get", about="aks-b"))
    batch = removing.batch(NIC, "aks-a", "aks-b", of=CalledOffBatch)
    await called_off(removing, batch, ["nic.get"], judged=("aks-a",))
