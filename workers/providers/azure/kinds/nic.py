"""Network interfaces, which are deleted with the virtual machine that they are attached to."""

from typing import Any, Final

from workers.providers.azure.kinds.declaration import AzureKind, id_of, lower_id, state_of, tags_of
from workers.providers.azure.kinds.vm import VM
from workers.providers.azure.model import AzureResource


def _shown(one: Any) -> AzureResource:
    return AzureResource(
        kind=NIC.name, name=one.name, guid=lower_id(one.resource_guid), tags=tags_of(one), state=state_of(one),
        used_by=id_of(one.virtual_machine) or id_of(one.private_endpoint),
    )  # fmt: skip


NIC: Final = AzureKind(
    name="azure-network-interface",
    title="network interface",
    type="Microsoft.Network/networkInterfaces",
    client="network",
    collection="network_interfaces",
    reading="network.read",
    removing="network.delete",
    shown=_shown,
    host=VM,
    permissions=("Microsoft.Network/networkInterfaces/read", "Microsoft.Network/networkInterfaces/delete"),
)
