"""What the control address is asked for: something by its name, a reservation, an opening of gates.
The stand-in reads what its own process class writes."""

import msgspec

from standins.azure.resources import Kind, id_of, name_in
from standins.azure.world import GROUP, SUBSCRIPTION


class Named(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something by its kind and name, or its id as the name."""

    name: str
    kind: Kind = "nic"
    subscription: str = SUBSCRIPTION
    group: str = GROUP

    @property
    def id(self) -> str:
        return self.name if self.name.startswith("/") else id_of(self.subscription, self.group, self.kind, self.name)


class Reserve(Named, frozen=True, kw_only=True, omit_defaults=True):
    """For a machine that need not be there; without a name for one of the interface's own name."""

    vm: str = ""
    seconds: float = 180.0

    @property
    def for_vm(self) -> str:
        vm = self.vm or name_in(self.name)
        return vm if vm.startswith("/") else id_of(self.subscription, self.group, "vm", vm)


class Opening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of gates: those at which such operations wait."""

    operation: str = "*"
