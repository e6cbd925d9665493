"""What stays with a machine whose job was abandoned, turn by turn: also where the interface's job was sent for it."""

import msgspec
import pytest

from service.contract import Blocked, Left, Pending, Record
from service.contract.kept import Abandoned
from service.contract.version import VERSION
from standins.azure import GROUP
from tests.integration.azure_removing import NAME, Removing, azure, own_api, removing
from workers.handlers.azure.kinds import ADDRESS, DISK, NIC, VM, Kind
from workers.handlers.azure.trails import Trail
from workers.handlers.memory import NoMemory

__all__ = ["azure", "own_api", "removing"]


class Remembering(NoMemory):
    """One answer for every deletion."""

    def __init__(self, abandoned: Abandoned) -> None:
        self._abandoned = abandoned

    async def abandoned(self, deletion: str) -> Abandoned:
        del deletion
        return self._abandoned


def abandoned(removing: Removing, kind: Kind = VM, *, group: str = GROUP, data: str | None = None) -> Remembering:
    where = msgspec.structs.replace(removing.where, group=group.lower())
    owner = msgspec.json.encode(removing.owner(where=where)).decode()
    record = Record(
        v=VERSION, stage=0, lane="any", kind=kind.name, target=NAME, data=owner if data is None else data,
        state="abandoned",
    )  # fmt: skip
    return Remembering(Abandoned((record,)))


async def node(removing: Removing) -> str:
    """A machine with all that it uses; answers its guid."""
    machine = await removing.vm(nics=(NAME,), disk=NAME)
    await removing.ip()
    await removing.nic(vm=NAME, public_ip=NAME)
    await removing.disk(vm=NAME)
    return machine


@pytest.mark.invariant(10)
@pytest.mark.parametrize("data", [None, "{"], ids=["read", "undecodable"])
@pytest.mark.parametrize("kind", [NIC, DISK, ADDRESS], ids=lambda kind: kind.name)
async def test_what_an_abandoned_machine_uses_is_left(removing: Removing, kind: Kind, data: str | None) -> None:
    await node(removing)
    removing.memory = abandoned(removing, data=data)
    found = await removing.one(removing.hand(kind))
    assert isinstance(found, Left), found
    assert "abandoned" in found.reason


@pytest.mark.invariant(10)
async def test_the_job_of_an_interface_deletes_no_abandoned_machine(removing: Removing) -> None:
    machine = await node(removing)
    removing.memory = abandoned(removing)
    made = removing.hand(NIC, resume=str(Trail("", machine=machine)))
    found = await removing.one(type(made)(removing.where.lane(VM.removing), made.jobs))
    assert isinstance(found, Left), found
    assert "vm.delete" not in await removing.asked()


@pytest.mark.invariant(10)
async def test_the_address_of_an_abandoned_interface_is_left(removing: Removing) -> None:
    await removing.ip()
    await removing.nic(public_ip=NAME)
    removing.memory = abandoned(removing, NIC)
    assert isinstance(await removing.one(removing.hand(ADDRESS)), Left)


async def test_a_machine_of_that_name_in_another_group_keeps_nothing(removing: Removing) -> None:
    await node(removing)
    removing.memory = abandoned(removing, group="mc_other")
    assert isinstance(await removing.one(removing.hand(DISK)), Blocked)
    found = await removing.one(removing.hand(NIC))
    assert isinstance(found, Pending)
    assert found.lane == removing.where.lane(VM.removing)
