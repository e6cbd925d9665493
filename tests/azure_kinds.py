"""Registry of the Azure kinds for tests: one row per kind, by its name, that says how such a resource is created in the
stand-in, what the stand-in's journal calls its operations, and how it is deleted with the SDK. Tests that go over kinds
go over `AZURE_KINDS`; `tests/unit/test_kind_registries.py` compares it with the kinds of the provider."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from standins.azure import Disk, LocalAzure, Nic, PublicIp, Vm
from standins.azure.resources import NewResource, ResourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureKindRow:
    """`short` is what the stand-in calls the kind and `resource` its description of one. `client` and `collection` are
    where the SDK has it. `reading` and `removing` are the calls that a read and a delete draw on. `check_after` is
    in how many seconds Azure says to look again after a delete call. `attached_to` is what one can be attached to, as
    the stand-in calls it, and the field that names it; `in_use` are code and status with which Azure then refuses to
    delete it."""

    name: str
    short: ResourceKind
    resource: type[NewResource]
    client: Literal["network", "compute"]
    collection: str
    reading: Literal["network.read", "compute.read"]
    removing: Literal["network.delete", "compute.delete", "disk.delete"]
    check_after: int
    attached_to: ResourceKind | None = None
    in_use: tuple[str, int] | None = None

    @property
    def read(self) -> str:
        """The read in the stand-in's journal."""
        return f"{self.short}.get"

    @property
    def delete(self) -> str:
        """The delete call in the stand-in's journal."""
        return f"{self.short}.delete"

    @property
    def takes(self) -> str:
        """The setting of the stand-in for the seconds that a deletion takes."""
        return f"{self.short}_goes"

    async def make(self, azure: LocalAzure, name: str, **given: Any) -> str:
        """Creates one, and returns its guid."""
        (guid,) = await azure.make(self.resource(name=name, **given))
        return guid

    def methods(self, clients: Any) -> Any:
        """The SDK's methods for the kind; `clients` has `network` and `compute`."""
        return getattr(getattr(clients, self.client), self.collection)


_ROWS: Final = (
    AzureKindRow(
        name="azure-virtual-machine",
        short="vm",
        resource=Vm,
        client="compute",
        collection="virtual_machines",
        reading="compute.read",
        removing="compute.delete",
        check_after=10,
    ),
    AzureKindRow(
        name="azure-network-interface",
        short="nic",
        resource=Nic,
        client="network",
        collection="network_interfaces",
        reading="network.read",
        removing="network.delete",
        check_after=4,
        attached_to="vm",
        in_use=("NicInUse", 400),
    ),
    AzureKindRow(
        name="azure-disk",
        short="disk",
        resource=Disk,
        client="compute",
        collection="disks",
        reading="compute.read",
        removing="disk.delete",
        check_after=10,
        attached_to="vm",
        in_use=("OperationNotAllowed", 409),
    ),
    AzureKindRow(
        name="azure-public-ip",
        short="ip",
        resource=PublicIp,
        client="network",
        collection="public_ip_addresses",
        reading="network.read",
        removing="network.delete",
        check_after=10,
        attached_to="nic",
        in_use=("PublicIPAddressCannotBeDeleted", 400),
    ),
)
AZURE_KINDS: Final[Mapping[str, AzureKindRow]] = {row.name: row for row in _ROWS}
ATTACHABLE_KINDS: Final = tuple(row for row in _ROWS if row.attached_to is not None)
