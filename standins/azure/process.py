"""The Azure stand-in as a child process, with a client for its control API.
Through it tests create resources at once, without throttling."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final
from urllib.parse import quote

import msgspec

from standins.azure.behaviour import AzureBehaviour, AzureFault
from standins.azure.control_messages import OpenGates, ReserveRequest, ResourceName
from standins.azure.journal import AzureJournalEntry
from standins.azure.resources import GROUP, SUBSCRIPTION, NewResource, ResourceGroup, ResourceKind, ResourceState
from standins.stand_in_process import StandInFailed, StandInProcess

_AT_ONCE: Final = 10_000
_decode_entries = msgspec.json.Decoder(list[AzureJournalEntry]).decode
_decode_there = msgspec.json.Decoder(list[ResourceState]).decode


class LocalAzureFailed(StandInFailed):
    """The process ended, did not report its address in time, or refused a control request."""


def detached(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables of the real Azure: a process with this environment finds no identity there."""
    ours = ("AZURE_", "IDENTITY_", "MSI_")
    return {name: value for name, value in environment.items() if not name.startswith(ours)}


class LocalAzure(StandInProcess):
    """`async with LocalAzure() as azure:`; clients connect to `azure.address` over plain HTTP with any bearer token,
    whose text is the principal. A program with `identity()` in its environment gets a token as on App Service."""

    MODULE = "standins.azure"
    NAME = "the stand-in for Azure"
    FAILED = LocalAzureFailed

    def __init__(self, behaviour: AzureBehaviour | None = None, *, rate: float = 1.0, port: int = 0) -> None:
        self.behaviour = behaviour or AzureBehaviour()
        super().__init__(self.behaviour, rate=rate, port=port)

    def identity(self) -> Mapping[str, str]:
        """Variables with which azure-identity finds the managed identity of the stand-in."""
        return {"IDENTITY_ENDPOINT": f"{self.address}/msi/token", "IDENTITY_HEADER": "any"}

    # ---- resources

    async def make(self, *specs: NewResource) -> list[str]:
        """Creates resources at once and returns their guids in order. An existing one of the same name is replaced."""
        guids: list[str] = []
        rest = iter(specs)
        while step := list(islice(rest, _AT_ONCE)):
            guids += msgspec.json.decode(await self._ask("POST", "resources", step), type=list[str])
        return guids

    async def declare(self, *groups: ResourceGroup) -> None:
        """Creates resource groups."""
        await self._ask("POST", "groups", groups)

    async def reserve(
        self, name: str, vm: str = "", seconds: float = 180.0, *, subscription: str = SUBSCRIPTION, group: str = GROUP
    ) -> float:
        """Reserves a network interface for a VM that need not exist; returns the end by the stand-in's clock."""
        asked = ReserveRequest(name=name, vm=vm, seconds=seconds, subscription=subscription, group=group)
        return msgspec.json.decode(await self._ask("POST", "reserve", asked), type=dict[str, float])["until"]

    async def remove(
        self, kind: ResourceKind, name: str, *, subscription: str = SUBSCRIPTION, group: str = GROUP
    ) -> None:
        """Removes a resource at once, without any check."""
        await self._ask("POST", "remove", ResourceName(kind=kind, name=name, subscription=subscription, group=group))

    async def there(self, kind: ResourceKind | None = None) -> list[ResourceState]:
        """All resources that exist now, in all subscriptions."""
        return _decode_there(await self._ask("GET", f"resources?kind={kind or ''}"))

    # ---- faults

    async def set_faults(self, *faults: AzureFault) -> None:
        """Replaces all faults with these."""
        await self.behave(faults=faults)

    async def open(self, operation: str = "*") -> int:
        """Opens the gates for matching requests that wait now, and returns how many."""
        return msgspec.json.decode(await self._ask("POST", "open", OpenGates(operation=operation)), type=int)

    # ---- the journal

    async def journal(self, since: int = 0) -> list[AzureJournalEntry]:
        """All entries from a number on."""
        return _decode_entries(await self._ask("GET", f"journal?since={since}"))

    async def requests(self, operation: str = "", since: int = 0) -> Sequence[AzureJournalEntry]:
        """Requests except those that create test data, all or of one operation (`nic.delete`)."""
        asked = f"journal?since={since}&what=request&operation={quote(operation)}"
        return [one for one in _decode_entries(await self._ask("GET", asked)) if not one.setup]
