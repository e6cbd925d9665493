"""Resources that stay because they or their machine were abandoned, attempt by attempt: also if the interface's job
deletes the machine, and if the deletion is planned anew."""

import msgspec
import pytest

from service.contract import Blocked, Job, JobRecord, Left, Pending, Refused
from service.contract.kept import Abandoned
from service.contract.version import VERSION
from standins.azure import GROUP
from tests.integration.azure_removal import NAME, AzureRecordingBatch, AzureRemovalFixture, azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, sweeping
from workers.handlers.kept_resources import NoKeptRecords
from workers.providers.azure.kinds import ADDRESS, DISK, NIC, VM, AzureKind
from workers.removal import RemovalProgress

__all__ = ["azure", "own_api", "removing", "sweeping"]


class OneAbandonedRecord(NoKeptRecords):
    """One answer for every deletion."""

    def __init__(self, abandoned: Abandoned) -> None:
        self._abandoned = abandoned

    async def abandoned(self, deletion: str) -> Abandoned:
        del deletion
        return self._abandoned


def abandoned(
    removing: AzureRemovalFixture,
    kind: AzureKind = VM,
    *,
    group: str = GROUP,
    data: str | None = None,
    resume: str = "",
) -> OneAbandonedRecord:
    where = msgspec.structs.replace(removing.where, group=group.lower())
    owner = msgspec.json.encode(removing.claim_of(where=where)).decode()
    record = JobRecord(
        v=VERSION, stage=0, lane="any", kind=kind.name, target=NAME, data=owner if data is None else data,
        state="abandoned", resume=resume,
    )  # fmt: skip
    return OneAbandonedRecord(Abandoned((record,)))


async def node(removing: AzureRemovalFixture) -> str:
    """A machine with all that it uses; answers its guid."""
    machine = await removing.vm(nics=(NAME,), disk=NAME)
    await removing.ip()
    await removing.nic(vm=NAME, public_ip=NAME)
    await removing.disk(vm=NAME)
    return machine


@pytest.mark.invariant(10)
@pytest.mark.parametrize("data", [None, "{"], ids=["read", "undecodable"])
@pytest.mark.parametrize("kind", [NIC, DISK, ADDRESS], ids=lambda kind: kind.name)
async def test_what_an_abandoned_machine_uses_is_left(
    removing: AzureRemovalFixture, kind: AzureKind, data: str | None
) -> None:
    await node(removing)
    removing.memory = abandoned(removing, data=data)
    found = await removing.one(removing.batch(kind))
    assert isinstance(found, Left), found
    assert "abandoned" in found.reason


@pytest.mark.invariant(10)
async def test_the_job_of_an_interface_deletes_no_abandoned_machine(removing: AzureRemovalFixture) -> None:
    machine = await node(removing)
    removing.memory = abandoned(removing)
    made = removing.batch(NIC, resume=str(RemovalProgress("", state=machine)))
    found = await removing.one(type(made)(removing.where.lane(VM.removing), made.jobs))
    assert isinstance(found, Left), found
    assert "vm.delete" not in await removing.asked()


@pytest.mark.invariant(10)
async def test_the_address_of_an_abandoned_interface_is_left(removing: AzureRemovalFixture) -> None:
    await removing.ip()
    await removing.nic(public_ip=NAME)
    removing.memory = abandoned(removing, NIC)
    assert isinstance(await removing.one(removing.batch(ADDRESS)), Left)


async def test_a_machine_of_that_name_in_another_group_keeps_nothing(removing: AzureRemovalFixture) -> None:
    await node(removing)
    removing.memory = abandoned(removing, group="mc_other")
    assert isinstance(await removing.one(removing.batch(DISK)), Blocked)
    found = await removing.one(removing.batch(NIC))
    assert isinstance(found, Pending)
    assert found.lane == removing.where.lane(VM.removing)


# ---- planned anew


def planned_anew(batch: AzureRecordingBatch) -> AzureRecordingBatch:
    """The same jobs, of the deletion's second plan."""
    jobs = [Job(job.id.replace("#1.", "#2."), job.fence, job.record) for job in batch.jobs]
    return type(batch)(batch.lane, jobs)


@pytest.mark.invariant(10)
@pytest.mark.parametrize("looks", [True, False], ids=["read", "delete"])
@pytest.mark.parametrize("known", [True, False], ids=["was read", "was never read"])
async def test_what_was_abandoned_in_an_earlier_plan_is_left_by_the_next_one(
    removing: AzureRemovalFixture, known: bool, looks: bool
) -> None:
    guid = await removing.disk()
    removing.memory = abandoned(removing, DISK, resume=str(RemovalProgress(guid)) if known else "")
    found = await removing.one(planned_anew(removing.batch(DISK, looks=looks)))
    assert isinstance(found, Left), found
    assert "abandoned" in found.reason
    assert "disk.delete" not in await removing.asked()
    # It is about that one: a disk of its name that is created later goes.
    await removing.azure.remove("disk", NAME, subscription=removing.subscription)
    await removing.disk()
    found = await removing.one(planned_anew(removing.batch(DISK)))
    assert isinstance(found, Pending if known else Left), found


@pytest.mark.invariant(10)
async def test_an_abandoned_machine_is_not_deleted_by_its_interfaces_job_of_the_next_plan(
    removing: AzureRemovalFixture,
) -> None:
    machine = await node(removing)
    removing.memory = abandoned(removing, resume=str(RemovalProgress(machine)))
    taken = planned_anew(removing.batch(NIC, resume=str(RemovalProgress("", state=machine))))
    assert isinstance(await removing.one(taken.moved(removing.where.lane(VM.removing))), Left)
    assert "vm.delete" not in await removing.asked()


@pytest.mark.invariant(7)
@pytest.mark.invariant(10)
async def test_while_it_cant_be_told_what_was_abandoned_nothing_is_deleted(removing: AzureRemovalFixture) -> None:
    class Unreachable(NoKeptRecords):
        async def abandoned(self, deletion: str) -> Abandoned:
            raise ConnectionError(deletion)

    await removing.disk()
    removing.memory = Unreachable()
    assert isinstance(await removing.one(planned_anew(removing.batch(DISK))), ConnectionError)
    removing.memory = OneAbandonedRecord(Abandoned(unknown=1))
    assert isinstance(await removing.one(planned_anew(removing.batch(DISK))), Refused)
    assert await removing.names() == {NAME}


@pytest.mark.invariant(10)
async def test_an_abandoned_machine_stays_with_all_that_it_uses_when_its_deletion_is_planned_anew(
    sweeping: AzureSweepFixture,
) -> None:
    await sweeping.cloud.azure.set_rate(100.0)
    name = f"aks-{sweeping.cloud.name('a')}"
    await sweeping.cloud.vm(name, nics=(name,), data_disks=("pvc-1",))
    await sweeping.cloud.nic(name, vm=name)
    await sweeping.ripe()
    await sweeping.work()

    async def refused() -> str:
        for view in (await sweeping.published()).values():
            if (await sweeping.deletion(view.id)).get("plan"):
                for job in await sweeping.jobs_of(sweeping.event(view)):
                    if "pvc-1" in (await sweeping.job(job)).get("detail", ""):
                        return job
        return ""

    await sweeping.until("its data disk keeps the machine", refused)
    (view,) = (await sweeping.published()).values()
    one = sweeping.event(view)
    await sweeping.installation.shards[0].pause("*", stop=True, who="test")
    assert await sweeping.shard(one).abandon(await refused(), "somebody") == "abandoned"
    # Nothing is in the way of its deletion any more.
    await sweeping.cloud.vm(name, nics=(name,))
    await sweeping.lose_plan(one)
    await sweeping.until_next_plan(one)
    kinds = {(await sweeping.job(job))["kind"] for job in await sweeping.jobs_of(one)}
    assert VM.name not in kinds
    await sweeping.installation.shards[0].pause("*", stop=False, who="test")
    await sweeping.until_done(one)
    assert await sweeping.cloud.names() == {name}
    assert await sweeping.cloud.names("vm") == {name}
