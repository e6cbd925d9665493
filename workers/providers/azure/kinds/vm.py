"""Virtual machines. One that would take a data disk along is not deleted."""

from typing import Any, Final

from workers.providers.azure.kinds.declaration import AzureKind, id_of, lower_id, state_of, tags_of
from workers.providers.azure.model import AzureResource


def _shown(one: Any) -> AzureResource:
    """`facts` are the data disks that would be deleted with it."""
    storage = one.storage_profile
    taken = [
        disk.name or id_of(disk.managed_disk)
        for disk in (storage.data_disks if storage is not None else None) or ()
        if str(disk.delete_option or "").lower().endswith("delete")
    ]
    return AzureResource(
        kind=VM.name, name=one.name, guid=lower_id(one.vm_id), tags=tags_of(one), state=state_of(one),
        facts=tuple(taken), made=one.time_created,
    )  # fmt: skip


def _spared(found: AzureResource) -> str:
    if not found.facts:
        return ""
    return (
        f"its data disk {', '.join(found.facts)} would be deleted with it (deleteOption Delete), and may be a user's "
        f"volume; detach it, or set its deleteOption to Detach"
    )


VM: Final = AzureKind(
    name="azure-virtual-machine",
    title="virtual machine",
    type="Microsoft.Compute/virtualMachines",
    client="compute",
    collection="virtual_machines",
    reading="compute.read",
    removing="compute.delete",
    shown=_shown,
    spared=_spared,
    permissions=("Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/delete"),
)
