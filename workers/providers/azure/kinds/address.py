"""Public IP addresses."""

from typing import Any, Final

from workers.providers.azure.kinds.declaration import AzureKind, id_of, lower_id, state_of, tags_of
from workers.providers.azure.model import AzureResource


def _shown(one: Any) -> AzureResource:
    return AzureResource(
        kind=ADDRESS.name, name=one.name, guid=lower_id(one.resource_guid), tags=tags_of(one), state=state_of(one),
        used_by=id_of(one.ip_configuration),
    )  # fmt: skip


ADDRESS: Final = AzureKind(
    name="azure-public-ip",
    title="public address",
    type="Microsoft.Network/publicIPAddresses",
    client="network",
    collection="public_ip_addresses",
    reading="network.read",
    removing="network.delete",
    shown=_shown,
    permissions=("Microsoft.Network/publicIPAddresses/read", "Microsoft.Network/publicIPAddresses/delete"),
)
