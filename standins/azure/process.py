"""The stand-in for Azure as a child process, with what tests and figures need of its control address.
It makes worlds there as well: at once, unthrottled and uncounted."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final
from urllib.parse import quote

import msgspec

from standins.azure.asking import Named, Opening, Reserve
from standins.azure.behaviour import Behaviour, Fault
from standins.azure.journal import Entry
from standins.azure.resources import Group, Kind, Made, There
from standins.azure.world import GROUP, SUBSCRIPTION
from standins.stand_in import StandIn, StandInFailed

_AT_ONCE: Final = 10_000
_decode_entries = msgspec.json.Decoder(list[Entry]).decode
_decode_there = msgspec.json.Decoder(list[There]).decode


class LocalAzureFailed(StandInFailed):
    """The process ended, did not say its address in time, or has not what it was asked for."""


def detached(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what somebody has set up for the real Azure: a process that has this finds no identity there."""
    ours = ("AZURE_", "IDENTITY_", "MSI_")
    return {name: value for name, value in environment.items() if not name.startswith(ours)}


class LocalAzure(StandIn):
    """`async with LocalAzure() as azure:`; then clients go to `azure.address` over plain HTTP, with any bearer token:
    its text is the principal. With `identity()` in its environment, a program gets one as on App Service."""

    MODULE = "standins.azure"
    NAME = "the stand-in for Azure"
    FAILED = LocalAzureFailed

    def __init__(self, behaviour: Behaviour | None = None, *, rate: float = 1.0, port: int = 0) -> None:
        self.behaviour = behaviour or Behaviour()
        super().__init__(self.behaviour, rate=rate, port=port)

    def identity(self) -> Mapping[str, str]:
        """Variables with which azure-identity finds the managed identity that is served here."""
        return {"IDENTITY_ENDPOINT": f"{self.address}/msi/token", "IDENTITY_HEADER": "any"}

    # ---- the world

    async def make(self, *made: Made) -> list[str]:
        """Makes all of it at once, and says their guids in order. What has a name that is taken replaces the other."""
        guids: list[str] = []
        rest = iter(made)
        while step := list(islice(rest, _AT_ONCE)):
            guids += msgspec.json.decode(await self._ask("POST", "resources", step), type=list[str])
        return guids

    async def declare(self, *groups: Group) -> None:
        """Groups in which nothing need be."""
        await self._ask("POST", "groups", groups)

    async def reserve(
        self, name: str, vm: str = "", seconds: float = 180.0, *, subscription: str = SUBSCRIPTION, group: str = GROUP
    ) -> float:
        """From now on, for a machine that need not be there; says until when by the stand-in's clock."""
        asked = Reserve(name=name, vm=vm, seconds=seconds, subscription=subscription, group=group)
        return msgspec.json.decode(await self._ask("POST", "reserve", asked), type=dict[str, float])["until"]

    async def remove(self, kind: Kind, name: str, *, subscription: str = SUBSCRIPTION, group: str = GROUP) -> None:
        """It is gone at once, whatever would have kept it."""
        await self._ask("POST", "remove", Named(kind=kind, name=name, subscription=subscription, group=group))

    async def there(self, kind: Kind | None = None) -> list[There]:
        """What is there at this moment, in all subscriptions."""
        return _decode_there(await self._ask("GET", f"resources?kind={kind or ''}"))

    # ---- trouble

    async def trouble(self, *faults: Fault) -> None:
        """These faults from now on, and no others."""
        await self.behave(faults=faults)

    async def open(self, operation: str = "*") -> int:
        """Lets those go on that wait at a gate now; how many they were."""
        return msgspec.json.decode(await self._ask("POST", "open", Opening(operation=operation)), type=int)

    # ---- the journal

    async def journal(self, since: int = 0) -> list[Entry]:
        """Everything that happened, from an entry's number on."""
        return _decode_entries(await self._ask("GET", f"journal?since={since}"))

    async def requests(self, operation: str = "", since: int = 0) -> Sequence[Entry]:
        """What was asked by others than the world's builders, all or one operation (`nic.delete`)."""
        asked = f"journal?since={since}&what=request&operation={quote(operation)}"
        return [one for one in _decode_entries(await self._ask("GET", asked)) if not one.setup]
