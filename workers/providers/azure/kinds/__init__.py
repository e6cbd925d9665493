"""Resource kinds of Azure, one file each; a new kind is named in `KINDS`. Begin with `declaration.py` and `disk.py`.
A kind knows how a resource is read and deleted, and nothing of collectors: whose it is, and what is removed when."""

from typing import Final

from workers.providers.azure.kinds.address import ADDRESS
from workers.providers.azure.kinds.declaration import AzureKind, lower_id
from workers.providers.azure.kinds.disk import DISK
from workers.providers.azure.kinds.nic import NIC
from workers.providers.azure.kinds.vm import VM

KINDS: Final = (VM, NIC, DISK, ADDRESS)

__all__ = ["ADDRESS", "DISK", "KINDS", "NIC", "VM", "AzureKind", "lower_id"]
