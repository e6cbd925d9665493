"""Resources that stay with an abandoned machine, attempt by attempt, also if the interface's job deletes the
machine."""

import msgspec
import pytest

from service.contract import Blocked, JobRecord, Left, Pending
from service.contract.kept import Abandoned
from service.contract.version import VERSION
from standins.azure import GROUP
from tests.integration.azure_removal import NAME, AzureRemovalFixture, azure, own_api, removing
from workers.handlers.kept_resources import NoKeptRecords
from workers.providers.azure.kinds import ADDRESS, DISK, NIC, VM, AzureKind
from workers.removal import RemovalProgress

__all__ = ["azure", "own_api", "removing"]


class OneAbandonedRecord(NoKeptRecords):
    """One answer for every deletion."""

    def __init__(self, abandoned: Abandoned) -> None:
        self._abandoned = abandoned

    async def abandoned(self, deletion: str) -> Abandoned:
        del deletion
        return self._abandoned


def abandoned(
    removing: AzureRemovalFixture, kind: AzureKind = VM, *, group: str = GROUP, data: str | None = None
) -> OneAbandonedRecord:
    where = msgspec.structs.replace(removing.where, group=group.lower())
    owner = msgspec.json.encode(removing.claim_of(where=where)).decode()
    record = JobRecord(
        v=VERSION, stage=0, lane="any", kind=kind.name, target=NAME, data=owner if data is None else data,
        state="abandoned",
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
