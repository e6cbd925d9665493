"""What can be made in the stand-in for Azure: interfaces, virtual machines, disks and public addresses.
One resource refers to another by its name, if both are in one group, or by its whole id."""

from typing import Final, Literal

import msgspec

from standins.azure.world import GROUP, REGION, SUBSCRIPTION

Kind = Literal["nic", "vm", "disk", "ip"]
DeleteOption = Literal["Delete", "Detach"]

TYPES: Final[dict[Kind, str]] = {
    "nic": "Microsoft.Network/networkInterfaces",
    "vm": "Microsoft.Compute/virtualMachines",
    "disk": "Microsoft.Compute/disks",
    "ip": "Microsoft.Network/publicIPAddresses",
}
KINDS: Final[dict[str, Kind]] = {name.lower(): kind for kind, name in TYPES.items()}


class Nic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="nic"):
    """`vm` has it attached to a machine, whether or not there is one. It is reserved for `reserved` seconds from when
    it is made, for `reserved_vm`; `ip_delete` is what becomes of its public address when its machine is deleted."""

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
    """`age` are the seconds that it is older than its making. `keeps` names those of its interfaces and disks that
    stay when it is deleted, whatever is said for all of them."""

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

    def option(self, kind: Kind, named: str) -> DeleteOption:
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


Made = Nic | Vm | Disk | PublicIp


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource group in which nothing need be."""

    name: str = GROUP
    subscription: str = SUBSCRIPTION
    region: str = REGION


class There(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is there at this moment. `vm` is what it is attached to, an address's interface too; `reserved_until` is of
    the stand-in's clock, 0 for what nobody has reserved."""

    kind: Kind
    subscription: str
    group: str
    name: str
    guid: str
    tags: dict[str, str]
    state: str
    vm: str = ""
    reserved_until: float = 0.0


def kind_of(made: Made) -> Kind:
    match made:
        case Nic():
            return "nic"
        case Vm():
            return "vm"
        case Disk():
            return "disk"
        case PublicIp():
            return "ip"


def id_of(subscription: str, group: str, kind: Kind, name: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{TYPES[kind]}/{name}"


def refer(made: Made, kind: Kind, named: str) -> str:
    """The id of what a resource calls by its name or its id; nothing for no name."""
    if not named or named.startswith("/"):
        return named
    return id_of(made.subscription, made.group, kind, named)


def name_in(identity: str) -> str:
    return identity.rpartition("/")[2]
