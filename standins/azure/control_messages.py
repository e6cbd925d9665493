"""Request bodies of the control API: a resource by name, a reservation, gates to open.
`LocalAzure` writes them and the control API reads them."""

import msgspec

from standins.azure.resources import GROUP, SUBSCRIPTION, ResourceKind, id_of, name_in


class ResourceName(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource by kind and name; the name may be a resource id."""

    name: str
    kind: ResourceKind = "nic"
    subscription: str = SUBSCRIPTION
    group: str = GROUP

    @property
    def id(self) -> str:
        return self.name if self.name.startswith("/") else id_of(self.subscription, self.group, self.kind, self.name)


class ReserveRequest(ResourceName, frozen=True, kw_only=True, omit_defaults=True):
    """Reserves a network interface for a VM that need not exist; by default one of the same name."""

    vm: str = ""
    seconds: float = 180.0

    @property
    def for_vm(self) -> str:
        vm = self.vm or name_in(self.name)
        return vm if vm.startswith("/") else id_of(self.subscription, self.group, "vm", vm)


class OpenGates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Opens the gates at which requests for matching operations wait."""

    operation: str = "*"
