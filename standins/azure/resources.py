"""Resource descriptions for the Azure stand-in: network interfaces, virtual machines, disks and public IP addresses.
A resource refers to another by name, if both are in one resource group, or by resource id."""

from typing import Final, Literal

import msgspec

# Defaults for what names no subscription, resource group or region.
SUBSCRIPTION: Final = "00000000-0000-4000-8000-000000000001"
TENANT: Final = "00000000-0000-4000-8000-00000000000f"
GROUP: Final = "mc_pool"
REGION: Final = "westeurope"

ResourceKind = Literal["nic", "vm", "disk", "ip"]
DeleteOption = Literal["Delete", "Detach"]

TYPES: Final[dict[ResourceKind, str]] = {
    "nic": "Microsoft.Network/networkInterfaces",
    "vm": "Microsoft.Compute/virtualMachines",
    "disk": "Microsoft.Compute/disks",
    "ip": "Microsoft.Network/publicIPAddresses",
}
KINDS: Final[dict[str, ResourceKind]] = {name.lower(): kind for kind, name in TYPES.items()}


class Nic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="nic"):
    """`vm` is the VM that it is attached to, which need not exist. It is reserved for `reserved_vm` for `reserved`
    seconds after its creation; `ip_delete` is the delete option of its public IP address."""

    name: str
    tags: dict[str, str] = {}
    subscription: str = SUBSCRIPTION
    group: str = GROUP
    region: str = REGION
    guid: str = ""
    state: str = "Succeeded"
    vm: str = ""
    public_ip: str = ""
    ip_delete: DeleteOption = "Detach"
    reserved: float = 0.0
    reserved_vm: str = ""


class Vm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="vm"):
    """`age` is added to its age, in seconds. `keeps` names those of its network interfaces and disks that are detached
    when it is deleted, whatever `nic_delete` and `disk_delete` are."""

    name: str
    tags: dict[str, str] = {}
    subscription: str = SUBSCRIPTION
    group: str = GROUP
    region: str = REGION
    guid: str = ""
    state: str = "Succeeded"
    age: float = 0.0
    nics: tuple[str, ...] = ()
    disk: str = ""
    data_disks: tuple[str, ...] = ()
    nic_delete: DeleteOption = "Delete"
    disk_delete: DeleteOption = "Delete"
    keeps: tuple[str, ...] = ()

    def option(self, kind: ResourceKind, named: str) -> DeleteOption:
        if named.lower() in (one.lower() for one in self.keeps):
            return "Detach"
        return self.nic_delete if kind == "nic" else self.disk_delete


class Disk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="disk"):
    name: str
    tags: dict[str, str] = {}
    subscription: str = SUBSCRIPTION
    group: str = GROUP
    region: str = REGION
    guid: str = ""
    state: str = "Succeeded"
    age: float = 0.0
    vm: str = ""


class PublicIp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="ip"):
    name: str
    tags: dict[str, str] = {}
    subscription: str = SUBSCRIPTION
    group: str = GROUP
    region: str = REGION
    guid: str = ""
    state: str = "Succeeded"
    nic: str = ""


NewResource = Nic | Vm | Disk | PublicIp


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource group, possibly empty."""

    name: str = GROUP
    subscription: str = SUBSCRIPTION
    region: str = REGION


class ResourceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource as it exists now. `vm` is what it is attached to (for a public IP address its network interface);
    `reserved_until` is a time of the stand-in's clock, 0 without a reservation."""

    kind: ResourceKind
    subscription: str
    group: str
    name: str
    guid: str
    tags: dict[str, str]
    state: str
    vm: str = ""
    reserved_until: float = 0.0


def kind_of(spec: NewResource) -> ResourceKind:
    match spec:
        case Nic():
            return "nic"
        case Vm():
            return "vm"
        case Disk():
            return "disk"
        case PublicIp():
            return "ip"


def id_of(subscription: str, group: str, kind: ResourceKind, name: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{TYPES[kind]}/{name}"


def refer(spec: NewResource, kind: ResourceKind, named: str) -> str:
    """The resource id of a reference, which is a name, an id or empty."""
    if not named or named.startswith("/"):
        return named
    return id_of(spec.subscription, spec.group, kind, named)


def name_in(identity: str) -> str:
    return identity.rpartition("/")[2]
