"""Resource kinds of a node on Azure, declared: how each is read and deleted, its lanes and its permissions.
The SDK's models are converted to AzureResource here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from workers.handlers.azure.limits import Call
from workers.handlers.azure.model import AzureResource
from workers.handlers.azure.ownership import of_csi


@dataclass(frozen=True, slots=True)
class AzureKind:
    """`type` is Azure's name for it; `client` and `collection` locate it in the SDK. `reading` and `removing` are the
    last parts of its lanes, and the calls that are made there. Kinds of a later stage wait for the earlier ones."""

    name: str
    type: str
    client: Literal["network", "compute"]
    collection: str
    reading: Call
    removing: Call
    stage: int
    shown: Callable[[Any], AzureResource]
    permissions: tuple[str, ...]
    # Why a resource must not be deleted although it is ours; empty if it may be.
    spared: Callable[[AzureResource], str] = lambda _: ""


def lower_id(value: Any) -> str:
    """An id for comparison: Azure's casing varies."""
    return str(value or "").lower()


def _tags(one: Any) -> Mapping[str, str]:
    return dict(one.tags or {})


def _state(value: Any) -> str:
    """As Azure writes it: some SDK models use enum members, whose string form differs."""
    return str(getattr(value, "value", value) or "")


def _id_of(part: Any) -> str:
    return lower_id(part.id) if part is not None else ""


def _nic(one: Any) -> AzureResource:
    return AzureResource(
        kind=NIC.name, name=one.name, guid=lower_id(one.resource_guid), tags=_tags(one),
        state=_state(one.provisioning_state), used_by=_id_of(one.virtual_machine) or _id_of(one.private_endpoint),
    )  # fmt: skip


def _vm(one: Any) -> AzureResource:
    """`facts` are the data disks that would be deleted with it."""
    storage = one.storage_profile
    taken = [
        disk.name or _id_of(disk.managed_disk)
        for disk in (storage.data_disks if storage is not None else None) or ()
        if str(disk.delete_option or "").lower().endswith("delete")
    ]
    return AzureResource(
        kind=VM.name, name=one.name, guid=lower_id(one.vm_id), tags=_tags(one), state=_state(one.provisioning_state),
        facts=tuple(taken), made=one.time_created,
    )  # fmt: skip


def _vm_spared(found: AzureResource) -> str:
    if not found.facts:
        return ""
    return (
        f"its data disk {', '.join(found.facts)} would be deleted with it (deleteOption Delete), and may be a user's "
        f"volume; detach it, or set its deleteOption to Detach"
    )


def _disk(one: Any) -> AzureResource:
    return AzureResource(
        kind=DISK.name, name=one.name, guid=lower_id(one.unique_id), tags=_tags(one),
        state=_state(one.provisioning_state), used_by=lower_id(one.managed_by), made=one.time_created,
    )  # fmt: skip


def _disk_spared(found: AzureResource) -> str:
    return "it is a volume of a CSI driver" if of_csi(found.name, found.tags) else ""


def _address(one: Any) -> AzureResource:
    return AzureResource(
        kind=ADDRESS.name, name=one.name, guid=lower_id(one.resource_guid), tags=_tags(one),
        state=_state(one.provisioning_state), used_by=_id_of(one.ip_configuration),
    )  # fmt: skip


VM: Final = AzureKind(
    name="azure-virtual-machine",
    type="Microsoft.Compute/virtualMachines",
    client="compute",
    collection="virtual_machines",
    reading="compute.read",
    removing="compute.delete",
    stage=0,
    shown=_vm,
    spared=_vm_spared,
    permissions=("Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/delete"),
)
NIC: Final = AzureKind(
    name="azure-network-interface",
    type="Microsoft.Network/networkInterfaces",
    client="network",
    collection="network_interfaces",
    reading="network.read",
    removing="network.delete",
    stage=1,
    shown=_nic,
    permissions=("Microsoft.Network/networkInterfaces/read", "Microsoft.Network/networkInterfaces/delete"),
)
DISK: Final = AzureKind(
    name="azure-disk",
    type="Microsoft.Compute/disks",
    client="compute",
    collection="disks",
    reading="compute.read",
    removing="disk.delete",
    stage=2,
    shown=_disk,
    spared=_disk_spared,
    permissions=("Microsoft.Compute/disks/read", "Microsoft.Compute/disks/delete"),
)
ADDRESS: Final = AzureKind(
    name="azure-public-ip",
    type="Microsoft.Network/publicIPAddresses",
    client="network",
    collection="public_ip_addresses",
    reading="network.read",
    removing="network.delete",
    stage=2,
    shown=_address,
    permissions=("Microsoft.Network/publicIPAddresses/read", "Microsoft.Network/publicIPAddresses/delete"),
)
KINDS: Final = (VM, NIC, DISK, ADDRESS)
